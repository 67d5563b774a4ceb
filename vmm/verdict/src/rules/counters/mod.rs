// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's counters of all memory.

mod l12;
mod l13;
mod l14;
mod l15;
mod l16;

use super::rule::Rule;

pub(super) static RULES: &[&Rule] = &[&l12::RULE, &l13::RULE, &l14::RULE, &l15::RULE, &l16::RULE];
