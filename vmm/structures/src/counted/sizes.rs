// SPDX-License-Identifier: GPL-2.0-only
//! The counters of large folios, by order: `mthp_stats`.

use linux::counted::Size;
use stage1::PhysMemory;

use crate::kernel::View;
use crate::per_cpu::PerCpu;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Where they are.
#[derive(Debug)]
pub(super) struct Layout {
    variable: u64,
    /// `stats[order][item]`.
    stats: Member,
    /// How many items there are; that the array has two dimensions the types do not tell.
    items: u64,
    anonymous: u64,
    partial: u64,
    cpus: PerCpu,
}

/// Bytes of one counter, an `unsigned long`.
const COUNTER: u64 = 8;

impl Layout {
    pub(super) fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        let types = &kernel.types;
        let item = |name| types.enumerator("mthp_stat_item", name);
        let layout = Layout {
            variable: kernel.variable("mthp_stats")?,
            stats: types.member("mthp_stat", "stats")?,
            items: item("__MTHP_STAT_COUNT")?,
            anonymous: item("MTHP_STAT_NR_ANON")?,
            partial: item("MTHP_STAT_NR_ANON_PARTIALLY_MAPPED")?,
            cpus: PerCpu::new(kernel, view)?,
        };
        let least = layout.anonymous.max(layout.partial);
        if layout.items <= least || layout.stats.size % layout.row() != 0 {
            return Err(StructureError::Missing(
                "mthp_stat with stats[][] by item".into(),
            ));
        }
        Ok(layout)
    }

    /// Bytes of one order's counters.
    fn row(&self) -> u64 {
        COUNTER * self.items
    }

    /// `sum_mthp_stat()` of each.
    pub(super) fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Vec<Size>, StructureError> {
        let place = |order, item| self.stats.offset + order * self.row() + COUNTER * item;
        let what = "the counters of large folios";
        let mut sizes: Vec<Size> = (1..self.stats.size / self.row())
            .map(|order| Size {
                order: order as u8,
                anonymous: 0,
                partial: 0,
                at: [place(order, self.anonymous), place(order, self.partial)],
            })
            .collect();
        for cpu in 0..self.cpus.offsets.len() {
            let own = self.cpus.address(self.variable, cpu);
            let all = view.bytes(what, own, self.stats.offset + self.stats.size)?;
            let number = |at: u64| {
                let bytes = all.get(at as usize..).and_then(|rest| rest.first_chunk());
                bytes.map_or(0, |bytes| i64::from_le_bytes(*bytes))
            };
            for size in &mut sizes {
                let [anonymous, partial] = size.at;
                // As the kernel adds them up: one CPU counts down what another has counted up.
                size.anonymous = size.anonymous.wrapping_add(number(anonymous));
                size.partial = size.partial.wrapping_add(number(partial));
            }
        }
        for size in &mut sizes {
            let first = |at: u64| self.cpus.address(self.variable, 0).wrapping_add(at);
            size.at = size.at.map(first);
        }
        Ok(sizes)
    }
}
