// SPDX-License-Identifier: GPL-2.0-only
//! C6: reclaim finds a folio: it is on a list of the LRU, and marked as locked only where a locked VMA maps it.

use linux::folio::Kind;

use super::c4::is_held;
use crate::check::{Check, Unheld, UnheldSeen};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "C6",
    title: "a folio is on an LRU list, and marked as locked only where a locked VMA maps it",
    asserts: "In ranges that the checkpoint calls `unheld`, a folio of anonymous memory or of a page cache has PG_lru, or is in a batch of \
              the LRU lists: otherwise reclaim never finds it. Not asked of one that has more references than are known, which C4 tells of, \
              of hugetlb, and of broken memory. Anonymous memory on a list has PG_unevictable only together with PG_mlocked. In ranges that the checkpoint calls `unheld`, a folio that no VMA with VM_LOCKED maps does not have PG_mlocked: it could \
              never be reclaimed. Asked of folios that judged processes alone map, and not of hugetlb. One that a locked VMA maps \
              may lack the mark: it is not given to all that come from swap (6.12, do_swap_page()), nor to large ones, and reclaim \
              gives it then (folio_referenced_one()).",
    tier: Tier::Linux,
    sources: &[
        "mm/swap.c, folio_add_lru(), lru_add(); mm/vmscan.c, folio_isolate_lru(), folio_putback_lru()",
        "mm/mlock.c, mlock_pte_range(), mlock_folio(), __munlock_folio()",
        "mm/internal.h, mlock_vma_folio(), munlock_vma_folio(); mm/rmap.c, folio_referenced_one(), __folio_remove_rmap()",
    ],
    needs: &[Need::Expectations.all(), Need::Folios.all(), Need::Processes.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Unheld(on_a_list), Check::Unheld(check)],
    synthetic: &["c6_on_no_list", "c6_unevictable_and_not_locked", "c6_marked_and_not_locked", "c6_locked_and_marked_or_not", "c6_what_is_not_known"],
    live: &["test_a_lock_that_stays_is_named"],
};

fn on_a_list(seen: &UnheldSeen<'_>) -> Unheld {
    let page = seen.page;
    let anonymous = page.kind.anonymous();
    if page.hugetlb || page.poisoned || !(anonymous || page.kind == Kind::File) {
        return Unheld::Right;
    }
    let is_apart = anonymous && page.unevictable == Some(true) && page.mlocked == Some(false);
    if is_apart && page.on_lru == Some(true) {
        return Unheld::Wrong(format!(
            "the folio of order {} at page frame 0x{:x}, mapped at VA 0x{:016x}, has PG_unevictable, and no PG_mlocked: it must have both or neither",
            page.order, page.head, seen.va
        ));
    }
    if page.on_lru != Some(false) {
        return Unheld::Right;
    }
    match seen.folios.batched(&page) {
        Ok(0) if !is_held(seen) => Unheld::Wrong(format!(
            "the folio of order {} at page frame 0x{:x}, mapped at VA 0x{:016x}, is on no list of the LRU: it has no PG_lru, and no batch has it",
            page.order, page.head, seen.va
        )),
        Ok(_) => Unheld::Right,
        Err(why) => Unheld::NotJudged(format!(
            "the batches of the LRU lists could not be read: {}",
            why.why
        )),
    }
}

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
    use linux::folio::Kind;
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
    fn c6_on_no_list() {
        let mut guest = unheld();
        let (first, members) = (guest.first(), guest.members);
        for (head, pages) in [(first, members), (first + members + 3, 1)] {
            let change = |guest: &mut Guest, on_lru, more: i64| {
                for pfn in head..head + pages {
                    guest.kernel().change(pfn, |page| {
                        page.on_lru = on_lru;
                        page.refcount += more;
                    });
                }
            };
            change(&mut guest, Some(false), 0);
            assert_eq!(errors(&guest.counted(None)), [id("C6")], "{head:x}");
            // In a batch, which has a reference.
            guest.kernel().batched = Some([(head, 1)].into());
            change(&mut guest, Some(false), 1);
            assert!(errors(&guest.counted(None)).is_empty());
            // Isolated: the reference of the task that did it is not accounted for.
            guest.kernel().batched = Some([].into());
            assert_eq!(errors(&guest.counted(None)), [id("C4")]);
            guest.kernel().batched = None;
            let said = guest.counted(None).not_judged;
            assert!(said.iter().any(|it| it.reason.contains("C6")), "{said:?}");
            guest.kernel().batched = Some([].into());
            // Of a kernel that does not say it nothing is judged.
            change(&mut guest, None, -1);
            assert!(errors(&guest.counted(None)).is_empty());
            change(&mut guest, Some(true), 0);
        }
        let mut guest = good(Guest::new());
        guest
            .kernel()
            .change(first + members + 3, |page| page.on_lru = Some(false));
        assert!(errors(&guest.counted(None)).is_empty());
    }

    #[test]
    fn c6_unevictable_and_not_locked() {
        let mut guest = unheld();
        let page = guest.first() + guest.members + 3;
        for (unevictable, mlocked, is_wrong) in [
            (Some(true), Some(false), true),
            (None, Some(false), false),
            (Some(true), None, false),
        ] {
            guest.kernel().change(page, |page| {
                (page.unevictable, page.mlocked) = (unevictable, mlocked);
            });
            let expected = if is_wrong { vec![id("C6")] } else { vec![] };
            assert_eq!(errors(&guest.counted(None)), expected);
        }
        // Of shmem all pages of a file may be (`SHM_LOCK`).
        guest.kernel().change(page, |page| {
            (page.unevictable, page.mlocked) = (Some(true), Some(false));
            (page.kind, page.refcount) = (Kind::File, 2);
        });
        assert!(!errors(&guest.counted(None)).contains(&id("C6")));
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
