// SPDX-License-Identifier: GPL-2.0-only
//! Answers about the kernel's own structures.

use std::collections::BTreeMap;

use linux::contpte::Event;
use linux::counted::Counted;
use linux::folio::{HugeZero, HugetlbUsage, Memcg, Page, Rss};
use linux::order::counts::Decision;
use schemars::JsonSchema;
use serde::Serialize;
use verdict::Hex;

/// The answer of `page`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PageAnswer {
    /// The page and its folio.
    pub page: Page,
    /// The names of the bits set in the page's flags, as a page of its kind uses them; if two names fit, both, joined
    /// by a bar.
    pub flags: Vec<String>,
    /// The names of the bits set in its folio's flags.
    pub folio_flags: Vec<String>,
    /// The memory cgroup that its folio is charged to; null where that is none, or is not known.
    pub memcg: Option<Memcg>,
    /// The physical address of its `struct page`.
    pub at: Hex,
    /// The physical address of the `struct page` of its folio's first page.
    pub head_at: Hex,
}

/// The answer of `space`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SpaceAnswer {
    /// The address of its `struct mm_struct`.
    pub mm: Hex,
    /// The physical address of its first table.
    pub table: Hex,
    /// The kernel's counts of mapped memory.
    pub rss: Option<Rss>,
    /// The physical addresses of these counters' shared parts, in the order file, anonymous, swapped, shmem.
    pub rss_at: Vec<Hex>,
    /// The bytes of page tables that the kernel counts.
    pub tables_bytes: Option<i64>,
    /// The physical address of this count.
    pub tables_bytes_at: Option<Hex>,
    /// The pages of hugetlb that the kernel counts.
    pub hugetlb: Option<HugetlbUsage>,
    /// The physical address of this count.
    pub hugetlb_at: Option<Hex>,
    /// The huge zero folio, and whether the address space has a reference on it; null where there is none, or none is counted.
    pub huge_zero: Option<HugeZero>,
    /// The physical address of its flags, of which one marks that it has.
    pub flags_at: Option<Hex>,
    /// The regular files that it maps, each once.
    pub files: Vec<FileAnswer>,
}

/// The page cache of one file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileAnswer {
    /// The address of its `struct address_space`.
    pub mapping: Hex,
    /// The kernel's count of its pages (`nrpages`).
    pub counted: u64,
    /// The physical address of this count.
    pub counted_at: Hex,
    /// Number of pages of the folios in its tree that are in their right places.
    pub found: u64,
    /// Number of places with a swap entry or a shadow entry in place of a page.
    pub gone: u64,
    /// Counts that shmem keeps; null for other files.
    pub shmem: Option<ShmemAnswer>,
}

/// Counts that shmem keeps of a file, in pages.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShmemAnswer {
    /// `alloced`: pages that the file has, in the page cache and in swap.
    pub alloced: u64,
    /// `swapped`: those in swap.
    pub swapped: u64,
    /// The physical addresses of the two.
    pub at: [Hex; 2],
}

/// The answer of `counted`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CountedAnswer {
    /// The kernel's counts of all memory; the address of each counter (`at`) is physical.
    pub counted: Counted,
}

/// The answer of `counts`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CountsAnswer {
    /// The decisions about the orders of folios; null if the kernel does not count them.
    pub orders: Option<OrdersCounted>,
    /// The events of contiguous blocks of user memory; null if the kernel does not count them.
    pub contpte: Option<ContpteCounted>,
    /// The data that were not read, and why.
    pub notes: Vec<String>,
}

/// The decisions about the orders of folios.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrdersCounted {
    /// True if they are being counted (`anon_order/record`).
    pub on: bool,
    /// The decisions since counting began.
    pub decisions: Vec<Decision>,
}

/// Events of contiguous blocks of user memory.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ContpteCounted {
    /// True if it is counted now (`anon_order/contpte`).
    pub on: bool,
    /// Counts by event since counting began.
    pub events: BTreeMap<Event, u64>,
    /// The unfolds by their caller.
    pub unfolds: Vec<Unfolds>,
}

/// Unfolds that one place of the kernel caused.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Unfolds {
    /// The function that changed an entry, with the distance from its start; null for all for which the kernel's table
    /// had no room.
    pub caller: Option<String>,
    /// Number of unfolds.
    pub count: u64,
}
