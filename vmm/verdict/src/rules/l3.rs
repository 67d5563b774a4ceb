//! L3: what has no folio is never contiguous.

use super::rule::{Need, Releases, Report, Rule, Tier};
use crate::group::Group;
use crate::RuleId;

pub(super) const RULE: Rule = Rule {
    id: RuleId::L3,
    title: "a contiguous entry is not special",
    asserts: "No contiguous entry has PTE_SPECIAL (the zero page, page frames without a folio). What lies behind \
              the page frame is not looked at.",
    tier: Tier::Linux,
    sources: &["arch/arm64/include/asm/pgtable.h, contpte_try_fold(): never for pte_special()"],
    needs: &[Need::Vmas],
    releases: Releases::WIDELY,
    known: &[],
    synthetic: &["l3_a_special_member"],
    live: &["test_folded_block"],
};

/// On a group that has the bit.
pub(super) fn check(group: &Group<'_>, report: &mut Report<'_>) {
    let special = group
        .leaves()
        .find(|(_, pte)| pte.valid_cont() && pte.special());
    if let Some((at, _)) = special {
        report(
            RuleId::L3,
            format!(
                "the contiguous entry for VA 0x{:016x} is special: the zero page and page frames \
                 without a folio must never be contiguous",
                group.va_of(at)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::guest::*;
    use crate::RuleId;

    #[test]
    fn l3_a_special_member() {
        for mut guest in Guest::all() {
            guest.fold(0, read_only());
            guest.assert_legal();
            for at in 0..guest.members {
                guest.change(at, |word| word | SPECIAL);
            }
            assert_eq!(guest.errors(), [RuleId::L3]);
        }
    }
}
