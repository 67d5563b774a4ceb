// SPDX-License-Identifier: GPL-2.0-only
//! Free memory: the buddy allocator's lists and those of each CPU, of each zone.

use std::ops::Range;

use linux::counted::{Area, CpuPages, Known, NotRead, Zone};
use stage1::PhysMemory;

use super::cpu_orders::CpuOrders;
use super::memory::Counters;
use super::{not_read, zone_addresses};
use crate::kernel::View;
use crate::lock::SpinLock;
use crate::pages::{Free, Pages};
use crate::per_cpu::{word, PerCpu};
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Where they are.
#[derive(Debug)]
pub(super) struct Layout {
    lock: SpinLock,
    zones: Vec<(u64, u64)>,
    lock_of: Member,
    name: Member,
    start: Member,
    spanned: Member,
    present: Member,
    areas: Member,
    lists: Member,
    free: Member,
    pageset: Member,
    /// Pages that were freed while the zone's lock was held (`free_pages_nolock()`), where the kernel has such.
    aside: Option<Member>,
    cpu_lock: Member,
    cpu_count: Member,
    cpu_lists: Member,
    cpu_orders: CpuOrders,
    cpus: PerCpu,
    /// The list of isolated blocks, where there is one.
    isolated: Option<u64>,
    /// The counters, and `NR_FREE_PAGES` of them.
    counters: Option<(Counters, u64)>,
}

/// Bytes of a `struct list_head`.
const LIST: u64 = 16;
const WHAT: &str = "a zone";

/// `NR_FREE_PAGES`, where it counts what is on the lists and nothing else: memory that is not accepted yet is on none.
fn counters(kernel: &Kernel) -> Option<(Counters, u64)> {
    let item = |name| kernel.types.enumerator("zone_stat_item", name);
    if item("NR_UNACCEPTED").is_ok() {
        return None;
    }
    let counters = Counters::of_zones(kernel).ok()?;
    Some((counters, item("NR_FREE_PAGES").ok()?))
}

impl Layout {
    pub(super) fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        let types = &kernel.types;
        let zone = |name| types.member("zone", name);
        let pages = |name| types.member("per_cpu_pages", name);
        Ok(Layout {
            lock: SpinLock::new(&kernel.types)?,
            zones: zone_addresses(kernel, view)?,
            lock_of: zone("lock")?,
            name: zone("name")?,
            start: zone("zone_start_pfn")?,
            spanned: zone("spanned_pages")?,
            present: zone("present_pages")?,
            areas: zone("free_area")?,
            lists: types.member("free_area", "free_list")?,
            free: types.member("free_area", "nr_free")?,
            pageset: zone("per_cpu_pageset")?,
            aside: zone("trylock_free_pages.first").ok(),
            cpu_lock: pages("lock")?,
            cpu_count: pages("count")?,
            cpu_lists: pages("lists")?,
            cpu_orders: CpuOrders::new(kernel, view.upper)?,
            cpus: PerCpu::new(kernel, view)?,
            isolated: types.enumerator("migratetype", "MIGRATE_ISOLATE").ok(),
            counters: counters(kernel),
        })
    }

    /// The page frame numbers of each zone's memory that is the kernel's own, and no device's.
    pub(super) fn spans<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Vec<Range<u64>>, StructureError> {
        let mut spans = Vec::new();
        for (_, zone) in &self.zones {
            let number = |member| view.number(WHAT, *zone, member);
            let device = || Ok(view.text(WHAT, number(self.name)?, 16)? == "Device");
            if number(self.present)? != 0 && !device()? {
                let start = number(self.start)?;
                spans.push(start..start.saturating_add(number(self.spanned)?));
            }
        }
        Ok(spans)
    }

    /// Returns whether a zone has free pages that are not on its lists yet.
    pub(super) fn has_pages_aside<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<bool, StructureError> {
        let Some(aside) = self.aside else {
            return Ok(false);
        };
        for (_, zone) in &self.zones {
            if view.number(WHAT, *zone, aside)? != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pages: &Pages<'_, M>,
    ) -> Result<Vec<Zone>, StructureError> {
        let mut zones = Vec::new();
        for (node, zone) in &self.zones {
            let number = |member| view.number(WHAT, *zone, member);
            // What has no memory has the lists of a CPU that all such share.
            if number(self.present)? == 0 {
                continue;
            }
            let start = number(self.start)?;
            let span = start..start.saturating_add(number(self.spanned)?);
            let free = Free {
                pages,
                span: span.clone(),
            };
            let pageset = number(self.pageset)?;
            let cpus = 0..self.cpus.offsets.len();
            zones.push(Zone {
                node: *node,
                name: view.text(WHAT, number(self.name)?, 16)?,
                areas: self.areas(view, *zone, &free),
                free: self
                    .counters
                    .and_then(|(counters, item)| counters.read(view, *zone, item, &self.cpus).ok()),
                free_at: self
                    .counters
                    .map_or(0, |(counters, item)| counters.address(*zone, item)),
                cpus: cpus
                    .map(|cpu| self.cpu(view, pageset, cpu, &free))
                    .collect(),
            });
        }
        Ok(zones)
    }

    fn areas<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        zone: u64,
        free: &Free<'_, '_, M>,
    ) -> Known<Vec<Area>> {
        let unlocked = self.unlocked(view, zone.wrapping_add(self.lock_of.offset), "a zone");
        unlocked?;
        let size = self.areas.size / self.areas.elements.max(1);
        let area = |order| {
            let at = zone.wrapping_add(self.areas.offset + order * size);
            let (mut listed, mut isolated, mut problem) = (0, 0, None);
            for list in 0..self.lists.elements {
                let head = at.wrapping_add(self.lists.offset + LIST * list);
                let first = view.number(WHAT, head, word(8))?;
                match free.blocks((head, first), order as u8) {
                    Ok(count) => {
                        listed += count as i64;
                        isolated += i64::from(self.isolated == Some(list)) * count as i64;
                    }
                    Err(why) => problem = problem.or(Some(why)),
                }
            }
            Ok(Area {
                order: order as u8,
                counted: view.number(WHAT, at, self.free)? as i64,
                at: at.wrapping_add(self.free.offset),
                listed,
                isolated,
                problem,
            })
        };
        let areas: Result<_, StructureError> = (0..self.areas.elements).map(area).collect();
        areas.map_err(|error| not_read(&error))
    }

    fn cpu<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pageset: u64,
        cpu: usize,
        free: &Free<'_, '_, M>,
    ) -> Known<CpuPages> {
        let at = self.cpus.address(pageset, cpu);
        self.unlocked(
            view,
            at.wrapping_add(self.cpu_lock.offset),
            "a CPU's free pages",
        )?;
        let mut pages = CpuPages {
            cpu: cpu as u64,
            counted: 0,
            at: at.wrapping_add(self.cpu_count.offset),
            listed: 0,
            orders: self.cpu_orders.counted(view, at)?,
            blocks: Vec::new(),
            problem: None,
        };
        let what = "the free pages of a CPU";
        let count = view.number(what, at, self.cpu_count);
        pages.counted = i64::from(count.map_err(|error| not_read(&error))? as u32 as i32);
        for list in 0..self.cpu_lists.elements {
            let order = self.cpu_orders.of(list);
            let head = at.wrapping_add(self.cpu_lists.offset + LIST * list);
            let first = view.number(what, head, word(8));
            let first = first.map_err(|error| not_read(&error))?;
            let mut blocks = Vec::new();
            if let Err(why) = free.kept((head, first), order, &mut blocks) {
                pages.problem.get_or_insert(why);
            }
            let listed = (blocks.len() as i64) << order;
            pages.listed += listed;
            if let Some(of) = pages.orders.iter_mut().find(|of| of.order == order) {
                of.listed += listed;
            }
            pages.blocks.extend(blocks);
        }
        Ok(pages)
    }

    fn unlocked<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        lock: u64,
        whose: &str,
    ) -> Known<()> {
        let held = self.lock.is_held(view, lock);
        match held.map_err(|error| not_read(&error))? {
            false => Ok(()),
            true => Err(NotRead {
                why: format!("the lock of {whose} was held"),
                later: true,
                not_built: false,
            }),
        }
    }
}
