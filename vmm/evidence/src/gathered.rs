// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own structures at one instant: what a copy has to hold of them, and what a snapshot keeps to read them by.

use std::collections::BTreeMap;
use std::ops::Range;

use linux::absent::SwapTypes;
use linux::cache::Cache;
use linux::counted::{Counted, Known, Size};
use linux::folio::Claimed;
use linux::structures::NotKnown;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use snapshot::{Cpu, Notes, Snapshot};
use stage1::{PhysMemory, PhysicalAddress, Regime};
use structures::anon_sizes::AnonSizes;
use structures::memcg;
use structures::pages::{self, Pages};
use structures::spaces::Space;
use structures::tasks::Process;
use structures::unlisted::Doing;
use structures::{Structure, StructureError, StructureReader, View, STRUCTURES};

use crate::cgroups::Cgroups;
use crate::claimed_folios::Search;
use crate::cpus::{kernel_half, lower_half};
use crate::inside::Inside;
use crate::mapped::MappedPages;
use crate::page_caches;

/// The reason if nothing of the kernel can be read at an instant.
pub const NO_KERNEL: &str =
    "no CPU showed the kernel's tables when the guest was stopped (with KPTI a CPU in user mode does not)";

/// The kernel's structures at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathered {
    /// Layout of `struct page` and `struct folio`.
    pub layout: pages::Layout,
    /// All address spaces.
    pub spaces: Vec<Space>,
    /// The kernel's counters of all memory; an earlier version did not read them.
    #[serde(default)]
    pub counted: Option<Counted>,
    /// The reason if entries may be counted for an address space that no task has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<String>,
    /// Folios that count mappings and that no address space maps; an earlier version did not keep this.
    #[serde(default, rename = "claimed_folios")]
    pub claimed: Option<Known<Vec<Claimed>>>,
    /// The reason if pages may belong to an address space that exec() makes and no task has yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<String>,
    /// The page caches of the files that the processes map; an earlier version did not look.
    #[serde(default, rename = "page_caches")]
    pub caches: Option<Known<Vec<Cache>>>,
    /// The task that collapses pages of a file, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collapses: Option<String>,
    /// Layout that leads from a folio to its memory cgroup. A copy holds it for folios that the processes map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcg: Option<memcg::Layout>,
    /// Meaning of the swap types, which names entries that are not present; an earlier version did not read it.
    #[serde(default)]
    pub swap: SwapTypes,
    /// The structures of [`STRUCTURES`], by name.
    #[serde(default)]
    structures: BTreeMap<String, Result<Value, NotKnown>>,
    /// One of them, where an earlier version kept it.
    #[serde(default, skip_serializing)]
    anon_sizes: Option<Value>,
    /// Free pages that CPUs keep for themselves.
    #[serde(skip)]
    pub kept: Vec<Range<u64>>,
}

/// The notes' key.
const GATHERED: &str = "kernel_structures";

impl Gathered {
    /// Reads, through `memory`, what will be asked of the copy: all address spaces and their tables, and the pages that
    /// those with these first `tables` map. `lower` is any process's half.
    ///
    /// # Errors
    /// If the kernel's structures cannot be read.
    pub fn gather<M: PhysMemory + ?Sized>(
        inside: &Inside,
        memory: &M,
        cpus: &[Cpu],
        (lower, tables): (&Regime, &[u64]),
    ) -> Result<Gathered, NotKnown> {
        let (layout, spaces) = inside.layouts.as_ref().map_err(not_known)?;
        let upper = kernel_half(cpus).ok_or(NO_KERNEL)?;
        let upper = &upper;
        let view = View { memory, upper };
        let processes = spaces.processes(view).map_err(|error| not_known(&error))?;
        let mut spaces = spaces
            .spaces_of(view, &processes, tables)
            .map_err(|error| not_known(&error))?;
        let mut mapped = MappedPages::new(*lower);
        let pages = Pages::new(layout, view);
        let mut search = Search::new(inside, view);
        let mut others = Vec::new();
        let size = lower.granule.bytes();
        for (at, space) in spaces.iter_mut().enumerate() {
            mapped.regime.root = PhysicalAddress(space.table);
            let (regime, keep) = (mapped.regime, mapped.runs.len());
            mapped.tables.clear();
            stage1::walk(memory, &regime, regime.first, regime.last, &mut mapped);
            if let Ok(search) = &mut search {
                search.take(&mapped.runs[keep..]);
                search.take(&mapped.uncounted);
            }
            mapped.uncounted.clear();
            if !tables.contains(&space.table) {
                mapped.runs.truncate(keep);
                others.extend(mapped.tables.iter().map(|table| (at, *table)));
                continue;
            }
            for table in &mapped.tables {
                match pages.table_is_locked(table / size) {
                    Some(locked) => space.table_locked |= locked,
                    // Whether they belong to the entries that were seen is not known.
                    None => (space.rss, space.tables_bytes, space.hugetlb) = (None, None, None),
                }
            }
        }
        let claimed = search
            .and_then(|mut search| search.claimed(inside, view, (lower, &pages), &mut spaces));
        // An entry and its count change one after the other, under that lock.
        if claimed.as_ref().is_ok_and(|claimed| !claimed.is_empty()) {
            for (at, table) in others {
                spaces[at].table_locked |= pages.table_is_locked(table / size) == Some(true);
            }
        }
        let (doing, counting) = inside.unlisted(memory, cpus, &processes);
        let unlisted = not_listed(&doing, &mut spaces);
        let mut exec = doing.iter().filter(|(_, doing)| *doing == Doing::Exec);
        let exec = exec.next().map(|(process, _)| {
            format!(
                "process {} ({}) was in exec(), whose new address space no task has yet",
                process.tgid, process.name
            )
        });
        let mut collapses = doing.iter().filter(|(_, doing)| *doing == Doing::Collapse);
        let collapses = collapses.next().map(|(process, _)| {
            format!(
                "process {} ({}) was making pages of a file into one",
                process.tgid, process.name
            )
        });
        mapped.runs.sort_unstable();
        let memcg = inside.memcg.as_ref().ok();
        let mut cgroups = Cgroups::new(memcg, view);
        let mut next = 0;
        for (first, count) in mapped.runs {
            let end = first + count;
            let charged = |data| cgroups.touch(data);
            next = next.max(pages.touch(first.max(next).min(end), end, charged));
        }
        let caches = page_caches::read(inside, view, &pages, &spaces);
        let mut counted = inside.counted.read(view, &pages);
        let isolates = |doing: &Doing| *doing == Doing::Isolate;
        if let Ok(memory) = &mut counted.memory {
            memory.counting = counting.map(|cpus| cpus as u64);
            memory.isolating = doing
                .iter()
                .find(|(_, it)| isolates(it))
                .map(|(process, _)| {
                    format!(
                        "process {} ({}) had taken folios from the lists of the LRU",
                        process.tgid, process.name
                    )
                });
        }
        let mut promises = doing
            .iter()
            .filter(|(_, it)| !matches!(it, Doing::Isolate | Doing::Fold));
        let committed = counted.committed.iter_mut().flatten();
        if let Some((committed, (process, _))) = committed.zip(promises.next()).next() {
            committed.busy = Some(format!(
                "process {} ({}) was making, changing or taking down an address space or a file",
                process.tgid, process.name
            ));
        }
        Ok(Gathered {
            layout: layout.clone(),
            spaces,
            counted: Some(counted),
            unlisted,
            claimed: Some(claimed),
            exec,
            caches: Some(caches),
            collapses,
            memcg: memcg.cloned(),
            swap: inside.swap.read(view),
            structures: read_structures(inside, &memory),
            anon_sizes: None,
            kept: Vec::new(),
        })
    }

    /// As a snapshot keeps it.
    ///
    /// # Errors
    /// If it was not read.
    pub fn of(snapshot: &Snapshot) -> Result<Gathered, NotKnown> {
        let kept = snapshot.notes.extra.get(GATHERED);
        let kept = kept.ok_or("the snapshot does not hold the kernel's structures")?;
        let kept: Result<Result<Gathered, NotKnown>, _> = serde_json::from_value(kept.clone());
        let mut kept = kept.map_err(|error| NotKnown::from(error.to_string()))??;
        if let Some(sizes) = kept.anon_sizes.take() {
            kept.structures.insert(AnonSizes::NAME.into(), Ok(sizes));
        }
        kept.kept = kept.counted.as_ref().map_or(Vec::new(), Counted::kept);
        Ok(kept)
    }

    /// Returns whether a snapshot keeps one, or the reason that there is none.
    pub fn is_kept(notes: &Notes) -> bool {
        notes.extra.contains_key(GATHERED)
    }

    /// Keeps it, or why there is nothing.
    pub fn keep(gathered: &Result<Gathered, NotKnown>, notes: &mut Notes) {
        let value = serde_json::to_value(gathered).unwrap_or_default();
        notes.extra.insert(GATHERED.into(), value);
    }

    /// The names of entries that are not present, by what a snapshot keeps; what is not known is left open in them.
    #[must_use]
    pub fn names(snapshot: &Snapshot) -> SwapTypes {
        Gathered::of(snapshot).map_or_else(|_| SwapTypes::default(), |gathered| gathered.swap)
    }

    /// The first tables of all address spaces.
    #[must_use]
    pub fn tables(&self) -> Vec<u64> {
        self.spaces.iter().map(|space| space.table).collect()
    }

    /// Returns whether no structure was being changed.
    pub fn is_quiet(&self) -> bool {
        let counted = self.counted.as_ref();
        let still = |space: &Space| !space.lock.is_held() && !space.table_locked;
        self.unlisted.is_none()
            && self.spaces.iter().all(still)
            && !counted.is_some_and(Counted::later)
    }

    /// The kernel's counters of large anonymous folios, where they were read.
    pub fn sizes(&self) -> Option<&[Size]> {
        self.counted.as_ref()?.sizes.as_deref().ok()
    }

    /// Returns whether each page of a large folio counts its own entries, by the census of all pages.
    pub fn counts_pages(&self) -> bool {
        let census = self.counted.as_ref().map(|counted| &counted.census);
        census.is_some_and(|census| census.as_ref().is_ok_and(|census| census.counts_pages))
    }

    /// Returns the layout of `struct page`.
    pub fn layout(&self) -> pages::Layout {
        self.layout.clone()
    }

    /// Returns a structure of [`STRUCTURES`].
    ///
    /// # Errors
    /// If it was not read.
    pub fn structure<S: Structure>(&self) -> Result<S, NotKnown> {
        let kept = self.structures.get(S::NAME);
        let kept = kept.ok_or("the snapshot does not hold it: it is of an earlier version")?;
        serde_json::from_value(kept.clone()?).map_err(|error| NotKnown::from(error.to_string()))
    }

    /// The address space with this first table.
    pub fn space(&self, table: u64) -> Option<&Space> {
        self.spaces.iter().find(|space| space.table == table)
    }
}

/// Reads each of [`STRUCTURES`].
fn read_structures(
    inside: &Inside,
    memory: &dyn PhysMemory,
) -> BTreeMap<String, Result<Value, NotKnown>> {
    let view = inside.view(memory);
    let read = |it: &StructureReader| {
        let value = (it.read)(&inside.kernel, view);
        (it.name.to_owned(), value.map_err(|error| not_known(&error)))
    };
    STRUCTURES.iter().map(read).collect()
}

/// Returns whether no task changes, makes or ends an address space, as far as that is known: what is read then has
/// entries, VMAs and counts that agree.
#[must_use]
pub fn is_quiet<M: PhysMemory + ?Sized>(inside: &Inside, memory: &M, cpus: &[Cpu]) -> bool {
    let Ok((_, layout)) = &inside.layouts else {
        return true;
    };
    let (lower, spaces) = (lower_half(cpus), layout.spaces(inside.view(memory), &[]));
    let (Some(lower), Ok(spaces)) = (lower, spaces) else {
        return false;
    };
    let tables: Vec<u64> = spaces.iter().map(|space| space.table).collect();
    match Gathered::gather(inside, memory, cpus, (&lower, &tables)) {
        Ok(gathered) => gathered.is_quiet(),
        Err(error) => !error.later,
    }
}

/// Returns the reason if entries may be counted for an address space that no task has. What exec() counts is not held
/// against the entries of the process.
fn not_listed(doing: &[(&Process, Doing)], spaces: &mut [Space]) -> Option<String> {
    let execs = doing.iter().filter(|(_, doing)| *doing == Doing::Exec);
    for (process, _) in execs {
        let of = spaces.iter_mut().filter(|it| it.pid == process.tgid);
        of.for_each(|space| space.rss = None);
    }
    doing.iter().find_map(|(process, doing)| {
        let said = match doing {
            Doing::Fork => {
                "was forking, and a child's entries are counted before it is in any list"
            }
            Doing::End => {
                "was taking an address space down, which need not be of any task any more"
            }
            Doing::Exec | Doing::Collapse | Doing::Promise | Doing::Fold | Doing::Isolate => {
                return None
            }
        };
        Some(format!(
            "process {} ({}) {said}",
            process.tgid, process.name
        ))
    })
}

fn not_known(error: &StructureError) -> NotKnown {
    NotKnown {
        why: error.to_string().into(),
        later: error.may_pass(),
    }
}
