// SPDX-License-Identifier: GPL-2.0-only
//! L1: a contiguous group is complete.

use linux::pte::bits;

use crate::check::Check;
use crate::group::Group;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L1",
    title: "a contiguous group is complete",
    asserts:
        "No member of a contiguous group is non-valid. Valid members without the bit are A4's.",
    tier: Tier::Linux,
    sources: &["arch/arm64/mm/contpte.c, contpte_set_ptes(), __contpte_try_unfold()"],
    needs: &[Need::Vmas.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Contiguous(check)],
    synthetic: &[
        "l1_a_member_that_is_gone",
        "l1_a_member_that_is_swapped_out",
    ],
    live: &[
        "test_folded_block",
        "test_a1_group_between_two",
        "test_contiguous_pmd",
    ],
};

/// On a group that has the bit.
fn check(group: &Group<'_>) -> Option<String> {
    let members = group.words.len();
    let missing: Vec<usize> = (0..members)
        .filter(|&at| group.words[at] & bits::VALID == 0)
        .collect();
    let first = *missing.first()?;
    Some(format!(
        "{} of {members} members of a contiguous group are not valid (the first at VA 0x{:016x}): all {members} must be \
         valid and contiguous, or none contiguous",
        missing.len(),
        group.va_of(first)
    ))
}

#[cfg(test)]
mod tests {
    use crate::testing::id;
    use crate::tests::guest::*;

    #[test]
    fn l1_a_member_that_is_gone() {
        for mut guest in Guest::all() {
            guest.fold(0, written());
            guest.fold(1, written());
            guest.assert_legal();
            let lost = guest.members + 5;
            guest.change(lost, |_| 0);
            assert_eq!(guest.errors(), [id("L1")]);
            let verdict = guest.judge();
            assert_eq!(verdict.findings[0].words.len() as u64, guest.members);
        }
    }

    #[test]
    fn l1_a_member_that_is_swapped_out() {
        let mut guest = Guest::new();
        guest.fold(0, written());
        guest.change(15, |_| 2 << 6 | 0x1234 << 12);
        assert_eq!(guest.errors(), [id("L1")]);
    }
}
