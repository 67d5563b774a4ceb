// SPDX-License-Identifier: GPL-2.0-only
//! Counts of mappings: of pages, folios and processes.

mod l9;
mod l9_pages;
mod l9_process;
mod l9_unmapped;

use super::rule::Rule;

pub(super) static RULES: &[&Rule] = &[&l9::RULE];
