//! L9 on one process: what is mapped is in use, and the process's counters count it. The half that looks across
//! processes is [`super::l9_counts`].

use linux::folio::{Rss, Type};

use super::rule::{Need, Releases, Rule, Tier};
use crate::mapped::Mapped;
use crate::page_tables::Tables;
use crate::RuleId;

pub(super) const RULE: Rule = Rule {
    id: RuleId::L9,
    title: "every entry is counted, and every count has its entries",
    asserts: "No entry maps a page that is free (in the buddy allocator or on a CPU's list), of a table or of the slab allocator, or whose folio has fewer references than \
              entries. A page's entries over all address spaces are as many as its mapcount says, and so are a folio's: of single pages, \
              of blocks, and of both together (hugetlb: of whole folios; per page of large ones, from 6.15 on, where \
              the pages show that they count: not with CONFIG_NO_PAGE_MAPCOUNT). More counts than entries are an error only where every address space could be \
              walked, nobody holds the lock of a table, and no process can be in the middle of fork() or is seen to take an address \
              space down. No folio that counts mappings has none at all, whoever had it last: all pages are looked through, and one \
              that may be mapped, by its reverse mapping, in an address space that no task has, or whose locks are held, is not \
              judged. A process's RSS counters (file, anonymous, shmem, swap) are its entries, and its pgtables_bytes are its tables: \
              those of levels 1 to 3 without the first one, and one more for each block of anonymous memory (hugetlb's and DAX's \
              have none). Its hugetlb_usage is the hugetlb pages that its entries map; not judged where the process was ever so large \
              that it may have shared page tables. None of these where somebody holds its mmap_lock or the lock of one of its tables, \
              or an entry is of a page on its way; not its RSS where it is seen in exec(), which counts its arguments first.",
    tier: Tier::Linux,
    sources: &[
        "mm/rmap.c, __folio_add_rmap(), __folio_remove_rmap()",
        "include/linux/mm.h, mm_counter(), folio_mapcount()",
        "include/linux/mm.h, mm_inc_nr_ptes(); mm/pgtable-generic.c, pgtable_trans_huge_deposit()",
        "mm/hugetlb.c, hugetlb_count_add(), want_pmd_share(), huge_pmd_unshare()",
        "mm/page_alloc.c, free_page_is_bad()",
        "mm/rmap.c, rmap_walk_anon(), rmap_walk_file()",
    ],
    needs: &[Need::Vmas, Need::Folios, Need::Processes],
    releases: Releases::WIDELY,
    known: &[],
    synthetic: &[
        "l9_a_page_that_is_free",
        "l9_a_page_that_a_cpu_keeps",
        "l9_counters_of_a_process",
        "l9_bytes_of_page_tables",
        "l9_hugetlb_pages_of_a_process",
        "l9_counts_and_entries",
        "l9_fewer_references_than_entries",
        "l9_a_count_without_an_entry_needs_all_processes",
        "l9_a_folio_that_nobody_maps",
    ],
    live: &[
        "test_l9_page_that_is_free",
        "test_l9_fewer_references",
        "test_l9_page_that_a_cpu_keeps",
        "test_l9_mapcount",
        "test_l9_folio_that_nobody_maps",
        "test_l9_two_processes",
        "test_l9_rss",
        "test_l9_rss_under_the_lock_of_a_table",
        "test_l9_page_tables",
        "test_l9_hugetlb_usage",
        "test_pages_of_a_folio_count_their_entries",
    ],
};

/// On one entry: the sentence where its page is none that may be mapped.
pub(super) fn check(mapped: &Mapped<'_>) -> Option<String> {
    let (page, va, pfn) = (mapped.page, mapped.va(), mapped.pfn);
    let whose = match page.kind_of_page {
        _ if mapped.kept == pfn => Some("on a CPU's list of free pages".to_owned()),
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

/// The bytes of page tables of a process, which the kernel counts, against its tables: the sentence where they differ.
pub(crate) fn tables(counted: i64, tables: Tables, page_size: u64) -> Option<String> {
    let Tables { walked, ready, .. } = tables;
    let bytes = ((walked + ready) * page_size) as i64;
    (counted != bytes).then(|| {
        format!(
            "the process's bytes of page tables (pgtables_bytes) are {counted}, and its tables take {bytes}: {walked} below the first one, and {ready} that lie ready for its anonymous blocks: they must be equal"
        )
    })
}

/// The hugetlb pages that a process counts against those that its entries map: the sentence where they differ.
pub(crate) fn hugetlb(counted: i64, mapped: i64) -> Option<String> {
    (counted != mapped).then(|| {
        format!(
            "the process's count of hugetlb pages (hugetlb_usage) is {counted}, and its entries map {mapped}: they must be equal"
        )
    })
}

/// The counters of a process against what its entries map: the sentence where they differ.
pub(crate) fn rss(kernel: Rss, entries: Rss) -> Option<String> {
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
    (!wrong.is_empty()).then(|| {
        format!(
            "the process's counters of mapped pages (RSS) are not its entries: {}: they must be equal",
            wrong.join("; ")
        )
    })
}
