// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's counters of all its memory, and the lists that they must agree with, read at one instant.

mod available;
mod cgroups;
mod committed;
mod cpu_orders;
mod events;
mod list_lru;
mod lists;
mod lru;
mod memory;
mod queues;
mod sizes;
mod swap;
mod zones;

use std::ops::Range;

use linux::counted::{kept, Counted, Events, Known, NotRead, Zone};
use stage1::PhysMemory;

use crate::kernel::View;
use crate::pages::Pages;
use crate::per_cpu::word;
use crate::{Kernel, StructureError};

/// Layouts of this kernel's counters and lists; each part by itself, as a kernel may have one and not another.
#[derive(Debug)]
pub struct Layout {
    sizes: Result<sizes::Layout, StructureError>,
    queues: Result<queues::Layout, StructureError>,
    zones: Result<zones::Layout, StructureError>,
    memory: Result<memory::Layout, StructureError>,
    swap: Result<swap::Layout, StructureError>,
    committed: Result<committed::Layout, StructureError>,
    available: Result<available::Layout, StructureError>,
    events: Result<events::Layout, StructureError>,
}

/// More NUMA nodes than any kernel has (`MAX_NUMNODES` is at most 1024).
const MOST_NODES: u64 = 1024;

impl Layout {
    /// As this kernel has it.
    pub fn new<M: PhysMemory + ?Sized>(kernel: &Kernel, view: View<'_, M>) -> Layout {
        Layout {
            sizes: with(kernel, THP).and_then(|()| sizes::Layout::new(kernel, view)),
            queues: with(kernel, THP).and_then(|()| queues::Layout::new(kernel, view)),
            zones: zones::Layout::new(kernel, view),
            memory: memory::Layout::new(kernel, view),
            swap: with(kernel, SWAP).and_then(|()| swap::Layout::new(kernel)),
            committed: committed::Layout::new(kernel, view),
            available: available::Layout::new(kernel, view),
            events: events::Layout::new(kernel, view),
        }
    }

    /// The page frame numbers of all memory, zone by zone, without that of devices.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn spans<M: PhysMemory + ?Sized>(&self, view: View<'_, M>) -> Known<Vec<Range<u64>>> {
        known(&self.zones, |layout| layout.spans(view))
    }

    /// Reads what the kernel counts of events.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn events<M: PhysMemory + ?Sized>(&self, view: View<'_, M>) -> Known<Events> {
        known(&self.events, |layout| layout.read(view))
    }

    /// Returns the pages that CPUs keep for themselves, where no free page is anywhere but on the lists of `zones`.
    fn kept<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        zones: &Known<Vec<Zone>>,
    ) -> Known<Vec<Range<u64>>> {
        let all = zones.as_deref().map_err(Clone::clone)?;
        let not = |why: &str, later| NotRead {
            why: why.into(),
            later,
            not_built: false,
        };
        for zone in all {
            zone.areas.as_ref().map_err(Clone::clone)?;
            for cpu in &zone.cpus {
                let cpu = cpu.as_ref().map_err(Clone::clone)?;
                if cpu.problem.is_some() {
                    return Err(not("a CPU's list of free pages is wrong", false));
                }
            }
        }
        let aside = known(&self.zones, |layout| layout.has_pages_aside(view))?;
        if aside {
            let why =
                "pages were freed while a zone's lock was held, and are on no list of its own yet";
            return Err(not(why, true));
        }
        Ok(kept(all))
    }

    /// Reads all of it.
    pub fn read<M: PhysMemory + ?Sized>(&self, view: View<'_, M>, pages: &Pages<'_, M>) -> Counted {
        let zones = known(&self.zones, |layout| layout.read(view, pages));
        let kept = self.kept(view, &zones);
        Counted {
            sizes: known(&self.sizes, |layout| layout.read(view)),
            queues: known(&self.queues, |layout| layout.read(view, pages)),
            zones,
            memory: known(&self.memory, |layout| layout.read(view)),
            swap: known(&self.swap, |layout| layout.read(view, pages)),
            committed: Some(known(&self.committed, |layout| layout.read(view))),
            available: known(&self.available, |layout| layout.read(view)),
            events: self.events(view),
            census: self.spans(view).and_then(|spans| {
                pages.census(spans, kept).map_err(|why| NotRead {
                    why,
                    later: false,
                    not_built: false,
                })
            }),
        }
    }
}

/// An option of the kernel, and a function that is there with it only. A kernel's symbols always include its functions.
type BuiltWith = (&'static str, &'static str);
const THP: BuiltWith = ("CONFIG_TRANSPARENT_HUGEPAGE", "do_huge_pmd_anonymous_page");
const SWAP: BuiltWith = ("CONFIG_SWAP", "si_swapinfo");

fn with(kernel: &Kernel, (option, function): BuiltWith) -> Result<(), StructureError> {
    let found = kernel.symbols.address(function).map(|_| ());
    found.ok_or(StructureError::NotBuilt(option))
}

fn known<L, T>(
    layout: &Result<L, StructureError>,
    read: impl FnOnce(&L) -> Result<T, StructureError>,
) -> Known<T> {
    let layout = layout.as_ref().map_err(not_read)?;
    read(layout).map_err(|error| not_read(&error))
}

pub(crate) fn not_read(error: &StructureError) -> NotRead {
    NotRead {
        why: error.to_string(),
        later: error.may_pass(),
        not_built: matches!(error, StructureError::NotBuilt(_)),
    }
}

/// The numbers of the nodes and the addresses of their zones (`struct zone`), those without memory too.
fn zone_addresses<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
) -> Result<Vec<(u64, u64)>, StructureError> {
    let of_node = kernel.types.member("pglist_data", "node_zones")?;
    let size = kernel.types.size("zone")?;
    let zones = nodes(kernel, view)?.into_iter().flat_map(|(node, data)| {
        (0..of_node.elements).map(move |at| (node, data.wrapping_add(of_node.offset + at * size)))
    });
    Ok(zones.collect())
}

/// The addresses of all nodes' `struct pglist_data`, with their numbers.
fn nodes<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
) -> Result<Vec<(u64, u64)>, StructureError> {
    let Ok(array) = kernel.variable("node_data") else {
        // Without CONFIG_NUMA there is one.
        return Ok(vec![(0, kernel.variable("contig_page_data")?)]);
    };
    let count = match kernel.variable("nr_node_ids") {
        Ok(count) => view.number("nr_node_ids", count, word(4))?,
        Err(_) => 1,
    };
    let mut nodes = Vec::new();
    for node in 0..count.min(MOST_NODES) {
        let data = view.number("node_data", array.wrapping_add(8 * node), word(8))?;
        if data != 0 {
            nodes.push((node, data));
        }
    }
    match nodes.is_empty() {
        false => Ok(nodes),
        true => Err(StructureError::Inconsistent {
            what: "node_data",
            va: array,
            why: "no node has memory".into(),
        }),
    }
}
