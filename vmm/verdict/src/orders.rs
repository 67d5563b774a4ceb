// SPDX-License-Identifier: GPL-2.0-only
//! Which of a process's order records decided what an address maps to.

use std::collections::BTreeMap;

use linux::order::{OrderRecord, OrderRecords};
use rangemap::RangeMap;

/// The records of one process, and by address the newest.
#[derive(Debug)]
pub(crate) struct Newest<'a> {
    records: Vec<&'a OrderRecord>,
    at: RangeMap<u64, usize>,
    complete_since: u64,
}

impl<'a> Newest<'a> {
    /// Returns the newest records of process `tgid`; `page` is the granule, in bytes.
    pub fn new(orders: Option<&'a OrderRecords>, tgid: u32, page: u64) -> Newest<'a> {
        let all = orders.map_or(&[][..], |orders| &orders.records);
        let records: Vec<_> = all.iter().filter(|record| record.tgid == tgid).collect();
        let mut at = RangeMap::new();
        // By time: what comes later hides what was there.
        for (index, record) in records.iter().enumerate() {
            let alone = (record.address & !(page - 1), page);
            let (start, size) = record.folio(page).unwrap_or(alone);
            if start < start.saturating_add(size) {
                at.insert(start..start.saturating_add(size), index);
            }
        }
        Newest {
            records,
            at,
            complete_since: complete_since(all),
        }
    }

    /// All of the process, oldest first.
    pub fn records(&self) -> &[&'a OrderRecord] {
        &self.records
    }

    /// The newest whose folio, or whose page where there was none, covers `address`.
    pub fn at(&self, address: u64) -> Option<&'a OrderRecord> {
        self.at.get(&address).map(|&index| self.records[index])
    }

    /// Returns whether no record is lost that is newer than `record`: then the newest of a place is the last word on
    /// it.
    pub fn is_followed(&self, record: &OrderRecord) -> bool {
        record.time_ns >= self.complete_since
    }
}

/// The kernel's clock from which on every CPU's records are all there: each overwrites its own, at its own pace.
fn complete_since(all: &[OrderRecord]) -> u64 {
    let mut oldest: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for record in all {
        let this = (record.seq, record.time_ns);
        let kept = oldest.entry(record.cpu).or_insert(this);
        *kept = this.min(*kept);
    }
    let overwritten = oldest.values().filter(|(seq, _)| *seq > 1);
    overwritten.map(|&(_, time)| time).max().unwrap_or(0)
}
