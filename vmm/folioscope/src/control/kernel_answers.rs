//! What is answered of the kernel's own structures.

use std::collections::BTreeMap;

use linux::contpte::Event;
use linux::counted::Counted;
use linux::folio::{HugetlbUsage, Memcg, Page, Rss};
use linux::order::counts::Decision;
use schemars::JsonSchema;
use serde::Serialize;
use verdict::Hex;

/// The answer of `page`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PageAnswer {
    /// The page and its folio.
    pub page: Page,
    /// The names of what is set in the page's flags, as a page of its kind uses their bits; where two fit, both, joined by a bar.
    pub flags: Vec<String>,
    /// The same of its folio's.
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
    /// What the kernel counts as mapped.
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
    /// The regular files that it maps, each once.
    pub files: Vec<FileAnswer>,
}

/// The page cache of one file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileAnswer {
    /// The address of its `struct address_space`.
    pub mapping: Hex,
    /// How many pages it counts (`nrpages`).
    pub counted: u64,
    /// The physical address of this count.
    pub counted_at: Hex,
    /// How many pages the folios in its tree have that are as they must be.
    pub found: u64,
    /// Places of pages that are in swap, or of which something is remembered.
    pub gone: u64,
}

/// The answer of `counted`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CountedAnswer {
    /// What the kernel counts of all memory; where each counter is (`at`) is a physical address.
    pub counted: Counted,
}

/// The answer of `counts`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CountsAnswer {
    /// The decisions about the orders of folios; null where the kernel does not count them.
    pub orders: Option<OrdersCounted>,
    /// What became of contiguous blocks of user memory; null likewise.
    pub contpte: Option<ContpteCounted>,
    /// What was not read, and why.
    pub notes: Vec<String>,
}

/// The decisions about the orders of folios.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrdersCounted {
    /// Whether they are counted now (`anon_order/record`).
    pub on: bool,
    /// Those that were made since they last began to be.
    pub decisions: Vec<Decision>,
}

/// What became of contiguous blocks of user memory.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ContpteCounted {
    /// Whether it is counted now (`anon_order/contpte`).
    pub on: bool,
    /// How often, by what was done, since it last began to be.
    pub events: BTreeMap<Event, u64>,
    /// Of the unfolds, who wanted them.
    pub unfolds: Vec<Unfolds>,
}

/// Unfolds that one place of the kernel wanted.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Unfolds {
    /// The function that changed an entry, with the distance from its start; null for all that the kernel had no room for.
    pub caller: Option<String>,
    /// How many.
    pub count: u64,
}
