// SPDX-License-Identifier: GPL-2.0-only
//! C6: a folio is marked as locked only where a locked VMA maps it.

use crate::check::{Check, Unheld, UnheldSeen};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "C6",
    title: "a folio is marked as locked only where a locked VMA maps it",
    asserts: "In ranges that the checkpoint calls `unheld`, a folio that no VMA with VM_LOCKED maps does not have PG_mlocked: it could \
              never be reclaimed. Asked of folios that judged processes alone map, and not of hugetlb. One that a locked VMA maps \
              may lack the mark: it is not given to all that come from swap (6.12, do_swap_page()), nor to large ones, and reclaim \
              gives it then (folio_referenced_one()).",
    tier: Tier::Linux,
    sources: &[
        "mm/mlock.c, mlock_pte_range(), mlock_folio(), __munlock_folio()",
        "mm/internal.h, mlock_vma_folio(), munlock_vma_folio(); mm/rmap.c, folio_referenced_one(), __folio_remove_rmap()",
    ],
    needs: &[Need::Expectations.all(), Need::Folios.all(), Need::Processes.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Unheld(check)],
    synthetic: &["c6_marked_and_not_locked", "c6_locked_and_marked_or_not", "c6_what_is_not_known"],
    live: &["test_a_lock_that_stays_is_named"],
};

fn check(seen: &UnheldSeen<'_>) -> Unheld {
    let page = seen.page;
    if page.hugetlb || page.mlocked != Some(true) {
        return Unheld::Right;
    }
    let Some(by_lock) = seen.by_lock else {
        return Unheld::NotJudged(
            "the VMAs of a judged process do not say whether they are locked".into(),
        );
    };
    let folio = page.head..page.head + page.pages();
    let (locked, open) = (by_lock.locked.within(&folio), by_lock.open.within(&folio));
    let all = seen.entries.pages.within(&folio) + seen.entries.blocks.within(&folio);
    if locked > 0 || open != all {
        return Unheld::Right;
    }
    match seen.incomplete {
        None => Unheld::Wrong(format!(
            "the folio of order {} at page frame 0x{:x}, mapped at VA 0x{:016x}, has PG_mlocked, and no VMA that maps it is locked",
            page.order, page.head, seen.va
        )),
        Some(why) => Unheld::NotJudged(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::folios::{errors, good, unheld};
    use crate::testing::id;
    use crate::tests::guest::*;
    use linux::vma::parse_smaps;

    /// The first block is a folio, the second of single pages; `locked` says whether the VMA is.
    fn in_vma(locked: bool) -> Guest {
        let mut guest = unheld();
        let end = VA + 4 * guest.block;
        let flags = if locked {
            "rd wr mr mw me lo ac"
        } else {
            "rd wr mr mw me ac"
        };
        let smaps = format!("{VA:x}-{end:x} rw-p 00000000 00:00 0 \nVmFlags: {flags} \n");
        guest.vmas = parse_smaps(&smaps).unwrap();
        guest
    }

    /// Marks a folio, or takes its mark away.
    fn mark(guest: &mut Guest, head: u64, mlocked: bool) {
        let pages = if head == guest.first() {
            guest.members
        } else {
            1
        };
        for pfn in head..head + pages {
            guest
                .kernel()
                .change(pfn, |page| page.mlocked = Some(mlocked));
        }
    }

    #[test]
    fn c6_marked_and_not_locked() {
        let mut guest = in_vma(false);
        let (first, members) = (guest.first(), guest.members);
        assert!(errors(&guest.counted(None)).is_empty());
        for head in [first, first + members + 3] {
            mark(&mut guest, head, true);
            assert_eq!(errors(&guest.counted(None)), [id("C6")], "{head:x}");
            let open = guest.counted(Some("a child is in no list yet"));
            assert!(errors(&open).is_empty());
            assert!(open.not_judged.iter().any(|it| it.reason.contains("C6")));
            mark(&mut guest, head, false);
        }
        // In other ranges a batch may not be drained.
        let mut guest = good(Guest::new());
        mark(&mut guest, first, true);
        assert!(errors(&guest.counted(None)).is_empty());
    }

    #[test]
    fn c6_locked_and_marked_or_not() {
        let mut guest = in_vma(true);
        let (first, members) = (guest.first(), guest.members);
        assert!(errors(&guest.counted(None)).is_empty());
        for head in std::iter::once(first).chain(first + members..first + 2 * members) {
            mark(&mut guest, head, true);
        }
        assert!(errors(&guest.counted(None)).is_empty());
    }

    #[test]
    fn c6_what_is_not_known() {
        let mut guest = in_vma(false);
        let first = guest.first();
        for vma in &mut guest.vmas {
            vma.flags = None;
        }
        mark(&mut guest, first, true);
        let said = guest.counted(None);
        assert!(errors(&said).is_empty());
        assert!(said.not_judged.iter().any(|it| it.reason.contains("C6")));
        // A kernel without the flag has none to judge.
        let mut guest = in_vma(false);
        guest.kernel().change(first, |page| page.mlocked = None);
        assert!(errors(&guest.counted(None)).is_empty());
    }
}
