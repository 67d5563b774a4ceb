// SPDX-License-Identifier: GPL-2.0-only
//! Both instants of a process, with what the kernel has recorded and counted in between.
//!
//! That a record has nothing proves something only where it would have it: while it was on, for as long as it was on, and of
//! the paths that it is made on.

use std::collections::BTreeMap;

use linux::counted::{FOLIO_SPLIT, PSWPIN, SWPIN_ZERO, ZSWPIN};
use linux::order::{OrderRecords, Path};
use linux::vma::Vma;

use crate::view::{Space, View};

/// Both instants of one process.
#[derive(Debug)]
pub(crate) struct Sides<'d, 'v> {
    pub before: &'d View<'v>,
    pub after: &'d View<'v>,
    vmas: [Option<&'d [Vma]>; 2],
    /// Folios that faults have brought in since, by the kernel's record, by their start.
    faults: Vec<Faulted>,
    whole: bool,
    own_faults: Option<u64>,
}

/// A folio that a fault has brought in since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faulted {
    start: u64,
    end: u64,
    time_ns: u64,
    pub order: u8,
    pub path: Path,
}

impl<'d, 'v> Sides<'d, 'v> {
    pub fn new(
        before: &'d View<'v>,
        after: &'d View<'v>,
        (earlier, now): (&'d Space, &'d Space),
    ) -> Self {
        let (mut faults, mut whole) = (Vec::new(), false);
        if let (Ok(was), Ok(is)) = (&before.records, &after.records) {
            let newest = newest(was);
            whole = is_whole(was, is);
            let new = is.records.iter().filter(|record| {
                let is_its = record.tgid == now.who.pid || Some(record.mm) == now.mm;
                let seen = newest.get(&record.cpu);
                is_its && seen.is_none_or(|(_, time)| record.time_ns > *time)
            });
            faults.extend(new.filter_map(|record| {
                // What of a file's folio was there before, and how much was mapped of it, the record does not say; and a page
                // that is used again stays where it is.
                match record.path {
                    Path::Shmem | Path::FinishFault | Path::Ramfs | Path::Reuse => return None,
                    Path::Anonymous | Path::ZeroPage | Path::Copy | Path::SwapIn => {}
                }
                let (start, size) = record.folio(after.page_size)?;
                Some(Faulted {
                    start,
                    end: start + size,
                    time_ns: record.time_ns,
                    order: record.chosen?,
                    path: record.path,
                })
            }));
            faults.sort_unstable_by_key(|fault: &Faulted| (fault.start, fault.time_ns));
        }
        let own = now.faults.zip(earlier.faults);
        Self {
            before,
            after,
            vmas: [&earlier.vmas, &now.vmas].map(|vmas| vmas.as_deref().ok()),
            faults,
            whole,
            own_faults: own.and_then(|(now, was)| now.checked_sub(was)),
        }
    }

    /// The newest fault that has brought this address in since, by the kernel's record.
    pub fn faulted(&self, va: u64) -> Option<Faulted> {
        let next = self.faults.partition_point(|fault| fault.start <= va);
        // Folios of later faults may lie in the range of an earlier one; none is longer than the largest order.
        let near = self.faults[..next].iter().rev().take(64);
        let near = near.filter(|fault| fault.end > va);
        near.max_by_key(|fault| fault.time_ns).copied()
    }

    /// Returns whether the process has certainly had no fault since: then it has brought no page in by itself, and none that it
    /// had thrown away is there again.
    pub fn without_faults(&self) -> bool {
        self.own_faults == Some(0)
    }

    /// Returns whether the record would have a first write to this address since: it was on all the time and nothing of it is lost, and
    /// the address is of anonymous memory, which userfaultfd does not fill. It has no copies of single pages, and none of
    /// hugetlb's faults.
    pub fn records_first_writes(&self, va: u64) -> bool {
        let anonymous = |vma: &Vma| vma.inode == 0 && !vma.permissions.shared && !armed(vma);
        self.whole && [0, 1].map(|side| self.vma(side, va).is_some_and(anonymous)) == [true; 2]
    }

    /// Returns whether a VMA at either instant is armed with userfaultfd, or that is not known: what fills it is in no record and is no fault
    /// of the process.
    pub fn may_be_filled(&self, va: u64) -> bool {
        [0, 1]
            .iter()
            .any(|side| self.vma(*side, va).is_none_or(armed))
    }

    /// Returns whether the VMA at this address is of other memory than the one before: what was mapped by that went with it.
    pub fn vma_is_another(&self, va: u64) -> bool {
        match (self.vma(0, va), self.vma(1, va)) {
            (Some(was), Some(is)) => !crate::vmas::one(was, is),
            _ => false,
        }
    }

    fn vma(&self, side: usize, va: u64) -> Option<&'d Vma> {
        let vmas = self.vmas[side]?;
        let next = vmas.partition_point(|vma| vma.end <= va);
        vmas.get(next).filter(|vma| vma.contains(va))
    }

    /// How often the kernel has counted this since, where that is known.
    pub fn counted(&self, name: &str) -> Option<u64> {
        let both = self.before.events.as_ref().ok();
        let (was, is) = both.zip(self.after.events.as_ref().ok())?;
        is.since(was, name)
    }

    /// How many pages came from swap since, where that is known. Not those that had not left memory.
    pub fn swapped_in(&self) -> Option<u64> {
        let more = |name| self.counted(name).unwrap_or(0);
        Some(self.counted(PSWPIN)? + more(SWPIN_ZERO) + more(ZSWPIN))
    }

    /// Returns whether any folio was certainly split since.
    pub fn has_split(&self) -> bool {
        self.counted(FOLIO_SPLIT).is_some_and(|splits| splits > 0)
    }
}

/// `VM_UFFD_MISSING`, `VM_UFFD_WP`, `VM_UFFD_MINOR`.
fn armed(vma: &Vma) -> bool {
    let armed = |flag: &String| matches!(flag.as_str(), "um" | "uw" | "ui");
    let flags = vma.flags.as_ref();
    flags.is_none_or(|flags| flags.words().iter().any(armed))
}

/// The newest record of each CPU: its number and its time.
fn newest(records: &OrderRecords) -> BTreeMap<u32, (u64, u64)> {
    let mut newest: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for record in &records.records {
        let seen = newest.entry(record.cpu).or_default();
        *seen = (record.seq, record.time_ns).max(*seen);
    }
    newest
}

/// Returns whether the second reading has all that was recorded since the first, and recording was on in between: to switch it on empties
/// the rings, so whatever was there at first has to be there still, and at least one record that was.
fn is_whole(was: &OrderRecords, is: &OrderRecords) -> bool {
    let newest = newest(was);
    let stays = |(cpu, (seq, time)): (&u32, &(u64, u64))| {
        let mut records = is.records.iter();
        records.any(|it| it.cpu == *cpu && it.seq == *seq && it.time_ns == *time)
    };
    let mut oldest: BTreeMap<u32, u64> = BTreeMap::new();
    for record in &is.records {
        let first = oldest.entry(record.cpu).or_insert(record.seq);
        *first = record.seq.min(*first);
    }
    let begins = |(cpu, first): (&u32, &u64)| newest.contains_key(cpu) || *first == 1;
    let whole = is.being_written == 0 && !newest.is_empty();
    whole && newest.iter().all(stays) && oldest.iter().all(begins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::scene::Instant;

    #[test]
    fn a_record_is_whole_where_it_was_on_all_the_time() {
        let records = |faults: &[(u32, u64, u64)]| {
            let mut made = Instant::new().fault(0, 0).records.unwrap();
            let one = made.records[0].clone();
            made.records = faults
                .iter()
                .map(|&(cpu, seq, time_ns)| {
                    let mut record = one.clone();
                    (record.cpu, record.seq, record.time_ns) = (cpu, seq, time_ns);
                    record
                })
                .collect();
            made
        };
        let before = records(&[(0, 7, 70), (0, 8, 80), (1, 3, 75)]);
        let more = records(&[(0, 8, 80), (0, 9, 90), (1, 3, 75)]);
        assert!(is_whole(&before, &more) && is_whole(&before, &before));
        // A CPU that had none before begins at 1.
        let another = records(&[(0, 8, 80), (1, 3, 75), (2, 1, 95)]);
        assert!(is_whole(&before, &another));
        for (gone, why) in [
            (
                records(&[(0, 9, 90), (1, 3, 75)]),
                "all that it had is overwritten",
            ),
            (
                records(&[(0, 1, 91), (1, 1, 92)]),
                "it was off, and is on again",
            ),
            (records(&[(0, 8, 95), (1, 3, 96)]), "and has come as far"),
            (records(&[(0, 8, 80)]), "a CPU's is not there"),
            (
                records(&[(0, 8, 80), (1, 3, 75), (2, 2, 95)]),
                "one of a new CPU is lost",
            ),
        ] {
            assert!(!is_whole(&before, &gone), "{why}");
        }
        // A ring that was empty may have been emptied.
        assert!(!is_whole(&records(&[]), &records(&[(0, 1, 91)])));
        let mut open = more;
        open.being_written = 1;
        assert!(!is_whole(&before, &open));
    }
}
