// SPDX-License-Identifier: GPL-2.0-only
//! Decodes a page and its folio: `struct page` and `struct folio` (include/linux/mm_types.h).

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use untrusted::Text;

use crate::counted::Known;

/// Kind of a folio's memory, by the low bits of its `mapping` (`FOLIO_MAPPING_ANON`, include/linux/page-flags.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Private memory of processes.
    Anonymous,
    /// Anonymous memory that KSM has merged: one page for many places.
    Ksm,
    /// A file's page cache, shmem's too.
    File,
    /// A driver's own, which it can move.
    Movable,
    /// No mapping: the kernel's own memory, or a file's that was truncated.
    Unowned,
}

impl Kind {
    /// Decodes the low two bits.
    #[must_use]
    pub fn of(mapping: u64) -> Kind {
        match mapping & 3 {
            1 => Kind::Anonymous,
            3 => Kind::Ksm,
            2 => Kind::Movable,
            _ if mapping == 0 => Kind::Unowned,
            _ => Kind::File,
        }
    }

    /// Returns `folio_test_anon()`, which is also true for KSM's pages.
    #[must_use]
    pub fn anonymous(self) -> bool {
        matches!(self, Kind::Anonymous | Kind::Ksm)
    }
}

/// Kind of a page that no process may have mapped, by its `page_type` (`enum pagetype`) or its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Type {
    /// Free, in the buddy allocator.
    Buddy,
    /// A page table.
    Table,
    /// A page of the slab allocator.
    Slab,
    /// Another type, by its number.
    Other(u8),
}

/// One page, and its folio.
///
/// Counts start at 0, where the kernel stores -1. A word of `struct page` that has another meaning in a page of this
/// kind (a slab's lists, a table's lock, a free block's order) is not decoded. [`Stated`] is the form in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Stated")]
pub struct Page {
    /// Its page frame number.
    pub pfn: u64,
    /// The page frame number of its folio's first page; its own if it is not part of a larger folio.
    pub head: u64,
    /// The folio has 2 to the power of this pages.
    pub order: u8,
    /// The page's own `flags`.
    pub flags: u64,
    /// Its folio's `flags`.
    pub folio_flags: u64,
    /// `_refcount` of the folio.
    pub refcount: i64,
    /// Entries of level 3 that map this very page (`_mapcount`); `None` where the kernel does not count so
    /// (`CONFIG_NO_PAGE_MAPCOUNT`, hugetlb).
    pub mapcount: Option<i64>,
    /// Blocks that map the whole folio (`_entire_mapcount`); 0 for a single page.
    pub entire: i64,
    /// Entries and blocks that map any part of it (`_large_mapcount`); `None` for a single page, and for one with a type.
    pub large: Option<i64>,
    /// The page's type, if it forbids that a process maps the page.
    pub kind_of_page: Option<Type>,
    /// True if the page belongs to hugetlb.
    pub hugetlb: bool,
    /// Kind of the folio's memory.
    pub kind: Kind,
    /// The folio's `mapping` without its low bits: the address of a `struct anon_vma`, `struct address_space`,
    /// `struct ksm_stable_node` or `struct movable_operations`, by its kind.
    pub mapping: u64,
    /// The folio's `index`: pages from the start of its file, or of an anonymous VMA's numbering. It is meaningless for
    /// a page without a mapping and for a driver's: see [`Page::index_if_any`].
    pub index: u64,
    /// True if the page has exactly one mapping (`PageAnonExclusive()`). The bit has another meaning in a file's page.
    pub exclusive: bool,
    /// True for shmem and anonymous memory (`PG_swapbacked`).
    pub swapbacked: bool,
    /// True if the folio is in the swap cache. `private` is then its slot.
    pub swapcache: bool,
    /// The slot of exactly this page, if the folio is in the swap cache and the slot is known: the number of its area,
    /// and its own.
    pub slot: Option<(u8, u64)>,
    /// State of an anonymous folio of four pages or more and of its split; absent on kernels before 6.12.
    pub split: Option<Split>,
    /// Broken memory (`PG_hwpoison`).
    pub poisoned: bool,
    /// True if the folio is on a list of the LRU (`PG_lru`). `None` if the kernel has no such flag.
    pub on_lru: Option<bool>,
    /// True if its list is not looked through for folios to reclaim (`PG_unevictable`). `None` if the kernel has no such flag.
    pub unevictable: Option<bool>,
    /// True if the folio may not be reclaimed, as a VMA with `VM_LOCKED` maps it (`PG_mlocked`). `None` if the kernel has no
    /// such flag.
    pub mlocked: Option<bool>,
    /// True if hugetlb lets migration have the folio (`HPG_migratable`). `None` of other folios, and if the kernel has no such
    /// flag.
    pub migratable: Option<bool>,
}

/// A folio's state on the deferred split queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Split {
    /// Some of it is mapped no longer (`PG_partially_mapped`).
    pub partially_mapped: bool,
    /// True if the folio is on a deferred split queue (`_deferred_list`).
    pub queued: bool,
}

/// A page and its folio in JSON. A field that a page of its kind does not have is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Page")]
pub struct Stated {
    /// Its page frame number.
    pub pfn: u64,
    /// The page frame number of its folio's first page; its own if it is not part of a larger folio.
    pub head: u64,
    /// The folio has 2 to the power of this pages.
    pub order: u8,
    /// The page's own `flags`, as they are in memory. In the second page of a folio the low byte is the folio's order.
    pub flags: u64,
    /// Its folio's `flags`.
    pub folio_flags: u64,
    /// `_refcount` of the folio.
    pub refcount: i64,
    /// Entries of level 3 that map this very page (`_mapcount`); null where the kernel does not count so
    /// (`CONFIG_NO_PAGE_MAPCOUNT`, hugetlb), and where the word is the page's type.
    pub mapcount: Option<i64>,
    /// Blocks that map the whole folio (`_entire_mapcount`); 0 for a single page.
    pub entire: i64,
    /// Entries and blocks that map any part of it (`_large_mapcount`); null for a single page, and for one with a type.
    pub large: Option<i64>,
    /// The page's type, if it forbids that a process maps the page.
    pub kind_of_page: Option<Type>,
    /// True if the page belongs to hugetlb.
    pub hugetlb: bool,
    /// Kind of the folio's memory.
    pub kind: Kind,
    /// The folio's `mapping` without its low bits: the address of a `struct anon_vma`, `struct address_space`,
    /// `struct ksm_stable_node` or `struct movable_operations`, by its kind; null for a page without.
    pub mapping: Option<u64>,
    /// The folio's `index`: pages from the start of its file, or of the numbering that an anonymous VMA has; null for a page
    /// without one.
    pub index: Option<u64>,
    /// True if the page has exactly one mapping (`PageAnonExclusive()`).
    pub exclusive: bool,
    /// True for shmem and anonymous memory (`PG_swapbacked`).
    pub swapbacked: bool,
    /// True if the folio is in the swap cache.
    pub swapcache: bool,
    /// The slot of this very page, where the folio is in the swap cache: the number of its area, and its own.
    pub slot: Option<(u8, u64)>,
    /// State of an anonymous folio of four pages or more and of its split; absent on kernels before 6.12.
    pub split: Option<Split>,
    /// Broken memory (`PG_hwpoison`).
    pub poisoned: bool,
}

impl From<Page> for Stated {
    fn from(page: Page) -> Stated {
        Stated {
            pfn: page.pfn,
            head: page.head,
            order: page.order,
            flags: page.flags,
            folio_flags: page.folio_flags,
            refcount: page.refcount,
            mapcount: page.mapcount,
            entire: page.entire,
            large: page.large,
            kind_of_page: page.kind_of_page,
            hugetlb: page.hugetlb,
            kind: page.kind,
            mapping: page.mapping_if_any(),
            index: page.index_if_any(),
            exclusive: page.exclusive,
            swapbacked: page.swapbacked,
            swapcache: page.swapcache,
            slot: page.slot,
            split: page.split,
            poisoned: page.poisoned,
        }
    }
}

impl JsonSchema for Page {
    fn schema_name() -> Cow<'static, str> {
        Stated::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        Stated::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Stated::json_schema(generator)
    }
}

impl Page {
    /// Returns the folio's `mapping`, where it has one.
    #[must_use]
    pub fn mapping_if_any(&self) -> Option<u64> {
        (self.kind != Kind::Unowned).then_some(self.mapping)
    }

    /// Returns the folio's `index`, where the word is one: without a mapping it is left over from an earlier owner, or
    /// another structure's (`page_pool.dma_addr`, `slab.freelist`, `ptdesc.pt_mm`), and a driver uses it as it likes.
    #[must_use]
    pub fn index_if_any(&self) -> Option<u64> {
        (!matches!(self.kind, Kind::Unowned | Kind::Movable)).then_some(self.index)
    }

    /// Returns whether it is the second page of a larger folio, whose `flags` hold the folio's order in the low byte
    /// (`_flags_1`).
    #[must_use]
    pub fn is_second(&self) -> bool {
        self.order > 0 && self.subpage() == 1
    }

    /// Returns the pages of the folio.
    #[must_use]
    pub fn pages(&self) -> u64 {
        1 << self.order
    }

    /// Returns whether the page is in the page cache of shmem.
    #[must_use]
    pub fn shmem(&self) -> bool {
        self.kind == Kind::File && self.swapbacked && !self.hugetlb
    }

    /// Returns its place in the folio, in pages.
    #[must_use]
    pub fn subpage(&self) -> u64 {
        self.pfn - self.head
    }

    /// Returns the `index` that it would have as a folio of its own.
    #[must_use]
    pub fn index_of_page(&self) -> u64 {
        self.index.wrapping_add(self.subpage())
    }

    /// Returns the page `n` page frames behind this one, on the assumption that it is alike. It is in the same folio,
    /// or, behind a folio of one page, it is another such folio with the next index.
    #[must_use]
    pub fn nth_behind(&self, n: u64) -> Page {
        let pfn = self.pfn.wrapping_add(n);
        let (head, index) = match self.order {
            0 => (pfn, self.index.wrapping_add(n)),
            _ => (self.head, self.index),
        };
        Page {
            pfn,
            head,
            index,
            slot: self.slot.map(|(area, slot)| (area, slot.wrapping_add(n))),
            ..*self
        }
    }

    /// Returns how often any part of the folio is mapped (`folio_mapcount()`), where that is counted.
    #[must_use]
    pub fn folio_mapcount(&self) -> Option<i64> {
        self.large.or(self.mapcount)
    }
}

/// A memory cgroup, to which folios are charged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memcg {
    /// Its id among all states of memory cgroups (`css.id`).
    pub css: u64,
    /// The inode of its directory, as `/proc/kpagecgroup` has it.
    pub inode: u64,
    /// Its path from the root of the hierarchy.
    pub path: Text,
}

/// The counter of its `struct mm_struct` in which a mapped page is counted (`mm_counter()`, include/linux/mm.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rss {
    /// `MM_FILEPAGES`, in pages, as are all.
    pub file: i64,
    /// `MM_ANONPAGES`.
    pub anonymous: i64,
    /// `MM_SWAPENTS`: swapped out.
    pub swapped: i64,
    /// `MM_SHMEMPAGES`.
    pub shmem: i64,
}

/// A process's count of hugetlb pages, which are in none of the counters of [`Rss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HugetlbUsage {
    /// `mm->hugetlb_usage`, in pages of the kernel's size.
    pub pages: i64,
    /// True if the process ever had enough memory for a VMA of it to share tables with another process
    /// (`want_pmd_share()`, mm/hugetlb.c). Pages in such tables are counted for the process that faulted them in. No
    /// process subtracts them when the tables are given up (`huge_pmd_unshare()`).
    pub may_share: bool,
}

/// The huge zero folio, and the references that address spaces have on it (mm/huge_memory.c): each has one from when it first
/// maps the folio until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HugeZero {
    /// The page frame number of its first page (`huge_zero_pfn`).
    pub pfn: u64,
    /// `huge_zero_refcount`: those of address spaces, and one that is the kernel's own until it gives the folio back.
    pub references: i64,
    /// Number of address spaces of tasks that are marked as having one.
    pub holders: i64,
    /// True if this address space is marked so.
    pub is_holder: bool,
    /// Number of that mark among the flags of an address space (`MMF_HUGE_ZERO_FOLIO`; in 6.12 `MMF_HUGE_ZERO_PAGE`).
    pub bit: u32,
}

/// Counters of an address space for its VMAs, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmPages {
    /// `mm->total_vm`: of all.
    pub total: i64,
    /// `mm->locked_vm`: of those with `VM_LOCKED`.
    pub locked: i64,
    /// By kind, and how many VMAs there are; an earlier version did not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<VmKinds>,
}

/// Counters of an address space for its VMAs, by kind (`vm_stat_account()`, mm/mmap.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmKinds {
    /// `mm->data_vm`: pages of those that are private and writable, and no stack.
    pub data: i64,
    /// `mm->exec_vm`: of those that can be executed and not written, and are no stack.
    pub exec: i64,
    /// `mm->stack_vm`: of those that grow downwards.
    pub stack: i64,
    /// `mm->map_count`: the number of VMAs.
    pub vmas: i64,
}

/// The numbering of one VMA's pages: which `index` belongs at which address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbering {
    /// First address of the VMA.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// The number of its first page for folios of its file (`vm_pgoff`).
    pub file: u64,
    /// The type for anonymous folios, which is another one from 7.3 on.
    pub anonymous: u64,
    /// The file that it maps, where that is a regular one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<MappedFile>,
    /// The state that the patched kernel's policy `adaptive` keeps of its faults ([`crate::order::adaptive`]); none on
    /// other kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_state: Option<u64>,
    /// The addresses of each `struct anon_vma` and `struct address_space` in whose tree the reverse mapping finds the VMA;
    /// `None` in snapshots of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_by: Option<Known<Vec<u64>>>,
}

/// A regular file that a VMA maps (include/linux/fs.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedFile {
    /// The address of its `struct address_space`, which its folios have as their `mapping`.
    pub mapping: u64,
    /// Number of pages that its size fills, the last one perhaps partly. `None` while a writer holds its lock
    /// (`i_rwsem`), and on a file system that other hosts can change.
    pub pages: Option<u64>,
}

/// A place at which a folio may be mapped, by its reverse mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MayMap {
    /// The address of the `struct mm_struct`.
    pub mm: u64,
    /// The virtual address there of its first page that the VMA covers.
    pub va: u64,
}

/// A folio that counts mappings, and that no entry of any address space maps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The page frame number of its first page.
    pub head: u64,
    /// Places where it may be mapped; `None` if they are unknown.
    pub places: Option<Vec<MayMap>>,
}

/// A page that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPage {
    /// No `struct page` can be read: the page is not guest memory, or its struct was not copied.
    Unreadable(String),
    /// The `struct page` was read, and its contents make no sense.
    Wild(String),
}

impl NoPage {
    /// Returns why not.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            NoPage::Unreadable(why) | NoPage::Wild(why) => why,
        }
    }
}
