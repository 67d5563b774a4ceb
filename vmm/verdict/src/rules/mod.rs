// SPDX-License-Identifier: GPL-2.0-only
//! The rules: each a value in a file of its family, with its text, what it needs, its checks and its tests.
//!
//! [`FAMILIES`] is all of them; `docs/rules.md` is made from it (`folioscope rules --markdown`). How to add one is in
//! `docs/hacking.md`.

mod about;
mod architecture;
pub(crate) mod checks;
mod contiguous;
pub(crate) mod counted;
mod counters;
mod counts;
mod exclusive;
mod expect;
mod judged;
mod kernel_half;
pub(crate) mod mapping;
mod order_record;
pub(crate) mod page_cache;
pub(crate) mod pages;
pub(crate) mod procfs;
mod registry;
pub(crate) mod rule;
mod sequences;
mod tell;
mod unheld;
mod unread;
pub mod without;

mod workload;

pub(crate) use about::untried;
pub use about::{markdown, text};
pub(crate) use architecture::W1 as WALKED;
pub use checks::breaks_by_itself;
pub(crate) use contiguous::eligible;
pub(crate) use expect::check as check_expected;
pub(crate) use mapping::NO_FOLIO;
pub use registry::{names, FAMILIES, RULES};
pub use rule::{AffectedPart, Identity, KnownFault, Need, OnBreak, Releases, Rule, RuleId, Tier};
pub use workload::{
    charges_left, contents_differ, kernel_report, not_invalidated, pages_left, STUCK,
};

#[cfg(test)]
mod tests;
