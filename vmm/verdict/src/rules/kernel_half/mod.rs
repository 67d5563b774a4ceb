// SPDX-License-Identifier: GPL-2.0-only
//! The kernel half.

mod k1;
mod k2;

use super::rule::Rule;

pub(super) static RULES: &[&Rule] = &[&k1::RULE, &k2::RULE];
