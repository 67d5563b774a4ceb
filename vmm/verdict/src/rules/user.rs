//! Linux's rules on user memory, in their order: those on a group by itself, and those on an entry and its folio.

use linux::folio::Numbering;
use linux::pte::bits;
use linux::vma::Vma;
use stage1::{Level, Regime};

use super::rule::Report;
use super::{l1, l10, l13, l2, l3, l4, l5, l6, l7, l8_exclusive, l9};
use crate::group::Group;
use crate::mapped::Mapped;
use crate::RuleId;

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

/// Whether a group of a user table breaks one of Linux's rules by itself. `words` are its members, of which the first is at
/// `index` of the table at `table` and maps `va`; `hugetlb` is what is known of the VMA.
pub fn breaks_by_itself(
    (regime, level): (&Regime, Level),
    va: u64,
    (table, index): (u64, usize),
    words: &[u64],
    hugetlb: Option<bool>,
) -> bool {
    let group = Group::new((regime, level), va, (table, index), words);
    let mut broken = false;
    user_group(&group, hugetlb, &mut |_, _| broken = true);
    broken
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
