//! Both instants of a process, with what the kernel has recorded in between.

use std::collections::BTreeMap;

use linux::order::Path;

use crate::view::View;

/// Both instants of one process.
#[derive(Debug)]
pub(crate) struct Sides<'d, 'v> {
    pub before: &'d View<'v>,
    pub after: &'d View<'v>,
    /// Folios that faults have brought in since, by the kernel's record: start, end and order, by their start.
    faults: Vec<(u64, u64, u8)>,
    whole: bool,
}

impl<'d, 'v> Sides<'d, 'v> {
    pub fn new(before: &'d View<'v>, after: &'d View<'v>, pid: u32) -> Self {
        let (mut faults, mut whole) = (Vec::new(), false);
        if let (Ok(earlier), Ok(now)) = (&before.records, &after.records) {
            let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
            for record in &earlier.records {
                let seen = newest.entry(record.cpu).or_default();
                *seen = record.seq.max(*seen);
            }
            let mut oldest: BTreeMap<u32, u64> = BTreeMap::new();
            for record in &now.records {
                let first = oldest.entry(record.cpu).or_insert(record.seq);
                *first = record.seq.min(*first);
            }
            let seen = |cpu: &u32| newest.get(cpu).copied().unwrap_or(0);
            whole = now.being_written == 0
                && newest.keys().all(|cpu| oldest.contains_key(cpu))
                && oldest.iter().all(|(cpu, first)| *first <= seen(cpu) + 1);
            let new = now.records.iter();
            let new = new.filter(|record| record.tgid == pid && record.seq > seen(&record.cpu));
            faults.extend(new.filter_map(|record| {
                // What of a file's folio was there before, and how much was mapped of it, the record does not say.
                if record.path == Path::Shmem {
                    return None;
                }
                let (start, size) = record.folio(after.page_size)?;
                Some((start, start + size, record.chosen?))
            }));
            faults.sort_unstable();
        }
        Self {
            before,
            after,
            faults,
            whole,
        }
    }

    /// The order with which a fault has brought this address in since, by the kernel's record.
    pub fn faulted(&self, va: u64) -> Option<u8> {
        let next = self.faults.partition_point(|(start, ..)| *start <= va);
        // Folios of later faults may lie in the range of an earlier one; none is longer than the largest order.
        let near = self.faults[..next].iter().rev().take(64);
        let mut near = near.filter(|(_, end, _)| *end > va);
        near.next().map(|(.., order)| *order)
    }

    /// Whether the record has every fault since.
    pub fn records_are_whole(&self) -> bool {
        self.whole
    }
}
