// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own structures as rules read them: the pages of a guest, and what the kernel counts of a process.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use crate::absent::SwapTypes;
use crate::folio::{HugeZero, HugetlbUsage, NoPage, Numbering, Page, Rss, VmPages};
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

    /// Bits of `/proc/kpageflags` that are bits of the folio's `flags` ([`crate::getters::COPIED`]): those that this kernel is
    /// known to have, and those of them that are set.
    fn copied(&self, page: &Page) -> (u64, u64) {
        let _ = page;
        (0, 0)
    }

    /// Returns whether the page's folio is in the page cache of a file that is written back to a device; `None` where that is not
    /// known.
    fn written_back(&self, page: &Page) -> Option<bool> {
        let _ = page;
        None
    }

    /// Returns whether the page's folio is charged to a memory cgroup; `None` if the kernel has none.
    fn charged(&self, page: &Page) -> Option<bool>;

    /// Returns the references that batches of the LRU lists have on the page's folio.
    ///
    /// # Errors
    /// If the batches could not be read.
    fn batched(&self, page: &Page) -> Result<u64, NotKnown>;
}

/// The kernel's own structures of a process, at the instant of its tables.
#[derive(Clone, Copy, Debug)]
pub struct Structures<'a> {
    /// All pages.
    pub folios: &'a dyn Folios,
    /// The numbering of its VMAs' pages, by address; `None` while a task was changing them.
    pub numbering: Option<&'a [Numbering]>,
    /// A task held the lock of one of its tables: an entry and what counts it may just be changed.
    pub table_locked: bool,
    /// The kernel's counters of mapped pages; `None` while a task was changing them, or if they cannot be read.
    pub rss: Option<Rss>,
    /// Bytes of page tables that it counts; `None` as with `rss`.
    pub tables_bytes: Option<i64>,
    /// The kernel's counters of hugetlb; `None` as with `rss`, and if the kernel has none.
    pub hugetlb: Option<HugetlbUsage>,
    /// The kernel's counters of its VMAs; `None` as with `rss`.
    pub vm_pages: Option<VmPages>,
    /// The huge zero folio, and whether the address space has a reference on it; `None` if there is none, no reference is
    /// counted, or that is not known.
    pub huge_zero: Option<HugeZero>,
    /// Free pages that CPUs keep for themselves: ranges of page frame numbers, in order.
    pub kept: &'a [Range<u64>],
    /// Meaning of the kernel's swap types.
    pub swap: &'a SwapTypes,
}

/// The reason that nothing is known of the kernel's structures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKnown {
    /// The reason.
    pub why: Cow<'static, str>,
    /// True if another instant may show them: what was read was just being changed.
    pub later: bool,
}

impl NotKnown {
    /// Creates it for structures that no instant will show.
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
