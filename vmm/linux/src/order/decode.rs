// SPDX-License-Identifier: GPL-2.0-only
//! Decodes one CPU's ring of order records.

use super::adaptive::{Adapted, State};
use super::{KernelReader, OrderError, OrderRecord, OrderRecords, Path, Policy, Reason, ORDERS};

/// "fao_ring" as bytes, the ring's first word.
pub const MAGIC: u64 = 0x676e_6972_5f6f_6166;
/// More records than this in one ring are a misread header.
pub const MAX_RECORDS: u64 = 1 << 20;

/// `struct anon_order_ring` up to `records[]`: magic, record_size, nr_records, next.
const HEADER: usize = 24;
/// `sizeof(struct anon_order_record)` as it first was: eight-byte words, two u32, four bytes, four of padding, and a reason
/// per order.
const FIRST: usize = 64 + ORDERS;
/// Size of a record with the page frame, the allowed orders and the path behind the first fields.
const SECOND: usize = FIRST + 16;
/// Size of a record that also has the overlap, the input of policy `adaptive` and the free blocks.
const RECORD: usize = SECOND + 32;
/// Number of reasons in the records of early kernels: eleven at first, eighteen one patch later. Later patches add
/// more.
const FIRST_REASONS: usize = 18;
pub(super) const REASONS: [Reason; 21] = [
    Reason::NotConsidered,
    Reason::Chosen,
    Reason::NotAllowed,
    Reason::CrossesStart,
    Reason::CrossesEnd,
    Reason::CrossesPmd,
    Reason::Overlap,
    Reason::AllocationFailed,
    Reason::ChargeFailed,
    Reason::Raced,
    Reason::Userfaultfd,
    Reason::Nohugepage,
    Reason::ThpDisabled,
    Reason::SizeNever,
    Reason::SizeMadvise,
    Reason::TopNever,
    Reason::TopMadvise,
    Reason::Policy,
    Reason::WithinSize,
    Reason::Misaligned,
    Reason::SwapEntries,
];
pub(super) const PATHS: [Path; 8] = [
    Path::Anonymous,
    Path::ZeroPage,
    Path::Copy,
    Path::Reuse,
    Path::Shmem,
    Path::FinishFault,
    Path::Ramfs,
    Path::SwapIn,
];
/// Policies by number.
pub(super) const POLICIES: [Policy; 6] = [
    Policy::Sysfs,
    Policy::Baseline,
    Policy::Simple,
    Policy::Variable,
    Policy::Retry,
    Policy::Adaptive,
];
/// Behind every user address that any arm64 kernel has.
const USER_END: u64 = 1 << 56;
/// The smallest page that any kernel has.
const PAGE: u64 = 4096;
/// Records that are read at a time.
const CHUNK: usize = 64;

struct Cursor<'a> {
    cpu: u32,
    bytes: &'a [u8],
}

impl Cursor<'_> {
    fn u64(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[at..at + 8]);
        u64::from_le_bytes(word)
    }

    fn u32(&self, at: usize) -> u32 {
        self.u64(at & !7).to_le_bytes()[at & 7..]
            .iter()
            .take(4)
            .rev()
            .fold(0, |value, &byte| value << 8 | u32::from(byte))
    }

    fn unexpected<T>(
        &self,
        field: &'static str,
        value: u64,
        expected: &'static str,
    ) -> Result<T, OrderError> {
        Err(OrderError::Unexpected {
            cpu: self.cpu,
            field,
            value,
            expected,
        })
    }

    /// Returns an order, or -1 for none.
    fn order(&self, at: usize, field: &'static str) -> Result<Option<u8>, OrderError> {
        match self.bytes[at] {
            0xff => Ok(None),
            order if usize::from(order) < ORDERS => Ok(Some(order)),
            other => self.unexpected(field, u64::from(other), "an order of 0 to 15, or -1"),
        }
    }

    fn record(&self) -> Result<OrderRecord, OrderError> {
        let byte = |at: usize| u64::from(self.bytes[at]);
        let Some(&policy) = POLICIES.get(byte(56) as usize) else {
            return self.unexpected("policy", byte(56), "0 to 5");
        };
        let flags = byte(59);
        if flags & !7 != 0 || (flags & 4 != 0 && self.bytes.len() < RECORD) {
            return self.unexpected(
                "flags",
                flags,
                "only bits 0 to 2, and bit 2 in records of 128 bytes",
            );
        }
        let mut by_order = [Reason::NotConsidered; ORDERS];
        for (order, slot) in by_order.iter_mut().enumerate() {
            let value = byte(64 + order);
            let (known, expected) = match self.is_first() {
                true => (&REASONS[..FIRST_REASONS], "0 to 17"),
                false => (&REASONS[..], "0 to 20"),
            };
            match known.get(value as usize) {
                Some(&reason) => *slot = reason,
                None => return self.unexpected("reason", value, expected),
            }
        }
        let Behind { path, pfn, allowed } = self.behind()?;
        let last = self.bytes.len() == RECORD;
        let failed = by_order.contains(&Reason::AllocationFailed);
        let record = OrderRecord {
            seq: self.u64(0),
            cpu: self.cpu,
            time_ns: self.u64(8),
            address: self.u64(16),
            vm_start: self.u64(24),
            vm_end: self.u64(32),
            mm: self.u64(40),
            tgid: self.u32(48),
            tid: self.u32(52),
            policy,
            preferred: self.order(57, "preferred")?,
            chosen: self.order(58, "chosen")?,
            hinted: flags & 1 != 0,
            userfaultfd: flags & 2 != 0,
            reasons: by_order,
            path,
            pfn,
            allowed,
            overlap: last.then(|| self.u64(SECOND)).filter(|&va| va != u64::MAX),
            adapted: (last && policy == Policy::Adaptive).then(|| Adapted {
                run: self.u32(SECOND + 8) as u16,
                state: State::decode(self.bytes[SECOND + 10]),
                probe: flags & 4 != 0,
            }),
            free: (last && failed)
                .then(|| std::array::from_fn(|order| self.bytes[SECOND + 16 + order])),
        };
        if record.vm_end > USER_END {
            return self.unexpected("vm_end", record.vm_end, "an address below 2^56");
        }
        if !(record.vm_start..record.vm_end).contains(&record.address) {
            return self.unexpected("address", record.address, "an address inside the VMA");
        }
        let own = record.vm_start..record.vm_end;
        if let Some(overlap) = record.overlap.filter(|va| !own.contains(va)) {
            return self.unexpected("overlap", overlap, "an address inside the VMA, or -1");
        }
        let chosen: Vec<usize> = (0..ORDERS)
            .filter(|&order| by_order[order] == Reason::Chosen)
            .collect();
        let expected: Vec<usize> = record.chosen.iter().map(|&order| order.into()).collect();
        if chosen != expected {
            let value = chosen.first().map_or(u64::MAX, |&order| order as u64);
            return self.unexpected("order whose reason is `chosen`", value, "the chosen order");
        }
        if !self.is_first() && record.pfn.is_some() != record.chosen.is_some() {
            let value = self.u64(FIRST);
            return self.unexpected(
                "pfn",
                value,
                "a page frame where an order was chosen, else -1",
            );
        }
        if let (Some(pfn), Some(order)) = (record.pfn, record.chosen) {
            if pfn % (1 << order) != 0 {
                return self.unexpected("pfn", pfn, "a multiple of the folio's pages");
            }
        }
        Ok(record)
    }

    /// Returns whether the record is of a kernel that has only the first fields.
    fn is_first(&self) -> bool {
        self.bytes.len() == FIRST
    }

    /// Returns the fields behind the first ones.
    fn behind(&self) -> Result<Behind, OrderError> {
        if self.is_first() {
            return Ok(Behind::default());
        }
        let number = u64::from(self.bytes[FIRST + 12]);
        let Some(&path) = PATHS.get(number as usize) else {
            return self.unexpected("path", number, "0 to 7");
        };
        let pfn = Some(self.u64(FIRST)).filter(|&pfn| pfn != u64::MAX);
        let allowed = self.u32(FIRST + 8);
        if allowed >> ORDERS != 0 {
            return self.unexpected("allowed", allowed.into(), "orders 0 to 15");
        }
        let allowed = (0..ORDERS as u8).filter(|order| allowed >> order & 1 != 0);
        Ok(Behind {
            path,
            pfn,
            allowed: Some(allowed.collect()),
        })
    }
}

/// Fields behind the first ones of a record.
#[derive(Default)]
struct Behind {
    path: Path,
    pfn: Option<u64>,
    allowed: Option<Vec<u8>>,
}

/// Header of a ring.
struct Header {
    /// Bytes of a record.
    record: usize,
    slots: u64,
    /// The number of records that were ever begun. The slot is its remainder.
    next: u64,
}

impl Header {
    fn read(read: &mut KernelReader<'_>, ring: u64, cpu: u32) -> Result<Self, OrderError> {
        let mut bytes = [0; HEADER];
        read(ring, &mut bytes).map_err(|why| OrderError::Unreadable { cpu, va: ring, why })?;
        let header = Cursor { cpu, bytes: &bytes };
        if header.u64(0) != MAGIC {
            return header.unexpected("magic", header.u64(0), "0x676e69725f6f6166");
        }
        let record = header.u32(8) as usize;
        if ![FIRST, SECOND, RECORD].contains(&record) {
            return header.unexpected("record_size", header.u32(8).into(), "80, 96 or 128");
        }
        let slots = u64::from(header.u32(12));
        if slots == 0 || slots > MAX_RECORDS {
            return header.unexpected("nr_records", slots, "1 to 1048576");
        }
        let next = header.u64(16);
        Ok(Self {
            record,
            slots,
            next,
        })
    }

    /// Records that were written, or are being written.
    fn used(&self) -> u64 {
        self.next.min(self.slots)
    }
}

/// Reads one byte of every page that [`decode_ring`] reads of the same ring.
pub fn touch_ring(read: &mut KernelReader<'_>, ring: u64, cpu: u32) -> Result<(), OrderError> {
    let header = Header::read(read, ring, cpu)?;
    let end = ring
        .wrapping_add(HEADER as u64)
        .wrapping_add(header.used() * header.record as u64);
    let mut va = (ring | (PAGE - 1)).wrapping_add(1);
    while va < end {
        read(va, &mut [0]).map_err(|why| OrderError::Unreadable { cpu, va, why })?;
        va = va.saturating_add(PAGE);
    }
    Ok(())
}

/// Reads and decodes the ring at kernel address `ring`.
pub fn decode_ring(
    read: &mut KernelReader<'_>,
    ring: u64,
    cpu: u32,
) -> Result<OrderRecords, OrderError> {
    let header = Header::read(read, ring, cpu)?;
    let (slots, next, used) = (header.slots, header.next, header.used());
    let record = header.record;
    let mut fetch = |va: u64, bytes: &mut [u8]| {
        read(va, bytes).map_err(|why| OrderError::Unreadable { cpu, va, why })
    };
    let mut all = OrderRecords {
        lost: next.saturating_sub(slots),
        ..OrderRecords::default()
    };
    let mut bytes = vec![0; CHUNK * record];
    let mut done = 0;
    while done < used {
        let count = (used - done).min(CHUNK as u64) as usize;
        let va = ring
            .wrapping_add(HEADER as u64)
            .wrapping_add(done * record as u64);
        fetch(va, &mut bytes[..count * record])?;
        for (index, bytes) in bytes[..count * record].chunks_exact(record).enumerate() {
            let cursor = Cursor { cpu, bytes };
            let seq = cursor.u64(0);
            if seq == 0 {
                all.being_written += 1;
                continue;
            }
            // Slot i holds record i + 1, or a later one a whole number of rounds on. The number is
            // written before `next` is, so the newest may be one ahead of it.
            let slot = done + index as u64;
            let oldest = next.saturating_sub(slots) + 1;
            if !(oldest..=next.saturating_add(1)).contains(&seq) || (seq - 1) % slots != slot {
                return cursor.unexpected("seq", seq, "the number that belongs in this slot");
            }
            all.records.push(cursor.record()?);
        }
        done += count as u64;
    }
    Ok(all)
}
