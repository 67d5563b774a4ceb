//! The rules: a module for each, or for a family, with its text, its check and its synthetic test.
//!
//! [`RULES`] is all of them in order; `docs/rules.md` is made from it (`folioscope rules --markdown`).

mod about;
pub(crate) mod all_mapped;
mod architecture;
mod c1;
mod c2;
mod c3;
pub(crate) mod counted;
mod expect;
mod f1;
mod information;
pub(crate) mod k1;
pub(crate) mod k2;
mod l1;
mod l10;
mod l11;
pub(crate) mod l12;
pub(crate) mod l13;
pub(crate) mod l14;
pub(crate) mod l15;
pub(crate) mod l16;
pub(crate) mod l17;
mod l17_pages;
mod l17_totals;
pub(crate) mod l18;
mod l2;
mod l3;
mod l4;
mod l5;
mod l6;
mod l7;
pub(crate) mod l8;
mod l8_exclusive;
pub(crate) mod l8_sharing;
pub(crate) mod l9;
pub(crate) mod l9_counts;
mod l9_entries;
mod l9_judged;
pub(crate) mod l9_unmapped;
mod registry;
mod rule;
mod sequences;
mod tell;
mod unread;
mod user;
mod v1;
mod w1;

pub use crate::id::RuleId;
pub(crate) use about::untried;
pub use about::{markdown, text};
pub use c3::contents_differ;
pub(crate) use expect::check as check_expected;
pub use registry::RULES;
pub(crate) use rule::Told;
pub use rule::{Known, Need, Releases, Rule, Tier};
pub use user::breaks_by_itself;
pub(crate) use user::{alike, folio, user_group};

#[cfg(test)]
mod tests;
