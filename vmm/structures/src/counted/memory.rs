// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's counters of memory: `vm_stat` of nodes and zones, and what each CPU has not added to them yet.

use linux::counted::{Large, Lists, Memory, Written};
use stage1::PhysMemory;

use super::{lru, nodes, not_read, zone_addresses};
use crate::kernel::View;
use crate::per_cpu::{word, PerCpu};
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Where they are.
#[derive(Debug)]
pub(super) struct Layout {
    nodes: Vec<(u64, u64)>,
    counters: Counters,
    anonymous: u64,
    blocks: u64,
    shmem: u64,
    file: u64,
    cache: u64,
    large: Option<Large<u64>>,
    lists: Result<lru::Layout, StructureError>,
    /// `NR_FILE_DIRTY` and `NR_WRITEBACK`, and `NR_ZONE_WRITE_PENDING` of a zone.
    written: Option<Written<u64>>,
    zones: Result<(Vec<u64>, Counters), StructureError>,
    /// `NR_MLOCK` of a zone.
    mlocked: Option<u64>,
    isolated: Option<[u64; 2]>,
    /// `NR_FOLL_PIN_ACQUIRED` and `NR_FOLL_PIN_RELEASED`.
    pins: Option<[u64; 2]>,
    /// The address of `num_poisoned_pages` (mm/memory-failure.c).
    poisoned: Option<u64>,
    cpus: PerCpu,
}

/// One structure's counters: an array of its own, and one of bytes for each CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    what: &'static str,
    array: Member,
    of_cpus: Member,
    differences: Member,
}

/// Bytes of one counter, an `atomic_long_t`.
const COUNTER: u64 = 8;

impl Counters {
    /// Those of a node (`enum node_stat_item`).
    pub(super) fn of_nodes(kernel: &Kernel) -> Result<Counters, StructureError> {
        let inner = ("per_cpu_nodestat", "vm_node_stat_diff");
        Counters::new(kernel, ("pglist_data", "per_cpu_nodestats"), inner)
    }

    /// Those of a zone (`enum zone_stat_item`).
    pub(super) fn of_zones(kernel: &Kernel) -> Result<Counters, StructureError> {
        let inner = ("per_cpu_zonestat", "vm_stat_diff");
        Counters::new(kernel, ("zone", "per_cpu_zonestats"), inner)
    }

    /// Those of `outer`, whose CPUs have a structure `inner` with `differences`.
    fn new(
        kernel: &Kernel,
        (outer, of_cpus): (&'static str, &str),
        (inner, differences): (&str, &str),
    ) -> Result<Counters, StructureError> {
        let counters = Counters {
            what: outer,
            array: kernel.types.member(outer, "vm_stat")?,
            of_cpus: kernel.types.member(outer, of_cpus)?,
            differences: kernel.types.member(inner, differences)?,
        };
        let (array, bytes) = (counters.array, counters.differences);
        let alike = array.elements == bytes.elements && bytes.size == bytes.elements;
        if !alike || array.size != COUNTER * array.elements {
            return Err(StructureError::Missing(format!(
                "struct {outer} with vm_stat[] as long as struct {inner} with {differences}[] of bytes"
            )));
        }
        Ok(counters)
    }

    /// Where counter `item` of the structure at `at` is, without the CPUs' part.
    pub(super) fn address(self, at: u64, item: u64) -> u64 {
        at.wrapping_add(self.array.offset + COUNTER * item)
    }

    /// `zone_page_state_snapshot()`, and not cut off at 0.
    pub(super) fn read<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        at: u64,
        item: u64,
        cpus: &PerCpu,
    ) -> Result<i64, StructureError> {
        let counter = self.address(at, item);
        let mut sum = view.number(self.what, counter, word(COUNTER))? as i64;
        let of_cpus = view.number(self.what, at, self.of_cpus)?;
        for cpu in 0..cpus.offsets.len() {
            let own = cpus
                .address(of_cpus, cpu)
                .wrapping_add(self.differences.offset + item);
            let own = view.number(self.what, own, word(1))?;
            sum = sum.wrapping_add(i64::from(own as u8 as i8));
        }
        Ok(sum)
    }
}

impl Layout {
    pub(super) fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        let item = |name| kernel.types.enumerator("node_stat_item", name);
        let of_zones = |name| kernel.types.enumerator("zone_stat_item", name);
        let both = |one, other| Some([item(one).ok()?, item(other).ok()?]);
        let zones = || {
            let zones = zone_addresses(kernel, view)?.into_iter();
            let counters = Counters::of_zones(kernel)?;
            Ok((zones.map(|(_, zone)| zone).collect(), counters))
        };
        let written = || {
            Ok::<_, StructureError>(Written {
                dirty: item("NR_FILE_DIRTY")?,
                under_way: item("NR_WRITEBACK")?,
                pending: of_zones("NR_ZONE_WRITE_PENDING")?,
            })
        };
        let large = || {
            Ok::<_, StructureError>(Large {
                shmem: item("NR_SHMEM_THPS")?,
                file: item("NR_FILE_THPS")?,
                shmem_mapped: item("NR_SHMEM_PMDMAPPED")?,
                file_mapped: item("NR_FILE_PMDMAPPED")?,
            })
        };
        Ok(Layout {
            nodes: nodes(kernel, view)?,
            counters: Counters::of_nodes(kernel)?,
            anonymous: item("NR_ANON_MAPPED")?,
            blocks: item("NR_ANON_THPS")?,
            shmem: item("NR_SHMEM")?,
            file: item("NR_FILE_MAPPED")?,
            cache: item("NR_FILE_PAGES")?,
            large: large().ok(),
            lists: lru::Layout::new(kernel, view),
            written: written().ok(),
            zones: zones(),
            mlocked: of_zones("NR_MLOCK").ok(),
            isolated: both("NR_ISOLATED_ANON", "NR_ISOLATED_FILE"),
            pins: both("NR_FOLL_PIN_ACQUIRED", "NR_FOLL_PIN_RELEASED"),
            poisoned: kernel.symbols.address("num_poisoned_pages"),
            cpus: PerCpu::new(kernel, view)?,
        })
    }

    /// Over all nodes: collapse_file() puts on one node what it goes on counting on another.
    pub(super) fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Memory, StructureError> {
        let sum = |item| self.sum(view, item);
        let (anonymous, blocks, shmem) =
            (sum(self.anonymous)?, sum(self.blocks)?, sum(self.shmem)?);
        let large = |large: Large<u64>| {
            Ok::<_, StructureError>(Large {
                shmem: sum(large.shmem)?,
                file: sum(large.file)?,
                shmem_mapped: sum(large.shmem_mapped)?,
                file_mapped: sum(large.file_mapped)?,
            })
        };
        let pair = |items: Option<[u64; 2]>, both: fn(i64, i64) -> i64| {
            let Some([one, other]) = items else {
                return Ok(None);
            };
            let (one, other) = (sum(one)?, sum(other)?);
            Ok::<_, StructureError>(Some((both(one.0, other.0), one.1)))
        };
        Ok(Memory {
            anonymous: anonymous.0,
            blocks: blocks.0,
            shmem: shmem.0,
            at: [anonymous.1, blocks.1, shmem.1],
            file: Some(sum(self.file)?),
            cache: Some(sum(self.cache)?),
            mlocked: match self.mlocked {
                Some(item) => self.of_zones(view, item)?,
                None => None,
            },
            written: self.written(view)?,
            large: self.large.map(large).transpose()?,
            lists: Some(match &self.lists {
                Ok(lists) => self.lists(view, lists).map_err(|why| not_read(&why)),
                Err(why) => Err(not_read(why)),
            }),
            isolated: pair(self.isolated, |one, other| one + other)?,
            isolating: None,
            pinned: pair(self.pins, |acquired, released| acquired - released)?,
            poisoned: match self.poisoned {
                Some(at) => {
                    let count = view.number("num_poisoned_pages", at, word(COUNTER))?;
                    Some((count as i64, at))
                }
                None => None,
            },
            cpus: self.cpus.offsets.len() as u64,
            counting: None,
        })
    }

    /// A counter over all nodes, and where the first node has it.
    fn sum<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        item: u64,
    ) -> Result<(i64, u64), StructureError> {
        let mut sum = 0i64;
        for (_, node) in &self.nodes {
            sum = sum.wrapping_add(self.counters.read(view, *node, item, &self.cpus)?);
        }
        let first = self.nodes.first().map_or(0, |(_, node)| *node);
        Ok((sum, self.counters.address(first, item)))
    }

    /// Reads the counters of the LRU lists.
    fn lists<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        lists: &lru::Layout,
    ) -> Result<Lists<(i64, u64)>, StructureError> {
        lists.is_at_rest(view)?;
        // Together, and where the first of them is.
        let all = |items: &[u64]| {
            let mut sum = (0, 0);
            for item in items.iter().rev() {
                let (count, at) = self.sum(view, *item)?;
                sum = (sum.0 + count, at);
            }
            Ok::<_, StructureError>(sum)
        };
        Ok(Lists {
            anonymous: all(&lists.items.anonymous)?,
            file: all(&lists.items.file)?,
            unevictable: all(&lists.items.unevictable)?,
        })
    }

    /// Reads the counters of writeback.
    fn written<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Option<Written<(i64, u64)>>, StructureError> {
        let Some(written) = self.written else {
            return Ok(None);
        };
        let pending = self.of_zones(view, written.pending)?;
        pending
            .map(|pending| {
                Ok(Written {
                    dirty: self.sum(view, written.dirty)?,
                    under_way: self.sum(view, written.under_way)?,
                    pending,
                })
            })
            .transpose()
    }

    /// A counter over all zones, and where the first zone has it.
    fn of_zones<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        item: u64,
    ) -> Result<Option<(i64, u64)>, StructureError> {
        let Ok((zones, counters)) = &self.zones else {
            return Ok(None);
        };
        let mut sum = 0i64;
        for zone in zones {
            sum = sum.wrapping_add(counters.read(view, *zone, item, &self.cpus)?);
        }
        let first = zones.first().map(|zone| counters.address(*zone, item));
        Ok(first.map(|at| (sum, at)))
    }
}
