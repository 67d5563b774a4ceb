// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel's own files say.

pub(crate) mod l17;
mod l17_pages;
mod l17_totals;

use super::rule::Rule;

pub(super) static RULES: &[&Rule] = &[&l17::RULE];
