// SPDX-License-Identifier: GPL-2.0-only
//! Rules on the kernel's own files.

pub(crate) mod l17;
mod l17_pages;
mod l17_totals;

use super::rule::Rule;

pub(super) static RULES: &[&Rule] = &[&l17::RULE];
