// SPDX-License-Identifier: GPL-2.0-only
//! C5: a folio of shmem keeps what was written to it, and what is mapped was filled.

use linux::folio::{Kind, Page};

use crate::check::{Check, Unheld, UnheldSeen};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "C5",
    title: "a folio that was written is dirty",
    asserts: "In ranges that the checkpoint calls `unheld`: a mapped folio is uptodate. A folio of shmem that is not dirty, and that no \
              dirty entry of any address space maps, holds zeroes: with something else in it, it was written, and reclaim \
              would drop it with what was written, as there is no copy below. A clean folio of a file that is written back to a device is mapped \
              by no writable entry: its first store has to be told of (`page_mkwrite()`). Folios that are locked, under writeback or in the swap \
              cache are left alone.",
    tier: Tier::Linux,
    sources: &[
        "mm/shmem.c, shmem_write_end(), shmem_swapin_folio(); mm/memory.c, fault_dirty_shared_page(), zap_present_folio_ptes()",
        "mm/page-writeback.c, folio_clear_dirty_for_io(); mm/memory.c, do_wp_page(), wp_page_shared(); mm/mprotect.c, can_change_pte_writable()",
        "mm/vmscan.c, pageout(), __remove_mapping(); mm/migrate.c, __folio_migrate_mapping(); mm/huge_memory.c, __split_huge_page_tail()",
    ],
    needs: &[Need::Expectations.all(), Need::Folios.all(), Need::Processes.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Unheld(check)],
    synthetic: &["c5_a_clean_folio_with_words_in_it", "c5_a_clean_folio_that_is_written_back_is_not_writable", "c5_a_folio_that_was_never_filled"],
    live: &["test_lost_dirty_state_is_named"],
};

/// Bits of `/proc/kpageflags`: [`linux::getters::COPIED`].
const LOCKED: u64 = 1 << 0;
const UPTODATE: u64 = 1 << 3;
const DIRTY: u64 = 1 << 4;
const WRITEBACK: u64 = 1 << 8;

fn check(seen: &UnheldSeen<'_>) -> Unheld {
    let page = seen.page;
    if page.hugetlb || page.poisoned || !(page.kind.anonymous() || page.kind == Kind::File) {
        return Unheld::Right;
    }
    let (known, set) = seen.folios.copied(&page);
    let what = || {
        format!(
            "the folio of order {} at page frame 0x{:x}, mapped at VA 0x{:016x},",
            page.order, page.head, seen.va
        )
    };
    if known & (UPTODATE | LOCKED) == UPTODATE | LOCKED && set & (UPTODATE | LOCKED) == 0 {
        return Unheld::Wrong(format!("{} is not uptodate: nothing has filled it", what()));
    }
    if page.swapcache || set & (LOCKED | DIRTY | WRITEBACK) != 0 {
        return Unheld::Right;
    }
    let is_stored = || page.kind == Kind::File && seen.folios.written_back(&page) == Some(true);
    if !page.shmem() && !is_stored() {
        return Unheld::Right;
    }
    if known & (LOCKED | DIRTY | WRITEBACK) != LOCKED | DIRTY | WRITEBACK {
        let said = "enum pageflags has no PG_locked, PG_dirty or PG_writeback";
        return Unheld::NotJudged(said.into());
    }
    let folio = page.head..page.head + page.pages();
    if !page.shmem() {
        return match ((seen.has_writable_entry)(&folio), seen.incomplete) {
            (false, None) => Unheld::Right,
            (false, Some(why)) => Unheld::NotJudged(why.into()),
            (true, _) => Unheld::Wrong(format!(
                "{} is in the page cache of a file that is written back, and clean, and an entry that maps it is writable: a \
                 store to it would not be told of, and never be written",
                what()
            )),
        };
    }
    let (pfn, word, at) = match first_word(seen, page) {
        Some(Ok(first)) => first,
        None => return Unheld::Right,
        Some(Err(_)) if (seen.has_dirty_entry)(&folio) => return Unheld::Right,
        Some(Err(pfn)) => {
            return Unheld::NotJudged(format!("page frame 0x{pfn:x} was not saved"));
        }
    };
    if (seen.has_dirty_entry)(&folio) {
        return Unheld::Right;
    }
    if let Some(why) = seen.incomplete {
        return Unheld::NotJudged(why.into());
    }
    Unheld::Wrong(format!(
        "{} is not dirty, no entry that maps it is, and page frame 0x{pfn:x} has {word:#018x} at byte 0x{at:x}: reclaim would \
         drop what was written",
        what()
    ))
}

/// The first word of a folio that is not zero: its page frame, itself, its place in bytes; or a page frame that was not
/// saved.
fn first_word(seen: &UnheldSeen<'_>, page: Page) -> Option<Result<(u64, u64, usize), u64>> {
    (page.head..page.head + page.pages()).find_map(|pfn| {
        let Some(words) = (seen.words)(pfn) else {
            return Some(Err(pfn));
        };
        let at = words.iter().position(|word| *word != 0)?;
        Some(Ok((pfn, words[at], 8 * at)))
    })
}

#[cfg(test)]
mod tests {
    use super::{DIRTY, LOCKED, UPTODATE, WRITEBACK};
    use crate::testing::folios::{errors, good};
    use crate::testing::id;
    use crate::tests::guest::*;
    use crate::Expected;
    use linux::folio::{Kind, Page};

    /// A folio of shmem in the second block, mapped by a clean entry, with a word in it.
    fn shmem() -> Guest {
        let mut guest = good(Guest::new());
        let (pfn, at) = (guest.first() + guest.members, guest.members);
        guest.kernel().copies = LOCKED | UPTODATE | DIRTY | WRITEBACK;
        let all: Vec<u64> = guest.kernel().pages.keys().copied().collect();
        for page in all {
            guest
                .kernel()
                .change(page, |page| page.folio_flags |= UPTODATE);
        }
        guest.kernel().change(pfn, |page: &mut Page| {
            (page.kind, page.exclusive, page.refcount) = (Kind::File, false, 2);
        });
        guest.change(at, |word| word & !(DIRTY_ENTRY | WRITE) | RDONLY);
        guest.page_words(pfn, &[0, 0, 0x1234]);
        guest.expect(Expected::Unheld, VA, VA + 2 * guest.block);
        guest
    }

    const DIRTY_ENTRY: u64 = crate::tests::guest::DIRTY;

    fn has_c5(guest: &Guest) -> bool {
        errors(&guest.counted(None)).contains(&id("C5"))
    }

    #[test]
    fn c5_a_clean_folio_with_words_in_it() {
        let mut guest = shmem();
        let (pfn, at) = (guest.first() + guest.members, guest.members);
        assert!(has_c5(&guest));
        let open = guest.counted(Some("a child is in no list yet"));
        assert!(open.not_judged.iter().any(|it| it.reason.contains("C5")));
        for flag in [LOCKED, DIRTY, WRITEBACK] {
            guest.kernel().change(pfn, |page| page.folio_flags |= flag);
            assert!(!has_c5(&guest), "{flag:x}");
            guest.kernel().change(pfn, |page| page.folio_flags &= !flag);
        }
        // A page that was not saved.
        guest.tables.memory_mut().forget(pfn * guest.page);
        let unsaved = guest.counted(None);
        assert!(unsaved.not_judged.iter().any(|it| it.reason.contains("C5")));
        guest.page_words(pfn, &[0, 0, 0x1234]);
        // A dirty entry carries the state; zeroes were never written.
        guest.change(at, |word| word | DIRTY_ENTRY);
        assert!(!has_c5(&guest));
        guest.change(at, |word| word & !DIRTY_ENTRY);
        guest.page_words(pfn, &[0, 0, 0]);
        assert!(!has_c5(&guest));
    }

    #[test]
    fn c5_a_clean_folio_that_is_written_back_is_not_writable() {
        let mut guest = shmem();
        let (pfn, at) = (guest.first() + guest.members, guest.members);
        guest.kernel().change(pfn, |page| page.swapbacked = false);
        for (writable, written_back, expected) in [
            (false, Some(true), false),
            (true, Some(true), true),
            (true, Some(false), false),
            (true, None, false),
        ] {
            guest.change(at, |word| match writable {
                true => word | WRITE,
                false => word & !WRITE,
            });
            guest.kernel().written_back = written_back;
            assert_eq!(has_c5(&guest), expected, "{writable} {written_back:?}");
        }
        guest.kernel().written_back = Some(true);
        // One that was not seen may be writable.
        guest.change(at, |word| word & !WRITE);
        let open = guest.counted(Some("a child is in no list yet"));
        assert!(open.not_judged.iter().any(|it| it.reason.contains("C5")));
        guest.change(at, |word| word | WRITE);
        for flag in [LOCKED, DIRTY, WRITEBACK] {
            guest.kernel().change(pfn, |page| page.folio_flags |= flag);
            assert!(!has_c5(&guest), "{flag:x}");
            guest.kernel().change(pfn, |page| page.folio_flags &= !flag);
        }
    }

    #[test]
    fn c5_a_folio_that_was_never_filled() {
        let mut guest = shmem();
        let (first, pfn) = (guest.first(), guest.first() + guest.members);
        guest.kernel().change(pfn, |page| page.folio_flags |= DIRTY);
        assert!(!has_c5(&guest));
        guest
            .kernel()
            .change(pfn + 1, |page| page.folio_flags &= !UPTODATE);
        assert!(has_c5(&guest));
        guest
            .kernel()
            .change(pfn + 1, |page| page.folio_flags |= LOCKED);
        assert!(!has_c5(&guest));
        assert!(guest.kernel().pages.contains_key(&first));
    }
}
