// SPDX-License-Identifier: GPL-2.0-only
//! C1: what must be contiguous.

use std::ops::Range;

use stage1::Level;

use crate::check::{Check, FreshFolio, Report, Told};
use crate::group::{group_at, Group};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};
use crate::Expected;

pub(crate) static RULE: Rule = Rule {
    name: "C1",
    title: "the block must be contiguous",
    asserts: "Right after the step every aligned block of the ranges that the checkpoint names carries the bit \
              (`contiguous`). Every block that could carry it does in the ranges of `contiguous-if-possible`: its pages are of one \
              folio and alike but for AF and dirty state, and what the step did keeps the bit, or sets it again, in all kernels \
              that Folioscope was tried on. \
              So does every block of a folio of at least its order that was just faulted in \
              (`freshly-faulted`, with an order record).",
    tier: Tier::Linux,
    sources: &["arch/arm64/mm/contpte.c, contpte_set_ptes(), __contpte_try_fold()"],
    needs: &[Need::Expectations.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Expected(Expected::Contiguous, |group, at, report| check(group, at, "the checkpoint says so", report)),
        Check::Open(open), Check::Fresh(fresh)],
    synthetic: &[
        "c1_a_fresh_folio_of_the_order_must_be_folded",
        "c1_and_c2_where_the_checkpoint_says_so",
        "c1_a_block_that_could_be_folded_must_where_that_is_stated",
    ],
    live: &["test_c1_must_be_folded"],
};

/// On one block; `because` says why it must.
fn check(group: &Group<'_>, at: Range<u64>, because: &str, report: &mut Report<'_>) {
    let folded = group.leaves().filter(|(_, pte)| pte.valid_cont()).count();
    if folded == group.words.len() {
        return;
    }
    let what = match group.level {
        Level::L3 => format!("{folded} of {} entries have it", group.words.len()),
        level => format!("it is mapped at level {level}, {folded} entries of the group have it"),
    };
    let message = format!("the whole block must have the Contiguous bit ({because}): {what}");
    report(at, message);
}

/// On blocks that could carry the bit, where the checkpoint says that all such do.
fn open(blocks: u64) -> String {
    let blocks = match blocks {
        1 => "the block".to_string(),
        many => format!("{many} blocks"),
    };
    format!("{blocks} could have the Contiguous bit, and must: all pages are of one folio and alike, and the step before keeps the bit")
}

/// On the blocks of a folio that was just faulted in.
fn fresh(folio: &FreshFolio<'_>) -> Told {
    let mut told = Told::default();
    let FreshFolio {
        start, size, block, ..
    } = *folio;
    if size < block || folio.input.contpte == Some(false) {
        return told;
    }
    let because = format!(
        "order {} was just faulted in",
        folio.record.chosen.unwrap_or(0)
    );
    for va in (start..start + size).step_by(block as usize) {
        match group_at(folio.memory, folio.input.regime, va) {
            // A folio of a PMD's size has a block of its own.
            Ok(group) if group.level != Level::L3 => {}
            Ok(group) => check(&group, va..va + block, &because, &mut |range, message| {
                told.broken.push((va, range, message));
            }),
            Err(why) => told
                .not_judged
                .push(format!("folio at VA 0x{va:016x}: {why}")),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use crate::testing::folios::good;
    use crate::testing::id;
    use crate::tests::guest::*;
    use crate::Expected;

    #[test]
    fn c1_a_fresh_folio_of_the_order_must_be_folded() {
        for mut guest in Guest::all() {
            guest.spread(0, written());
            let order = guest.members.trailing_zeros() as u8;
            guest.record(VA + guest.page, order);
            guest.assert_legal();
            guest.expect(Expected::FreshlyFaulted, VA, VA + guest.block);
            assert_eq!(guest.errors(), [id("C1")]);
            guest.fold(0, written());
            guest.assert_legal();
        }
    }

    #[test]
    fn c1_a_block_that_could_be_folded_must_where_that_is_stated() {
        let mut guest = good(Guest::new());
        let (first, number) = (guest.first(), VA / guest.page);
        let (members, block) = (guest.members, guest.block);
        // Two folios of a block's size beside the two blocks of before, one of them of single pages.
        for at in [2, 3] {
            guest.spread(at, written());
            let head = first + at * members;
            guest
                .kernel()
                .folio(head, members.ilog2() as u8, number + at * members);
        }
        guest.kernel().rss = None;
        assert!(!guest.errors().contains(&id("C1")));
        guest.expect(
            Expected::ContiguousIfPossible,
            VA,
            VA + 3 * block + block / 2,
        );
        assert_eq!(guest.errors(), [id("C1")]);
        let verdict = guest.judge();
        let states = verdict.vmas[0].rows.iter().map(|row| row.state);
        use crate::BlockState::{Broken, Eligible, Folded, NotEligible};
        assert_eq!(
            states.collect::<Vec<_>>(),
            [Folded, NotEligible, Broken, Eligible]
        );
        // Without folios pages may be consecutive by chance.
        guest.kernel = None;
        let verdict = guest.judge();
        assert_eq!(verdict.errors(), 0);
        assert!(verdict.not_judged.iter().any(|it| it
            .reason
            .starts_with("what C1 says of blocks that could be contiguous: ")));
    }

    #[test]
    fn c1_and_c2_where_the_checkpoint_says_so() {
        let mut guest = Guest::new();
        guest.fold(0, written());
        guest.spread(1, written());
        guest.expect(Expected::Contiguous, VA, VA + 0x1_0000);
        guest.expect(Expected::NotContiguous, VA + 0x1_0000, VA + 0x4_0000);
        guest.assert_legal();
        guest.expectations.clear();
        guest.expect(Expected::Contiguous, VA, VA + 0x2_0000);
        guest.expect(Expected::NotContiguous, VA + 0x5000, VA + 0x6000);
        assert_eq!(guest.errors(), [id("C2"), id("C1")]);
        // Nothing mapped at all is not folded either, and nothing but that range is marked.
        guest.expectations.clear();
        guest.expect(Expected::Contiguous, VA + 0x3_0000, VA + 0x4_0000);
        assert_eq!(guest.errors(), [id("C1")]);
        let mut guest = guest.maps("40000000-60000000 rw-p 00000000 00:00 0 ");
        guest.expectations.clear();
        guest.expect(Expected::Contiguous, VA + 0x1003_0000, VA + 0x1005_0000);
        let verdict = guest.judge();
        assert_eq!(verdict.errors(), 1);
        let finding = verdict
            .findings
            .iter()
            .find(|f| f.rule == id("C1"))
            .unwrap();
        assert_eq!(
            (finding.va.0, finding.end.0),
            (VA + 0x1003_0000, VA + 0x1005_0000)
        );
        assert_eq!(verdict.blocks()[&crate::BlockState::Broken], 2);
        // A range that makes no sense ends, too.
        guest.expectations.clear();
        guest.expect(Expected::Contiguous, 0, u64::MAX);
        guest.expect(Expected::NotContiguous, 0, u64::MAX);
        guest.expect(Expected::Written, 0, u64::MAX);
        assert!(guest.judge().errors() > 0);
    }
}
