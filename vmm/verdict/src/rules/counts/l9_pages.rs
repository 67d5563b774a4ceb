// SPDX-License-Identifier: GPL-2.0-only
//! L9 on pages: the counts of a page and its folio are the entries that map it.

use linux::folio::{Kind, Page};

use crate::check::PageSeen;
use crate::entries::Entries;

/// Holds the counts of a page to the entries of all address spaces.
pub(super) fn check(seen: &PageSeen<'_>, uncounted: &mut u64) -> Option<String> {
    let PageSeen {
        entries,
        page,
        va,
        is_first,
        incomplete,
    } = *seen;
    let mut says = Vec::new();
    compare(entries, page, is_first, |what, counted, entries| {
        // Entries that are not counted are wrong whatever else there is.
        if counted > entries && incomplete {
            *uncounted += 1;
        } else if counted != entries {
            says.push(format!("{what} {counted}, entries {entries}"));
        }
    });
    if is_first {
        says.extend(references(entries, page));
    }
    (!says.is_empty()).then(|| {
        format!(
            "page frame 0x{:x}, of the folio of order {} at 0x{:x}, is mapped at VA 0x{va:016x}, and its counts are not its entries in all address spaces: {}",
            page.pfn,
            page.order,
            page.head,
            says.join("; ")
        )
    })
}

/// Each count of a page and, where it is the first seen of it, of its folio.
fn compare(entries: &Entries, page: Page, first: bool, mut differ: impl FnMut(&str, i64, i64)) {
    let folio = page.head..page.head + page.pages();
    // The huge zero page, and what a driver maps by blocks, is not counted.
    let blocks = entries.blocks.within(&folio);
    if page.kind == Kind::Unowned && blocks > 0 && !page.hugetlb {
        return;
    }
    if let Some(counted) = page.mapcount {
        let single = entries.pages.within(&(page.pfn..page.pfn + 1));
        differ("mapcount", counted, single as i64);
    }
    let (Some(large), true) = (page.large, first) else {
        return;
    };
    let pages = entries.pages.within(&folio);
    if page.hugetlb {
        let whole = (pages + blocks) / page.pages();
        differ("mapcount of the hugetlb folio", large, whole as i64);
        differ("entire mapcount", page.entire, whole as i64);
        return;
    }
    // A block maps the folio, or as much of it as a block can.
    let whole = entries.block_maps(&folio);
    differ("mapcount of the folio", large, (pages + whole) as i64);
    differ("entire mapcount", page.entire, whole as i64);
}

/// Each entry has a reference of its folio, which is taken before it is set and given back after it is cleared. Of what
/// has no mapping it is not known who counts it.
fn references(entries: &Entries, page: Page) -> Option<String> {
    let counted = page.hugetlb || page.kind.anonymous() || page.kind == Kind::File;
    // Told of at its entry.
    if !counted || page.refcount <= 0 {
        return None;
    }
    let folio = page.head..page.head + page.pages();
    let pages = entries.pages.within(&folio);
    let all = if page.hugetlb {
        (pages + entries.blocks.within(&folio)) / page.pages()
    } else {
        pages + entries.block_maps(&folio)
    };
    (page.refcount < all as i64).then(|| {
        format!(
            "references of the folio {}, entries {all}, each of which has to have one",
            page.refcount
        )
    })
}
