// SPDX-License-Identifier: GPL-2.0-only
//! L3: what has no folio is never contiguous.

use crate::check::Check;
use crate::group::Group;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L3",
    title: "a contiguous entry is not special",
    asserts: "No contiguous entry has PTE_SPECIAL (the zero page, page frames without a folio). What lies behind \
              the page frame is not looked at.",
    tier: Tier::Linux,
    sources: &["arch/arm64/include/asm/pgtable.h, contpte_try_fold(): never for pte_special()"],
    needs: &[Need::Vmas.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Contiguous(check)],
    synthetic: &["l3_a_special_member"],
    live: &["test_folded_block"],
};

/// On a group that has the bit.
fn check(group: &Group<'_>) -> Option<String> {
    let mut leaves = group.leaves();
    let (at, _) = leaves.find(|(_, pte)| pte.valid_cont() && pte.special())?;
    Some(format!(
        "the contiguous entry for VA 0x{:016x} is special: the zero page and page frames without a folio must never be \
         contiguous",
        group.va_of(at)
    ))
}

#[cfg(test)]
mod tests {
    use crate::testing::id;
    use crate::tests::guest::*;

    #[test]
    fn l3_a_special_member() {
        for mut guest in Guest::all() {
            guest.fold(0, read_only());
            guest.assert_legal();
            for at in 0..guest.members {
                guest.change(at, |word| word | SPECIAL);
            }
            assert_eq!(guest.errors(), [id("L3")]);
        }
    }
}
