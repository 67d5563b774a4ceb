// SPDX-License-Identifier: GPL-2.0-only
//! C4: a folio that nothing else holds has the references of its entries and caches, and no more.

use linux::folio::Kind;

use crate::check::{Check, Unheld, UnheldSeen};
use crate::finding::Finding;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "C4",
    title: "a folio has no reference too many",
    asserts: "In ranges that the checkpoint calls `unheld`, a folio has as many references as entries of all address spaces map it, \
              one for each of its pages in the page cache and in the swap cache, \
              and one for each batch of the LRU lists that it is in. One more is a leak: the folio is never freed. \
              Fewer are L9's. Of files that are not shmem's one more may be their file system's. \
              Not judged where not every address space or no batch could be read, nor of hugetlb: \
              of its pages, when the processes of a batch of the crossing have ended, all of the pool are free again, and none is reserved or surplus.",
    tier: Tier::Linux,
    sources: &[
        "include/linux/mm.h, folio_expected_ref_count(); mm/migrate.c, folio_migrate_mapping()",
        "mm/swap.c, struct cpu_fbatches; mm/mlock.c, mlock_fbatch; mm/truncate.c, mapping_try_invalidate()",
        "mm/hugetlb.c, free_huge_folio(), hugetlb_unreserve_pages(), hugetlb_vm_op_close()",
    ],
    needs: &[Need::Expectations.all(), Need::Folios.all(), Need::Processes.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Unheld(check), Check::Elsewhere("the crossing (hugetlb's pool)")],
    synthetic: &["c4_a_reference_too_many", "c4_references_of_caches_and_of_others", "c4_references_of_batches", "c4_a_page_that_cannot_be_read", "c4_a_pool_that_is_not_whole"],
    live: &["test_a_leaked_reference_is_named"],
};

/// That of all pages of hugetlb's pool not all are free, or some are reserved, and all processes that used it are gone.
#[must_use]
pub fn pages_left(all: u64, free: u64, reserved: u64, surplus: u64) -> Finding {
    Finding::new(
        &RULE,
        format!(
            "expected all {all} pages of hugetlb's pool to be free, none reserved and none surplus, as all processes that used it \
             have ended, and found {free} free, {reserved} reserved and {surplus} surplus"
        ),
    )
}

/// References to a folio that are known.
struct Accounted {
    entries: i64,
    cached: i64,
    private: i64,
}

fn accounted(seen: &UnheldSeen<'_>) -> Accounted {
    let page = seen.page;
    let in_page_cache = page.kind == Kind::File;
    let folio = page.head..page.head + page.pages();
    let entries = seen.entries.pages.within(&folio) + seen.entries.block_maps(&folio);
    let is_cached = in_page_cache || page.swapcache;
    Accounted {
        entries: entries as i64,
        cached: if is_cached { page.pages() as i64 } else { 0 },
        // Of other files the file system may have data of its own (`PG_private`).
        private: i64::from(in_page_cache && !page.swapbacked),
    }
}

/// Returns whether more have a reference to the folio than are known: who isolates it from its list has one.
pub(super) fn is_held(seen: &UnheldSeen<'_>) -> bool {
    let Accounted {
        entries,
        cached,
        private,
    } = accounted(seen);
    seen.page.refcount > entries + cached + private
}

fn check(seen: &UnheldSeen<'_>) -> Unheld {
    let page = seen.page;
    let in_page_cache = page.kind == Kind::File;
    if page.hugetlb || !(page.kind.anonymous() || in_page_cache) {
        return Unheld::Right;
    }
    let Accounted {
        entries,
        cached,
        private,
    } = accounted(seen);
    let known = entries + cached + private;
    if page.refcount <= known {
        return Unheld::Right;
    }
    let batched = match seen.folios.batched(&page) {
        Ok(batched) => batched,
        Err(why) => {
            return Unheld::NotJudged(format!(
                "the batches of the LRU lists could not be read: {}",
                why.why
            ))
        }
    };
    let known = known + batched as i64;
    if page.refcount <= known {
        return Unheld::Right;
    }
    if let Some(why) = seen.incomplete {
        return Unheld::NotJudged(why.into());
    }
    Unheld::Wrong(format!(
        "the folio of order {} at page frame 0x{:x}, mapped at VA 0x{:016x}, has {} references, and {known} are accounted for: \
         {entries} of entries in all address spaces, {cached} of the {} cache, {batched} of batches of the LRU lists",
        page.order,
        page.head,
        seen.va,
        page.refcount,
        if page.swapcache { "swap" } else { "page" },
    ))
}

#[cfg(test)]
mod tests {
    use crate::testing::folios::{errors, good, unheld};
    use crate::testing::id;
    use crate::tests::guest::*;
    use linux::folio::Kind;

    #[test]
    fn c4_a_pool_that_is_not_whole() {
        let finding = super::pages_left(20, 19, 1, 0);
        assert_eq!(finding.rule, id("C4"));
        assert!(finding
            .message
            .contains("19 free, 1 reserved and 0 surplus"));
    }

    #[test]
    fn c4_a_reference_too_many() {
        let mut guest = unheld();
        assert!(errors(&guest.counted(None)).is_empty());
        let first = guest.first();
        let members = guest.members;
        // Of a large folio, and of a single page.
        for head in [first, first + members + 3] {
            let pages = if head == first { members } else { 1 };
            for pfn in head..head + pages {
                guest.kernel().change(pfn, |page| page.refcount += 1);
            }
            let verdict = guest.counted(None);
            assert_eq!(errors(&verdict), [id("C4")], "{head:x}");
            let open = guest.counted(Some("a child is in no list yet"));
            assert!(errors(&open).is_empty());
            assert!(open.not_judged.iter().any(|it| it.reason.contains("C4")));
            for pfn in head..head + pages {
                guest.kernel().change(pfn, |page| page.refcount -= 1);
            }
        }
        // In other ranges anything may hold a folio.
        let mut guest = good(Guest::new());
        guest.kernel().change(first, |page| page.refcount += 1);
        assert!(errors(&guest.counted(None)).is_empty());
    }

    #[test]
    fn c4_references_of_batches() {
        let mut guest = unheld();
        let page = guest.first() + guest.members + 3;
        guest.kernel().change(page, |page| page.refcount += 2);
        guest.kernel().batched = Some([(page, 2), (page + 1, 7)].into());
        assert!(errors(&guest.counted(None)).is_empty());
        guest.kernel().batched = Some([(page, 1)].into());
        assert_eq!(errors(&guest.counted(None)), [id("C4")]);
        guest.kernel().batched = None;
        let verdict = guest.counted(None);
        assert!(errors(&verdict).is_empty());
        assert!(verdict.not_judged.iter().any(|it| it.reason.contains("C4")));
    }

    #[test]
    fn c4_a_page_that_cannot_be_read() {
        let mut guest = unheld();
        let page = guest.first() + guest.members + 3;
        guest.kernel().pages.remove(&page);
        let said = guest.counted(None).not_judged;
        assert!(
            said.iter()
                .any(|it| it.reason.starts_with("C4 was not judged for 1 folios: ")),
            "{said:?}"
        );
    }

    #[test]
    fn c4_references_of_caches_and_of_others() {
        let mut guest = unheld();
        let (first, members) = (guest.first(), guest.members);
        // In the swap cache each page has one.
        for pfn in first..first + members {
            let change = |page: &mut linux::folio::Page| {
                page.swapcache = true;
                page.refcount += members as i64;
            };
            guest.kernel().change(pfn, change);
        }
        assert!(errors(&guest.counted(None)).is_empty());
        // What has no mapping is not known.
        let page = first + members;
        let change = |page: &mut linux::folio::Page| {
            (page.kind, page.mapping, page.refcount) = (Kind::Unowned, 0, 9);
        };
        guest.kernel().change(page, change);
        assert!(!errors(&guest.counted(None)).contains(&id("C4")));
    }
}
