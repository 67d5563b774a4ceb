//! L9 on one process: what is mapped is in use, and the process's counters count it. The half that looks across
//! processes is [`super::l9_counts`].

use linux::folio::{Rss, Type};

use super::{Need, Releases, Rule, RuleId, Tier};
use crate::folios::Mapped;

pub(super) const RULE: Rule = Rule {
    id: RuleId::L9,
    title: "every entry is counted, and every count has its entries",
    asserts: "No entry maps a page that is free, of a table or of the slab allocator, or whose folio has fewer references than \
              entries. A page's entries over all address spaces are as many as its mapcount says, and so are a folio's: of single pages, \
              of blocks, and of both together (hugetlb: of whole folios; per page not where the kernel may have \
              CONFIG_NO_PAGE_MAPCOUNT). More counts than entries are an error only where every address space could be \
              walked. A process's RSS counters (file, anonymous, shmem, swap) are its entries.",
    tier: Tier::Linux,
    sources: &[
        "mm/rmap.c, __folio_add_rmap(), __folio_remove_rmap()",
        "include/linux/mm.h, mm_counter(), folio_mapcount()",
        "mm/page_alloc.c, free_page_is_bad()",
    ],
    needs: &[Need::Vmas, Need::Folios, Need::Processes],
    releases: Releases::WIDELY,
    known: &[],
    synthetic: &[
        "l9_a_page_that_is_free",
        "l9_counters_of_a_process",
        "l9_counts_and_entries",
        "l9_a_count_without_an_entry_needs_all_processes",
    ],
    live: &[
        "test_l9_page_that_is_free",
        "test_l9_mapcount",
        "test_l9_two_processes",
        "test_l9_rss",
    ],
};

/// On one entry: the sentence where its page is none that may be mapped.
pub(super) fn check(mapped: &Mapped<'_>) -> Option<String> {
    let (page, va, pfn) = (mapped.page, mapped.va(), mapped.pfn);
    let whose = match page.kind_of_page {
        Some(Type::Buddy) => Some("free in the buddy allocator".to_owned()),
        Some(Type::Table) => Some("a page table".to_owned()),
        Some(Type::Slab) => Some("the slab allocator's".to_owned()),
        Some(Type::Other(kind)) => Some(format!("of the kernel's type 0x{kind:x}")),
        None => None,
    };
    if let Some(whose) = whose {
        return Some(format!(
            "VA 0x{va:016x} maps page frame 0x{pfn:x}, which is {whose}: no process may map it"
        ));
    }
    (page.refcount <= 0).then(|| {
        format!(
            "VA 0x{va:016x} maps page frame 0x{pfn:x}, whose folio has {} references: it is free, and nothing may map it",
            page.refcount
        )
    })
}

/// The counters of a process against what its entries map.
pub(crate) fn rss(kernel: Rss, entries: Rss, report: &mut dyn FnMut(RuleId, String)) {
    let pairs = [
        ("file", kernel.file, entries.file),
        ("anonymous", kernel.anonymous, entries.anonymous),
        ("swap", kernel.swapped, entries.swapped),
        ("shmem", kernel.shmem, entries.shmem),
    ];
    let wrong: Vec<String> = pairs
        .iter()
        .filter(|(_, kernel, entries)| kernel != entries)
        .map(|(name, kernel, entries)| format!("{name} {kernel}, entries {entries}"))
        .collect();
    if !wrong.is_empty() {
        report(
            RuleId::L9,
            format!(
                "the process's counters of mapped pages (RSS) are not its entries: {}: they must be equal",
                wrong.join("; ")
            ),
        );
    }
}
