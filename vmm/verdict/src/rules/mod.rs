//! The rules: a module for each, or for a family, with its text, its check and its synthetic test.
//!
//! [`RULES`] is all of them in order; `docs/rules.md` is made from it (`folioscope rules --markdown`).

mod about;
mod architecture;
mod c1;
mod c2;
mod c3;
pub(crate) mod counted;
mod expect;
mod expected;
mod f1;
mod id;
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
mod sequences;
mod v1;
mod w1;

use std::ops::Range;

use linux::folio::Numbering;
use linux::pte::bits;
use linux::vma::Vma;

pub use about::{markdown, text};
pub(crate) use about::{remark, untried};
pub use c3::contents_differ;
pub(crate) use expect::{check as check_expected, group_at};
pub(crate) use expected::Ranges;
pub use id::RuleId;

use crate::folios::Mapped;
use crate::group::Group;
use linux::release::Release;

/// One rule, or one kind of information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub id: RuleId,
    /// What it asserts, in a few words.
    pub title: &'static str,
    /// What it asserts in full, and what it leaves alone.
    pub asserts: &'static str,
    /// Whose rule it is.
    pub tier: Tier,
    /// The Arm ARM's (DDI 0487) rule, or the kernel's file and function.
    pub sources: &'static [&'static str],
    /// What it cannot be judged without.
    pub needs: &'static [Need],
    /// The kernels that it holds for.
    pub releases: Releases,
    /// Faults of kernels that it finds, which upstream has mended.
    pub known: &'static [Known],
    /// Tests on made-up tables, in this crate, in `stage1` or in `recorder`.
    pub synthetic: &'static [&'static str],
    /// Tests on a running guest, in `tests/`.
    pub live: &'static [&'static str],
}

/// Whose rule it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The architecture's: an error on any kernel.
    Architecture,
    /// Linux's: an error on a kernel that behaves as the releases do on which the rule was tried.
    Linux,
    /// No rule: worth knowing.
    Information,
}

/// What a rule cannot be judged without, beside the tables and the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each has its text
pub enum Need {
    Vmas,
    VmFlags,
    Records,
    Expectations,
    Processes,
    /// The kernel's own `struct page` of what is mapped.
    Folios,
    /// The kernel's own counters and lists of all memory.
    Counted,
    /// What the kernel's own files say, read by the agent.
    Getters,
    Layout,
    /// The guest's console, and no table.
    Console,
    /// Every store to a table and all TLB maintenance, from a recorded guest.
    Recording,
}

/// The kernels that a rule holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    /// The first.
    pub since: Option<Release>,
    /// The first that it no longer holds for.
    pub until: Option<Release>,
    /// On which it was tried, in order. On a newer one it speaks, and says that it is newer.
    pub tried: &'static [Release],
}

/// A fault of a kernel that upstream has mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Words that the finding's sentence has.
    pub mark: &'static str,
    /// The commit's subject.
    pub commit: &'static str,
    /// The releases that have it: those of stable series, and last the first of mainline.
    pub mended: &'static [Release],
}

const V6_12: Release = Release::new(6, 12, 0);
const V6_12_117: Release = Release::new(6, 12, 117);
const V6_18_15: Release = Release::new(6, 18, 15);
const V7_2_12: Release = Release::new(7, 2, 12);
const V7_3_4: Release = Release::new(7, 3, 4);

impl Releases {
    /// Every release: what the architecture says hangs on no kernel.
    const ANY: Releases = Releases {
        since: None,
        until: None,
        tried: &[V6_12_117, V6_18_15, V7_2_12, V7_3_4],
    };
    /// From the layout of the software bits on; tried on the pinned kernel and on Debian's.
    const WIDELY: Releases = Releases {
        since: Some(Release::FIRST_WITH_THIS_LAYOUT),
        until: None,
        tried: &[V6_12_117, V6_18_15, V7_2_12, V7_3_4],
    };
    /// The same, tried on kernels with our patches alone: what it needs no stock kernel has.
    const PATCHED: Releases = Releases {
        since: Some(Release::FIRST_WITH_THIS_LAYOUT),
        until: None,
        tried: &[V6_12_117, V7_3_4],
    };
}

/// All, in order.
pub const RULES: [&Rule; 43] = [
    &architecture::A1,
    &architecture::A2,
    &architecture::A3,
    &architecture::A4,
    &architecture::A5,
    &architecture::A6,
    &architecture::A7,
    &architecture::A8,
    &w1::RULE,
    &l1::RULE,
    &l2::RULE,
    &l3::RULE,
    &l4::RULE,
    &l5::RULE,
    &l6::RULE,
    &l7::RULE,
    &l8::RULE,
    &l9::RULE,
    &l10::RULE,
    &l11::RULE,
    &l12::RULE,
    &l13::RULE,
    &l14::RULE,
    &l15::RULE,
    &l16::RULE,
    &l17::RULE,
    &l18::RULE,
    &c1::RULE,
    &c2::RULE,
    &c3::RULE,
    &k1::RULE,
    &k2::RULE,
    &f1::RULE,
    &v1::RULE,
    &sequences::S1,
    &sequences::S2,
    &sequences::S3,
    &sequences::S4,
    &sequences::S5,
    &sequences::S6,
    &sequences::S7,
    &information::ELIGIBLE,
    &information::NOT_JUDGED,
];

/// What the checks tell.
pub(crate) trait Told {
    /// A rule is broken in this group, at these addresses.
    fn broken(&mut self, rule: RuleId, group: &Group<'_>, at: Range<u64>, message: String);
    /// Something could not be judged.
    fn not_judged(&mut self, reason: String);
}

/// Takes a rule that the group at hand breaks.
type Report<'a> = dyn FnMut(RuleId, String) + 'a;

/// Linux's rules on one group of a user table by itself; `hugetlb` is what is known of the VMA. Each broken
/// rule goes to `report` once.
pub(crate) fn user_group(group: &Group<'_>, hugetlb: Option<bool>, report: &mut Report<'_>) {
    l6::consistent(group, report);
    l4::check(group, hugetlb, report);
    let contiguous = group.leaves().any(|(_, pte)| pte.0 & bits::CONT != 0);
    // Where the bit is reserved there is no group to be complete: that is A6's.
    if contiguous && group.regime.contiguous_entries(group.level).is_some() {
        l1::check(group, report);
        l3::check(group, report);
        l5::equal(group, report);
    }
}

/// How many entries from this one on, at most `most`, are alike to rules that ask where in its VMA an entry is.
pub(crate) fn alike(mapped: &Mapped<'_>, numbering: Option<&Numbering>, most: usize) -> usize {
    l7::alike(mapped, numbering, most)
}

/// Linux's rules on one entry and the folio behind it. An entry that maps what is free is of no other rule.
pub(crate) fn folio(
    mapped: &Mapped<'_>,
    vma: &Vma,
    numbering: Option<&Numbering>,
    report: &mut Report<'_>,
) {
    if let Some(message) = l9::check(mapped) {
        report(RuleId::L9, message);
        return;
    }
    if let Some(message) = l13::check(mapped) {
        report(RuleId::L13, message);
    }
    if let Some(message) = l10::check(mapped, vma) {
        report(RuleId::L10, message);
        return;
    }
    if let Some(message) = l2::check(mapped) {
        report(RuleId::L2, message);
        return;
    }
    if let Some(message) = l7::check(mapped, vma, numbering) {
        report(RuleId::L7, message);
    } else if let Some(message) = l8_exclusive::check(mapped, vma) {
        report(RuleId::L8, message);
    }
}

#[cfg(test)]
mod tests;
