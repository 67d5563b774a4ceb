// SPDX-License-Identifier: GPL-2.0-only
//! The half of L8 that asks the folio: what a process may write in private memory is its own, and is no other
//! process's.

use linux::folio::{Kind, Numbering, Page};
use linux::vma::Vma;

use crate::check::{ExclusiveSeen, PageSeen};
use crate::mapped::{of_frames, Mapped};

/// On one entry: the sentence where a writable anonymous page is not exclusive.
pub(super) fn check(mapped: &Mapped<'_>, vma: &Vma, _: Option<&Numbering>) -> Option<String> {
    let (pte, page) = (mapped.pte, mapped.page);
    // Without VmFlags it is not known whether a driver chose the page.
    let known = vma.pfn_mapped() == Some(false) && !of_frames(vma);
    if vma.permissions.shared || !known || !(pte.valid() && pte.write()) {
        return None;
    }
    let what = match page.kind {
        Kind::Anonymous if !page.exclusive => "not exclusive to one mapping (PageAnonExclusive)",
        Kind::Ksm => "KSM's, for many places",
        Kind::File => "a file's",
        _ => return None,
    };
    Some(format!(
        "VA 0x{:016x} maps page frame 0x{:x} writable in private memory, and the page is {what}: it must not be writable",
        mapped.va(),
        mapped.pfn
    ))
}

/// On one page, and the entries of all address spaces.
pub(super) fn page(seen: &PageSeen<'_>, _: &mut u64) -> Option<String> {
    let (page, entries) = (seen.page, seen.entries);
    let here = page.pfn..page.pfn + 1;
    let (single, blocks) = (entries.pages.within(&here), entries.blocks.within(&here));
    let slot = || slot(page, entries.swapped(page.slot?));
    let why = once(page, single, blocks).or_else(slot)?;
    Some(format!(
        "page frame 0x{:x}, mapped at VA 0x{:016x}, {why}",
        page.pfn, seen.va
    ))
}

/// On one page that no other mapping ever had. Of hugetlb nothing is said.
pub(super) fn alone(seen: &ExclusiveSeen) -> Option<String> {
    let page = seen.page;
    let is_shared = page.kind == Kind::Anonymous && !page.exclusive && !page.hugetlb;
    is_shared.then(|| {
        format!(
            "page frame 0x{:x}, mapped at VA 0x{:016x}, is not exclusive to one mapping (PageAnonExclusive), and no other one \
             ever had it: its next write would copy it",
            page.pfn, seen.va
        )
    })
}

/// On one page, and how many entries and blocks of all address spaces map it: what is exclusive is mapped once. While a
/// block is being split its pages are mapped in both ways.
fn once(page: Page, entries: u64, blocks: u64) -> Option<String> {
    let most = entries.max(blocks);
    (page.kind == Kind::Anonymous && page.exclusive && most > 1).then(|| {
        format!("is exclusive to one mapping (PageAnonExclusive), and {most} entries map it: what is shared must not be exclusive")
    })
}

/// On one page in the swap cache, and how many entries lead to its slot: those of another mapping would bring the same
/// page back. A task that brings an exclusive one back gives its own entry up first (`do_swap_page()`), and a task that
/// takes an entry to swap takes exclusiveness away first (`try_to_unmap_one()`), each under the lock of the table.
fn slot(page: Page, entries: u64) -> Option<String> {
    (page.kind == Kind::Anonymous && page.exclusive && entries > 0).then(|| {
        format!("is exclusive to one mapping (PageAnonExclusive), and {entries} entries lead to its slot in swap: what is shared must not be exclusive")
    })
}
