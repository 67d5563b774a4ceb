// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's counters of events (`vm_event_states`, mm/vmstat.c), and how many folios were split.

use linux::counted::{Events, FOLIO_SPLIT, NAMES};
use stage1::PhysMemory;

use crate::kernel::View;
use crate::per_cpu::{word, PerCpu};
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Where they are.
#[derive(Debug)]
pub(super) struct Layout {
    variable: u64,
    /// The array, by `enum vm_event_item`.
    events: Member,
    items: Vec<(&'static str, u64)>,
    splits: Option<Splits>,
    cpus: PerCpu,
}

/// Where `mthp_stats` has the splits of each order.
#[derive(Clone, Copy, Debug)]
struct Splits {
    variable: u64,
    stats: Member,
    items: u64,
    item: u64,
}

/// Bytes of one counter, an `unsigned long`.
const COUNTER: u64 = 8;

impl Splits {
    fn new(kernel: &Kernel) -> Result<Splits, StructureError> {
        let item = |name| kernel.types.enumerator("mthp_stat_item", name);
        Ok(Splits {
            variable: kernel.variable("mthp_stats")?,
            stats: kernel.types.member("mthp_stat", "stats")?,
            items: item("__MTHP_STAT_COUNT")?.max(1),
            item: item("MTHP_STAT_SPLIT")?,
        })
    }
}

impl Layout {
    pub(super) fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        let events = kernel.types.member("vm_event_state", "event")?;
        let items = NAMES.into_iter().filter_map(|name| {
            let item = kernel
                .types
                .enumerator("vm_event_item", &name.to_uppercase());
            Some((name, item.ok()?))
        });
        let items = items.filter(|(_, item)| (item + 1) * COUNTER <= events.size);
        Ok(Layout {
            variable: kernel.variable("vm_event_states")?,
            events,
            items: items.collect(),
            splits: Splits::new(kernel).ok(),
            cpus: PerCpu::new(kernel, view)?,
        })
    }

    /// `all_vm_events()`: what a CPU has counted before it was taken offline another has taken over.
    pub(super) fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Events, StructureError> {
        let mut events = Events::default();
        let what = "the kernel's counters of events";
        for cpu in 0..self.cpus.offsets.len() {
            let own = self.cpus.address(self.variable, cpu);
            for (name, item) in &self.items {
                let at = own.wrapping_add(self.events.offset + COUNTER * item);
                let count = view.number(what, at, word(COUNTER))?;
                let sum = events.0.entry((*name).to_owned()).or_default();
                *sum = sum.wrapping_add(count);
            }
            let Some(splits) = self.splits else { continue };
            let own = self.cpus.address(splits.variable, cpu);
            let sum = events.0.entry(FOLIO_SPLIT.to_owned()).or_default();
            for order in 0..splits.stats.size / (splits.items * COUNTER) {
                let item = order * splits.items + splits.item;
                let at = own.wrapping_add(splits.stats.offset + COUNTER * item);
                *sum = sum.wrapping_add(view.number(what, at, word(COUNTER))?);
            }
        }
        Ok(events)
    }
}
