// SPDX-License-Identifier: GPL-2.0-only
//! What is asked of the kernel's own structures: the pages of a guest, and what the kernel counts of a process.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use linux::absent::SwapTypes;
use linux::folio::{HugetlbUsage, NoPage, Numbering, Page, Rss, VmPages};
use serde::{Deserialize, Serialize};

/// The pages of a guest at one instant, by page frame number.
pub trait Folios: fmt::Debug {
    /// One page, and its folio.
    ///
    /// # Errors
    /// Where it has none, or that makes no sense.
    fn page(&self, pfn: u64) -> Result<Page, NoPage>;

    /// How many of the `most` pages behind `page`, which was asked for, are known to be like it: each is what
    /// [`Page::nth_behind`] says, but for `flags` and `folio_flags`, of which no rule asks. With 0 each page is asked for.
    fn alike(&self, page: &Page, most: u64) -> u64 {
        let _ = (page, most);
        0
    }

    /// Bits of `/proc/kpageflags` that are bits of the folio's `flags` ([`linux::getters::COPIED`]): those that this kernel is
    /// known to have, and those of them that are set.
    fn copied(&self, page: &Page) -> (u64, u64) {
        let _ = page;
        (0, 0)
    }
}

/// What the kernel's own structures say of a process, at the instant of its tables.
#[derive(Clone, Copy, Debug)]
pub struct Structures<'a> {
    /// All pages.
    pub folios: &'a dyn Folios,
    /// The numbering of its VMAs' pages, by address; `None` while somebody was changing them.
    pub numbering: Option<&'a [Numbering]>,
    /// Somebody held the lock of one of its tables: an entry and what counts it may just be changed.
    pub table_locked: bool,
    /// What the kernel counts as mapped; `None` while somebody was changing it, or where that cannot be read.
    pub rss: Option<Rss>,
    /// Bytes of page tables that it counts; `None` as with `rss`.
    pub tables_bytes: Option<i64>,
    /// What it counts of hugetlb; `None` as with `rss`, and where the kernel has none.
    pub hugetlb: Option<HugetlbUsage>,
    /// What it counts of its VMAs; `None` as with `rss`.
    pub vm_pages: Option<VmPages>,
    /// Free pages that CPUs keep for themselves: ranges of page frame numbers, in order.
    pub kept: &'a [Range<u64>],
    /// What the kernel's swap types stand for.
    pub swap: &'a SwapTypes,
}

/// Why nothing is known of the kernel's structures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKnown {
    /// Why.
    pub why: Cow<'static, str>,
    /// Whether another instant may show them: what was read was just being changed.
    pub later: bool,
}

impl NotKnown {
    /// They are not to be had.
    pub const fn never(why: &'static str) -> NotKnown {
        NotKnown {
            why: Cow::Borrowed(why),
            later: false,
        }
    }
}

impl From<String> for NotKnown {
    fn from(why: String) -> NotKnown {
        NotKnown {
            why: why.into(),
            later: false,
        }
    }
}

impl From<&'static str> for NotKnown {
    fn from(why: &'static str) -> NotKnown {
        NotKnown::never(why)
    }
}
