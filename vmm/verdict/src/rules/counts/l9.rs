// SPDX-License-Identifier: GPL-2.0-only
//! L9: what is mapped is in use, and counted. Its checks on pages, on processes and on folios that no table maps are in the
//! other files of this folder.

use linux::folio::{Numbering, Type};
use linux::vma::Vma;

use super::{l9_pages, l9_process, l9_unmapped};
use crate::check::Check;
use crate::mapped::Mapped;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L9",
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
              have none). Each table of level 3 has a VMA in its range. Its total_vm is the pages of its VMAs, its locked_vm those of VMAs with VM_LOCKED, its exec_vm those of VMAs that can be \
              executed and not written, its data_vm and stack_vm together those of VMAs that are private and writable, and its map_count \
              their number. Its hugetlb_usage is the hugetlb pages that its entries map; not judged where the process was ever so large \
              that it may have shared page tables. A process of which a block maps the huge zero folio has a reference on it, by the \
              flag of its address space (MMF_HUGE_ZERO_FOLIO), and huge_zero_refcount is more than the address spaces with that \
              flag; not with CONFIG_PERSISTENT_HUGE_ZERO_FOLIO, which counts none. None of the others where its mmap_lock or the lock of one of its tables is held, \
              or an entry is of a page on its way; not its RSS where it is seen in exec(), which counts its arguments first.",
    tier: Tier::Linux,
    sources: &[
        "mm/rmap.c, __folio_add_rmap(), __folio_remove_rmap()",
        "include/linux/mm.h, mm_counter(), folio_mapcount()",
        "mm/mmap.c, vm_stat_account(); mm/mlock.c, mlock_fixup()",
        "include/linux/mm.h, mm_inc_nr_ptes(); mm/pgtable-generic.c, pgtable_trans_huge_deposit()",
        "mm/hugetlb.c, hugetlb_count_add(), want_pmd_share(), huge_pmd_unshare()",
        "mm/memory.c, free_pgd_range()",
        "mm/huge_memory.c, mm_get_huge_zero_folio(), copy_huge_pmd(), set_huge_zero_folio()",
        "mm/page_alloc.c, free_page_is_bad()",
        "mm/rmap.c, rmap_walk_anon(), rmap_walk_file()",
    ],
    needs: &[Need::Vmas.all(), Need::Folios.all(), Need::Processes.less()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Counts,
    on_break: OnBreak::VoidsCounts,
    checks: &[Check::Entry(check),
        Check::Process(l9_process::check),
        Check::Page(l9_pages::check),
        Check::Unmapped(l9_unmapped::check)],
    synthetic: &[
        "l9_a_page_that_is_free",
        "l9_a_page_that_a_cpu_keeps",
        "l9_counters_of_a_process",
        "l9_bytes_of_page_tables",
        "l9_a_table_without_a_vma",
        "l9_hugetlb_pages_of_a_process",
        "l9_pages_of_vmas",
        "l9_references_on_the_huge_zero_folio",
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
        "test_l9_huge_zero_folio",
        "test_pages_of_a_folio_count_their_entries",
    ],
};

/// On one entry: the sentence where its page is none that may be mapped.
fn check(mapped: &Mapped<'_>, _: &Vma, _: Option<&Numbering>) -> Option<String> {
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
