// SPDX-License-Identifier: GPL-2.0-only
//! Which page an entry maps, and who else may.

mod l10;
mod l19;
mod l2;
mod l7;
mod l8;
mod l8_exclusive;
pub(crate) mod l8_sharing;

use super::rule::Rule;

pub(crate) use l2::RULE as NO_FOLIO;

pub(super) static RULES: &[&Rule] = &[&l10::RULE, &l19::RULE, &l2::RULE, &l7::RULE, &l8::RULE];
