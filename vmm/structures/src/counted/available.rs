// SPDX-License-Identifier: GPL-2.0-only
//! How much memory the kernel would say is available (`MemAvailable`), from its counters and marks.

use linux::counted::Available;
use stage1::PhysMemory;

use super::memory::Counters;
use super::nodes;
use crate::kernel::View;
use crate::per_cpu::{word, PerCpu};
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Where what it is made of is.
#[derive(Debug)]
pub(super) struct Layout {
    nodes: Vec<u64>,
    of_node: Counters,
    of_zone: Counters,
    /// `NR_ACTIVE_FILE` and `NR_INACTIVE_FILE`.
    cache: [u64; 2],
    /// `NR_SLAB_RECLAIMABLE_B` and `NR_KERNEL_MISC_RECLAIMABLE`.
    reclaimable: [u64; 2],
    free: u64,
    /// `node_zones`, and the bytes of one.
    zones: (Member, u64),
    present: Member,
    marks: Member,
    low: u64,
    boost: Member,
    reserved: u64,
    cpus: PerCpu,
}

const WHAT: &str = "a zone";

impl Layout {
    pub(super) fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        let types = &kernel.types;
        let item = |name| types.enumerator("node_stat_item", name);
        let nodes = nodes(kernel, view)?;
        Ok(Layout {
            nodes: nodes.into_iter().map(|(_, node)| node).collect(),
            of_node: Counters::of_nodes(kernel)?,
            of_zone: Counters::of_zones(kernel)?,
            cache: [item("NR_ACTIVE_FILE")?, item("NR_INACTIVE_FILE")?],
            reclaimable: [
                item("NR_SLAB_RECLAIMABLE_B")?,
                item("NR_KERNEL_MISC_RECLAIMABLE")?,
            ],
            free: types.enumerator("zone_stat_item", "NR_FREE_PAGES")?,
            zones: (
                types.member("pglist_data", "node_zones")?,
                types.size("zone")?,
            ),
            present: types.member("zone", "present_pages")?,
            marks: types.member("zone", "_watermark")?,
            low: types.enumerator("zone_watermarks", "WMARK_LOW")?,
            boost: types.member("zone", "watermark_boost")?,
            reserved: kernel.variable("totalreserve_pages")?,
            cpus: PerCpu::new(kernel, view)?,
        })
    }

    /// As `si_mem_available()` (mm/show_mem.c) has it, with what CPUs have not added to the counters yet.
    pub(super) fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Available, StructureError> {
        let mut found = Available {
            reserved: view.number("totalreserve_pages", self.reserved, word(8))? as i64,
            ..Available::default()
        };
        let (zones, size) = self.zones;
        for node in &self.nodes {
            let item = |item| self.of_node.read(view, *node, item, &self.cpus);
            for cache in self.cache {
                found.cache += item(cache)?;
            }
            for reclaimable in self.reclaimable {
                found.reclaimable += item(reclaimable)?;
            }
            for at in 0..zones.elements {
                let zone = node.wrapping_add(zones.offset + at * size);
                // One without memory has none that is free; the counters of its CPUs are those of all such zones. Marks it has.
                if view.number(WHAT, zone, self.present)? != 0 {
                    found.free += self.of_zone.read(view, zone, self.free, &self.cpus)?;
                }
                let mark = zone.wrapping_add(self.marks.offset + 8 * self.low);
                found.low += view.number(WHAT, mark, word(8))? as i64;
                found.low += view.number(WHAT, zone, self.boost)? as i64;
            }
        }
        found.sum();
        Ok(found)
    }
}
