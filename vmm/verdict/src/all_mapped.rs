// SPDX-License-Identifier: GPL-2.0-only
//! Pages that the judged processes map, counted as the kernel counts memory.

use std::collections::BTreeMap;

use linux::folio::{Kind, Page};

use crate::entries::{Entries, Swapped};

/// Pages that the judged processes map, each once, without hugetlb's and those of which another rule reports an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllMapped {
    /// Anonymous folios by their order; single pages that are mapped once are not among them.
    pub folios: BTreeMap<u8, i64>,
    /// Anonymous pages.
    pub anonymous: i64,
    /// Those of folios that blocks map.
    pub blocks: i64,
    /// Pages of shmem.
    pub shmem: i64,
    /// Pages of files, shmem's too.
    pub file: i64,
    /// Other pages that the entries of any address space map: of processes that are not judged, of no process, of
    /// hugetlb, and those of which another rule has told.
    pub others: i64,
    /// The reason if there may be more than all these.
    pub more: Option<String>,
    /// Entries of all address spaces that lead to swap, in order.
    pub swapped: Vec<Swapped>,
    /// The reason if some of their tables could not be walked.
    pub unwalked: Option<String>,
    /// Counts above their entries that were not judged, as there may be entries of others
    /// ([`crate::Everyone::incomplete`]).
    pub uncounted: u64,
}

impl AllMapped {
    /// Returns the pages of no process.
    pub(crate) fn none() -> AllMapped {
        AllMapped {
            folios: BTreeMap::new(),
            anonymous: 0,
            blocks: 0,
            shmem: 0,
            file: 0,
            others: 0,
            more: Some("no process was judged".into()),
            swapped: Vec::new(),
            unwalked: None,
            uncounted: 0,
        }
    }

    /// A page that was not there before, nor, where it is the `first`, any of its folio.
    pub(crate) fn add(&mut self, page: Page, first: bool, entries: &Entries) {
        self.pages(page, 1);
        if first && page.kind.anonymous() && !page.hugetlb {
            *self.folios.entry(page.order).or_default() += 1;
            let folio = page.head..page.head + page.pages();
            let by_block = page.order > 0 && entries.block_maps(&folio) > 0;
            self.blocks += i64::from(by_block) * page.pages() as i64;
        }
    }

    /// So many pages like this one.
    pub(crate) fn pages(&mut self, page: Page, count: u64) {
        if page.kind.anonymous() && !page.hugetlb {
            self.anonymous += count as i64;
        } else if page.kind == Kind::File && !page.hugetlb {
            self.file += count as i64;
            self.shmem += if page.shmem() { count as i64 } else { 0 };
        }
    }
}
