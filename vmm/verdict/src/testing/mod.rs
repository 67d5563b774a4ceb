// SPDX-License-Identifier: GPL-2.0-only
//! Made-up processes and kernels, for tests: here and in the crates that print verdicts.

#![allow(missing_docs)]

pub mod folios;
pub mod guest;
pub mod random;

/// The rule of this name.
#[track_caller]
pub fn id(name: &str) -> crate::RuleId {
    crate::RuleId::named(name).unwrap_or_else(|| panic!("there is no rule {name}"))
}
