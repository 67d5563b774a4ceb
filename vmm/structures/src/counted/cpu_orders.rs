// SPDX-License-Identifier: GPL-2.0-only
//! Which orders a CPU keeps lists of free pages of, and how many pages it counts of each.

use linux::counted::{CpuOrder, Known};
use stage1::{Level, PhysMemory, Regime};

use super::not_read;
use crate::kernel::{Kernel, View};
use crate::per_cpu::word;
use crate::types::Member;
use crate::StructureError;

/// Every kernel has lists of orders 0 to this (`PAGE_ALLOC_COSTLY_ORDER`), one for each of the first migrate types.
const COSTLY: u8 = 3;

/// `order_to_pindex()`: behind those the lists of a contiguous block, one for each migrate type as well, on kernels with our
/// patch; and with transparent huge pages one or two of folios that a table of level 2 maps.
#[derive(Debug)]
pub(super) struct CpuOrders {
    types: u64,
    /// Orders in the order of their lists.
    orders: Vec<u8>,
    /// `order_count`, with an element for each of them.
    counts: Option<Member>,
    /// `percpu_pagelist_high_order`, where pages are counted by order only while it is not 0.
    setting: Option<u64>,
}

impl CpuOrders {
    pub(super) fn new(kernel: &Kernel, upper: &Regime) -> Result<CpuOrders, StructureError> {
        let types = &kernel.types;
        let lists = types.member("per_cpu_pages", "lists")?.elements;
        let counts = types.member("per_cpu_pages", "order_count").ok();
        let each = types.enumerator("migratetype", "MIGRATE_PCPTYPES")?;
        let missing = || {
            StructureError::Missing(format!(
                "per_cpu_pages with lists of orders 0 to {COSTLY}, of contiguous blocks and of huge pages (it has {lists})"
            ))
        };
        let low = u64::from(COSTLY + 1) * each;
        let mut more = lists.checked_sub(low).ok_or_else(missing)?;
        let mut orders: Vec<u8> = (0..=COSTLY).collect();
        if counts.is_some() && more >= each {
            let pages = upper.contiguous_entries(Level::L3).ok_or_else(missing)?;
            orders.push(pages.ilog2() as u8);
            more -= each;
        }
        if more > 0 {
            orders.push(upper.granule.bytes().ilog2() as u8 - 3);
        }
        let known = counts.is_none_or(|counts| counts.elements == orders.len() as u64);
        if each == 0 || more > 2 || !known {
            return Err(missing());
        }
        Ok(CpuOrders {
            types: each,
            orders,
            counts,
            setting: kernel.variable("percpu_pagelist_high_order").ok(),
        })
    }

    /// The order of the blocks on a list.
    pub(super) fn of(&self, list: u64) -> u8 {
        let row = (list / self.types) as usize;
        self.orders[row.min(self.orders.len() - 1)]
    }

    /// Reads what is counted of each order in the `per_cpu_pages` at `at`, with nothing listed yet. Empty where the kernel
    /// does not count by order, or does not now.
    pub(super) fn counted<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        at: u64,
    ) -> Known<Vec<CpuOrder>> {
        let Some(counts) = self.counts else {
            return Ok(Vec::new());
        };
        if let Some(setting) = self.setting {
            let setting = view.number("percpu_pagelist_high_order", setting, word(4));
            if setting.map_err(|error| not_read(&error))? as u32 == 0 {
                return Ok(Vec::new());
            }
        }
        let size = counts.size / counts.elements;
        let counted = self.orders.iter().zip(0..).map(|(order, row)| {
            let at = at.wrapping_add(counts.offset + size * row);
            let count = view.number("the free pages of a CPU", at, word(size))?;
            Ok(CpuOrder {
                order: *order,
                counted: i64::from(count as u32 as i32),
                at,
                listed: 0,
            })
        });
        let counted: Result<_, StructureError> = counted.collect();
        counted.map_err(|error| not_read(&error))
    }
}
