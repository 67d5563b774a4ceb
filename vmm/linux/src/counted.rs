// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's counts of all its memory, and the lists it keeps, at one instant.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use untrusted::Text;

mod available;
mod events;

pub use available::Available;
pub use events::{
    Events, COW_KSM, FOLIO_SPLIT, NAMES, PGFAULT, PGMIGRATE_SUCCESS, PSWPIN, SWPIN_ZERO,
    THP_COLLAPSE_ALLOC, ZSWPIN,
};

/// Counters and lists of the whole kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counted {
    /// The counters of large anonymous folios, by order (`mthp_stats`).
    pub sizes: Known<Vec<Size>>,
    /// Large folios that wait to be split (`struct deferred_split`).
    pub queues: Known<Queues>,
    /// Free memory, zone by zone.
    pub zones: Known<Vec<Zone>>,
    /// Counts of mapped memory; absent in notes of an earlier version.
    #[serde(default = "not_asked_memory")]
    pub memory: Known<Memory>,
    /// Swap; an earlier version did not ask.
    #[serde(default = "not_asked_swap")]
    pub swap: Known<Swap>,
    /// Memory that is promised; an earlier version did not ask.
    #[serde(default)]
    pub committed: Option<Known<Committed>>,
    /// A census of all pages of memory; absent in notes of an earlier version.
    #[serde(default = "not_asked_census")]
    pub census: Known<Census>,
    /// Available memory; absent in notes of an earlier version.
    #[serde(default = "not_asked_available")]
    pub available: Known<Available>,
    /// Events since boot; absent in notes of an earlier version.
    #[serde(default = "not_asked_events")]
    pub events: Known<Events>,
}

fn not_asked_events() -> Known<Events> {
    Err(not_asked("counters of events"))
}

fn not_asked_available() -> Known<Available> {
    Err(not_asked("counters of what is available"))
}

fn not_asked_census() -> Known<Census> {
    Err(NotRead {
        why: "the snapshot does not say what all pages of memory were".into(),
        later: false,
        not_built: false,
    })
}

fn not_asked_memory() -> Known<Memory> {
    Err(not_asked("counters of memory"))
}

fn not_asked_swap() -> Known<Swap> {
    Err(not_asked("swap areas"))
}

fn not_asked(what: &str) -> NotRead {
    NotRead {
        why: format!("the snapshot does not hold the kernel's {what}"),
        later: false,
        not_built: false,
    }
}

/// All swap areas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Swap {
    /// The swap areas in use.
    pub areas: Vec<SwapArea>,
    /// The address spaces (`struct mm_struct`) that may have swap entries: `mmlist`, in which swapoff() finds them.
    pub spaces: Vec<u64>,
    /// Slots that entries in the trees of shmem's files lead to: the number of the area, the first slot, and their number.
    #[serde(default)]
    pub shmem: Vec<(u8, u64, u64)>,
}

/// Memory that the kernel has promised, in pages: what it goes by when it overcommits (`__vm_enough_memory()`, mm/util.c).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Committed {
    /// `vm_committed_as`.
    pub counted: i64,
    /// Address of the count.
    pub at: u64,
    /// Pages of VMAs with `VM_ACCOUNT`, of all address spaces.
    pub vmas: i64,
    /// Pages of shmem's files: of those that reserve what they may need (no `VM_NORESERVE`) all, of others those that they have.
    pub shmem: i64,
    /// File systems of shmem that have a limit (`size=`).
    #[serde(default)]
    pub limited: Vec<Limited>,
    /// Reason why some may be counted and not there, or the other way round.
    pub busy: Option<String>,
}

impl Committed {
    /// Returns whether the count differs, and another instant may show that it does not.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let differs = |it: &Limited| it.used != it.alloced;
        let wrong = self.counted != self.vmas + self.shmem || self.limited.iter().any(differs);
        self.busy.is_some() && wrong
    }
}

/// A tmpfs that has a limit, and what it counts towards that, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limited {
    /// Minor number of its device (`st_dev`), whose major number is 0.
    pub device: u64,
    /// `used_blocks`.
    pub used: i64,
    /// Address of the count.
    pub at: u64,
    /// Pages that its files have, in memory and in swap (`alloced`).
    pub alloced: i64,
}

/// One swap area.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwapArea {
    /// Its number, the type of the swap entries that lead to it.
    pub number: u8,
    /// Number of slots, including unusable ones.
    pub slots: u64,
    /// Address of the count of the first slot that is counted: a byte of `swap_map`, or a word of a cluster's table.
    pub at: u64,
    /// The slots that are counted, in order, in runs; all others are free, or in the swap cache alone.
    pub counted: Vec<Slots>,
}

/// Slots that are counted alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slots {
    /// The first.
    pub first: u64,
    /// Number of slots.
    pub slots: u64,
    /// The kernel's count of entries that lead to each; `None` if it is unknown: bad slots, counts that continue
    /// elsewhere, and shmem's in the swap cache.
    pub count: Option<u8>,
}

/// Counters of `enum node_stat_item` over all nodes and CPUs, in pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// `NR_ANON_MAPPED`: anonymous memory that is mapped, without hugetlb's.
    pub anonymous: i64,
    /// `NR_ANON_THPS`: pages of folios that a PMD maps.
    pub blocks: i64,
    /// `NR_SHMEM`: the page cache of shmem.
    pub shmem: i64,
    /// The address of each, of the first node.
    pub at: [u64; 3],
    /// `NR_FILE_MAPPED`: pages of files that are mapped, shmem's too, and where it is; an earlier version did not ask.
    #[serde(default)]
    pub file: Option<(i64, u64)>,
    /// `NR_FILE_PAGES`: the page cache and the swap cache, and where it is; an earlier version did not ask.
    #[serde(default)]
    pub cache: Option<(i64, u64)>,
    /// `NR_MLOCK` over all zones: pages of folios that are locked, and where it is, of the first zone; an earlier version did
    /// not ask.
    #[serde(default)]
    pub mlocked: Option<(i64, u64)>,
    /// Folios of a PMD's size, and where each is, of the first node; an earlier version did not ask.
    #[serde(default)]
    pub large: Option<Large<(i64, u64)>>,
    /// Pages that are to be written back; an earlier version did not ask.
    #[serde(default)]
    pub written: Option<Written<(i64, u64)>>,
    /// Pages on the lists of the LRU; an earlier version did not ask.
    #[serde(default)]
    pub lists: Option<Known<Lists<(i64, u64)>>>,
    /// `NR_ISOLATED_ANON` and `NR_ISOLATED_FILE`: pages that were taken from the lists of the LRU, and where the first is; an
    /// earlier version did not ask, as of those below.
    #[serde(default)]
    pub isolated: Option<(i64, u64)>,
    /// Reason why pages may be taken from these lists at this instant.
    #[serde(default)]
    pub isolating: Option<String>,
    /// `NR_FOLL_PIN_ACQUIRED` less `NR_FOLL_PIN_RELEASED`: pins that are held, and where the first is.
    #[serde(default)]
    pub pinned: Option<(i64, u64)>,
    /// `num_poisoned_pages`, and where it is.
    #[serde(default)]
    pub poisoned: Option<(i64, u64)>,
    /// Number of CPUs that keep a part of the counts to themselves.
    pub cpus: u64,
    /// Number of them that may be changing one at this instant; `None` if that is not known.
    #[serde(default)]
    pub counting: Option<u64>,
}

/// Counters of folios of a PMD's size in page caches, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Large<T> {
    /// `NR_SHMEM_THPS`: those in the page cache of shmem.
    pub shmem: T,
    /// `NR_FILE_THPS`: those in the page cache of other files.
    pub file: T,
    /// `NR_SHMEM_PMDMAPPED`: of shmem's those that a PMD maps.
    pub shmem_mapped: T,
    /// `NR_FILE_PMDMAPPED`: of other files' those that a PMD maps.
    pub file_mapped: T,
}

/// Counters of pages that are to be written back, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written<T> {
    /// `NR_FILE_DIRTY`: dirty ones of files that are written back.
    pub dirty: T,
    /// `NR_WRITEBACK`: those that are being written, to a file or to swap.
    pub under_way: T,
    /// `NR_ZONE_WRITE_PENDING` over all zones: both.
    pub pending: T,
}

/// Counters of the LRU lists (`enum lru_list`), in pages, active and inactive ones together: with the multi-generational
/// LRU a folio's list follows from its generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lists<T> {
    /// `NR_INACTIVE_ANON` and `NR_ACTIVE_ANON`.
    pub anonymous: T,
    /// `NR_INACTIVE_FILE` and `NR_ACTIVE_FILE`.
    pub file: T,
    /// `NR_UNEVICTABLE`.
    pub unevictable: T,
}

/// Counts of all pages of memory by their own `struct page`, whatever maps them, without hugetlb's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Census {
    /// Large anonymous folios, by order.
    pub folios: BTreeMap<u8, Amount>,
    /// Anonymous folios that are being freed, whose order cannot be read any more.
    pub unknown: i64,
    /// Anonymous pages that are mapped.
    pub anonymous: i64,
    /// Pages of anonymous folios that blocks map.
    pub blocks: i64,
    /// Other pages that are mapped.
    pub file: i64,
    /// Pages in the page cache of shmem.
    pub shmem: Amount,
    /// Pages in any page cache, and in the swap cache.
    pub cache: Amount,
    /// Pages of folios that are marked as locked (`PG_mlocked`).
    #[serde(default)]
    pub mlocked: i64,
    /// Pages of the largest of these.
    #[serde(default)]
    pub largest_mlocked: i64,
    /// Pages of folios of a PMD's size that are no anonymous memory; an earlier version did not ask.
    #[serde(default)]
    pub large: Option<Large<Amount>>,
    /// Pages of folios that are dirty in the page cache of a file that is written back, and of those under writeback; an earlier
    /// version did not ask.
    #[serde(default)]
    pub written: Option<Written<Amount>>,
    /// Pages of the largest of these.
    #[serde(default)]
    pub largest_written: i64,
    /// Pages of folios that are on a list of the LRU (`PG_lru`), by the list; an earlier version did not ask.
    #[serde(default)]
    pub lists: Option<Lists<i64>>,
    /// Pages of the largest of these.
    #[serde(default)]
    pub largest_listed: i64,
    /// Pins of folios (`FOLL_PIN`); an earlier version did not ask.
    #[serde(default)]
    pub pinned: Option<Amount>,
    /// Pages with `PG_hwpoison`; an earlier version did not ask.
    #[serde(default)]
    pub poisoned: Option<Amount>,
    /// True if each page of a large folio counts its own entries. From 6.15 on it may not (`CONFIG_NO_PAGE_MAPCOUNT`),
    /// and only a walk of the pages shows it. An earlier version of the notes did not have this field.
    #[serde(default)]
    pub counts_pages: bool,
    /// Pages that no list of free memory has and nothing else either; an earlier version did not look.
    #[serde(default)]
    pub lost: Option<Known<Lost>>,
}

/// Pages without a reference, a type, a flag or an owner that are on no list of free memory. A page of an allocation of several
/// that is no compound one looks the same behind the allocation's first page, and is none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// Number of such pages.
    pub pages: u64,
    /// The page frame numbers of the first of them, up to [`Lost::LISTED`].
    pub first: Vec<u64>,
}

impl Lost {
    /// Number of pages that are listed.
    pub const LISTED: usize = 4;

    /// Adds a page.
    pub fn add(&mut self, pfn: u64) {
        self.pages += 1;
        if self.first.len() < Self::LISTED {
            self.first.push(pfn);
        }
    }
}

/// Bounds of a count, if some are just being added or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Amount {
    /// Lower bound.
    pub least: i64,
    /// Upper bound.
    pub most: i64,
}

impl Amount {
    /// Adds so many, which are there for sure or may be.
    pub fn add(&mut self, count: i64, sure: bool) {
        self.least += if sure { count } else { 0 };
        self.most += count;
    }

    /// Returns whether `count` is within the bounds, with a tolerance of `open`.
    #[must_use]
    pub fn holds(self, count: i64, open: i64) -> bool {
        (self.least - open..=self.most + open).contains(&count)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Amount { least, most } = self;
        match least == most {
            true => write!(out, "{least}"),
            false => write!(out, "{least} to {most}"),
        }
    }
}

impl From<i64> for Amount {
    fn from(count: i64) -> Amount {
        Amount {
            least: count,
            most: count,
        }
    }
}

/// A value read from the kernel, or the reason why it was not read.
pub type Known<T> = Result<T, NotRead>;

/// The reason why something was not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotRead {
    /// The reason.
    pub why: String,
    /// True if another instant may show it: it was just being changed.
    pub later: bool,
    /// True if the kernel was built without it, so that it is not judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_built: bool,
}

/// The sums over all CPUs for folios of one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Size {
    /// The order.
    pub order: u8,
    /// `MTHP_STAT_NR_ANON`: anonymous folios.
    pub anonymous: i64,
    /// `MTHP_STAT_NR_ANON_PARTIALLY_MAPPED`: folios that are partially mapped and wait to be split.
    pub partial: i64,
    /// The address of each, of the first CPU.
    pub at: [u64; 2],
}

/// All queues of folios that wait to be split.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queues {
    /// The queues.
    pub queues: Vec<Queue>,
    /// True if a shrinker may have taken folios off a queue to split them. The queue continues to count these.
    pub is_scanned: bool,
}

/// A queue of a node or of a memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// Its owner, in words.
    pub whose: String,
    /// `split_queue_len`.
    pub length: i64,
    /// Address of the length.
    pub at: u64,
    /// The folios on the list, by the page frame number of their first page.
    pub folios: Vec<u64>,
    /// The reason why the list cannot be followed.
    pub problem: Option<String>,
}

/// One zone of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Zone {
    /// Its node's number.
    pub node: u64,
    /// Its name: `DMA`, `Normal`, ...
    pub name: Text,
    /// The lists of free blocks, by order. They are not read while a CPU holds the zone's lock.
    pub areas: Known<Vec<Area>>,
    /// Pages that are counted as free (`NR_FREE_PAGES`), over all CPUs; `None` where the kernel counts others than those on
    /// the lists.
    #[serde(default)]
    pub free: Option<i64>,
    /// Address of the count.
    #[serde(default)]
    pub free_at: u64,
    /// Free pages that each CPU keeps for itself.
    pub cpus: Vec<Known<CpuPages>>,
}

/// The free blocks of one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Area {
    /// The order.
    pub order: u8,
    /// `nr_free`.
    pub counted: i64,
    /// Address of the count.
    pub at: u64,
    /// Blocks on the lists.
    pub listed: i64,
    /// Blocks that are isolated (`MIGRATE_ISOLATE`), which do not count as free memory.
    #[serde(default)]
    pub isolated: i64,
    /// The first that must not be there, or where the lists cannot be followed.
    pub problem: Option<String>,
}

/// The free pages that one CPU keeps for itself (`struct per_cpu_pages`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuPages {
    /// The CPU.
    pub cpu: u64,
    /// `count`, in pages.
    pub counted: i64,
    /// Address of the count.
    pub at: u64,
    /// Pages on its lists.
    pub listed: i64,
    /// The counts by order (`order_count`); empty if the kernel does not keep them, or not at this moment.
    #[serde(default)]
    pub orders: Vec<CpuOrder>,
    /// The blocks on the lists: page frame number and order.
    pub blocks: Vec<(u64, u8)>,
    /// The first that must not be there, or where the lists cannot be followed.
    pub problem: Option<String>,
}

/// The free pages of one order that one CPU keeps for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuOrder {
    /// The order.
    pub order: u8,
    /// `order_count`, in pages.
    pub counted: i64,
    /// Address of the count.
    pub at: u64,
    /// Pages on the lists of this order.
    pub listed: i64,
}

impl Counted {
    /// Returns all addresses of counters.
    pub fn places_mut(&mut self) -> Vec<&mut u64> {
        let sizes = self.sizes.iter_mut().flatten();
        let mut places: Vec<&mut u64> = sizes.flat_map(|size| &mut size.at).collect();
        let queues = self.queues.iter_mut().flat_map(|all| &mut all.queues);
        places.extend(queues.map(|queue| &mut queue.at));
        for memory in self.memory.iter_mut() {
            places.extend(&mut memory.at);
            let more = memory.file.iter_mut().chain(&mut memory.cache);
            let more = more.chain(&mut memory.mlocked).chain(&mut memory.isolated);
            let more = more.chain(&mut memory.pinned).chain(&mut memory.poisoned);
            places.extend(more.map(|(_, at)| at));
            if let Some(large) = &mut memory.large {
                let (cached, mapped) = (&mut large.shmem, &mut large.shmem_mapped);
                let all = [cached, mapped, &mut large.file, &mut large.file_mapped];
                places.extend(all.map(|(_, at)| at));
            }
            if let Some(written) = &mut memory.written {
                let both = [&mut written.dirty, &mut written.under_way];
                places.extend(both.map(|(_, at)| at));
                places.push(&mut written.pending.1);
            }
            for lists in memory.lists.iter_mut().flatten() {
                let all = [
                    &mut lists.anonymous,
                    &mut lists.file,
                    &mut lists.unevictable,
                ];
                places.extend(all.map(|(_, at)| at));
            }
        }
        let committed = self.committed.iter_mut().flatten();
        for committed in committed {
            places.push(&mut committed.at);
            places.extend(committed.limited.iter_mut().map(|it| &mut it.at));
        }
        let areas = self.swap.iter_mut().flat_map(|swap| &mut swap.areas);
        places.extend(areas.map(|area| &mut area.at));
        for zone in self.zones.iter_mut().flatten() {
            places.extend(zone.free.is_some().then_some(&mut zone.free_at));
            let areas = zone.areas.iter_mut().flatten();
            places.extend(areas.map(|area| &mut area.at));
            let cpus = zone.cpus.iter_mut().flatten();
            for cpu in cpus {
                places.push(&mut cpu.at);
                places.extend(cpu.orders.iter_mut().map(|order| &mut order.at));
            }
        }
        places
    }

    /// Returns whether another instant may show more.
    #[must_use]
    pub fn later(&self) -> bool {
        let later = |why: Option<&NotRead>| why.is_some_and(|why| why.later);
        let zones = self.zones.as_deref().unwrap_or_default();
        later(self.sizes.as_ref().err())
            || later(self.queues.as_ref().err())
            || later(self.zones.as_ref().err())
            || later(self.memory.as_ref().err())
            || later(self.swap.as_ref().err())
            || later(self.committed.as_ref().and_then(|it| it.as_ref().err()))
            || self.committed.iter().flatten().any(Committed::is_busy)
            || self
                .memory
                .iter()
                .any(|memory| later(memory.lists.as_ref().and_then(|it| it.as_ref().err())))
            || zones.iter().any(|zone| {
                let mut cpus = zone.cpus.iter();
                later(zone.areas.as_ref().err()) || cpus.any(|cpu| later(cpu.as_ref().err()))
            })
    }

    /// Returns the pages that CPUs keep for themselves, which are free: ranges of page frame numbers, in order.
    #[must_use]
    pub fn kept(&self) -> Vec<std::ops::Range<u64>> {
        kept(self.zones.as_deref().unwrap_or_default())
    }
}

/// Returns the pages of these zones that CPUs keep for themselves: ranges of page frame numbers, in order.
#[must_use]
pub fn kept(zones: &[Zone]) -> Vec<std::ops::Range<u64>> {
    let cpus = zones.iter().flat_map(|zone| zone.cpus.iter().flatten());
    let blocks = cpus.flat_map(|cpu| &cpu.blocks);
    let mut kept: Vec<_> = blocks
        .map(|(pfn, order)| *pfn..pfn + (1 << order))
        .collect();
    kept.sort_unstable_by_key(|range| range.start);
    kept
}
