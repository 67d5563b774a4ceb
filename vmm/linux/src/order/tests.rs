// SPDX-License-Identifier: GPL-2.0-only
//! Rings laid out by hand from the patch's header, read back.

use super::*;

const RING: u64 = 0xffff_fdff_c000_0000;
const OFFSETS: u64 = 0xffff_8000_8100_0000;

/// Returns one record, byte for byte.
fn record(seq: u64, address: u64, policy: u8, preferred: i8, chosen: i8) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [
        seq,
        seq * 1000,
        address,
        0x40_0000,
        0x80_0000,
        0xffff_0000_1234_0000,
    ] {
        bytes.extend(u64::to_le_bytes(word));
    }
    bytes.extend(77u32.to_le_bytes());
    bytes.extend(78u32.to_le_bytes());
    bytes.extend([policy, preferred as u8, chosen as u8, 1]);
    bytes.extend([0; 4]);
    let mut reasons = [0u8; 16];
    reasons[9] = 2;
    if chosen >= 0 {
        reasons[chosen as usize] = 1;
    }
    bytes.extend(reasons);
    assert_eq!(bytes.len(), 80);
    bytes
}

fn ring(slots: u32, next: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"fao_ring".to_vec();
    bytes.extend(80u32.to_le_bytes());
    bytes.extend(slots.to_le_bytes());
    bytes.extend(next.to_le_bytes());
    records.iter().for_each(|record| bytes.extend(record));
    bytes.resize(24 + 80 * slots as usize, 0);
    bytes
}

/// Reads a guest that has `ring` at [`RING`] and per-CPU offsets of zero at [`OFFSETS`].
fn read(ring: &[u8]) -> Result<OrderRecords, OrderError> {
    read_cpus(ring, 1)
}

/// Reads so many CPUs, which share one ring.
fn read_cpus(ring: &[u8], cpus: u32) -> Result<OrderRecords, OrderError> {
    let mut reader = |va: u64, buffer: &mut [u8]| {
        if (OFFSETS..OFFSETS + 64).contains(&va) {
            buffer.fill(0);
            return Ok(());
        }
        let at = va.checked_sub(RING).ok_or("not mapped")? as usize;
        let from = ring.get(at..at + buffer.len()).ok_or("not mapped")?;
        buffer.copy_from_slice(from);
        Ok(())
    };
    let at = RingAddresses {
        rings: RING,
        pointers: false,
        per_cpu_offset: OFFSETS,
        recording: None,
    };
    OrderRecords::read(&mut reader, at, cpus)
}

/// Memory may hold any value: here the highest number, on every CPU.
#[test]
fn numbers_without_end_are_counted_or_refused() {
    let all = read_cpus(&ring(2, u64::MAX, &[]), 2).unwrap();
    assert_eq!((all.lost, all.being_written), (u64::MAX, 4));
    let wrong = read(&ring(2, u64::MAX, &[record(5, 0x40_5000, 3, 4, 4)]));
    assert!(matches!(
        wrong,
        Err(OrderError::Unexpected { field: "seq", .. })
    ));
}

#[test]
fn a_ring_is_read_back() {
    let records = [
        record(1, 0x40_5000, 3, 4, 4),
        record(2, 0x41_0000, 1, 0, 0),
        record(3, 0x42_0000, 2, 4, -1),
    ];
    let all = read(&ring(8, 3, &records)).unwrap();
    assert_eq!((all.records.len(), all.lost, all.being_written), (3, 0, 0));
    let first = &all.records[0];
    assert_eq!((first.tgid, first.tid, first.time_ns), (77, 78, 1000));
    assert_eq!(
        (first.policy, first.preferred, first.chosen),
        (Policy::Variable, Some(4), Some(4))
    );
    assert_eq!(first.reasons[9], Reason::NotAllowed);
    assert_eq!(first.folio(4096), Some((0x40_0000, 0x1_0000)));
    assert!(first.hinted && !first.userfaultfd);
    assert_eq!(
        first.sentence(),
        "policy variable, order 4 was preferred, order 4 was mapped: order 9 is not allowed"
    );
    assert_eq!(all.records[2].chosen, None);
    assert_eq!(all.last_for(77, 0x40_f000, 4096).unwrap().seq, 1);
    assert_eq!(all.last_for(77, 0x41_1000, 4096), None);
    assert_eq!(all.last_for(1, 0x40_f000, 4096), None);
}

#[test]
fn what_was_overwritten_or_is_being_written_is_counted() {
    let records = [
        record(5, 0x40_0000, 0, 4, 4),
        record(0, 0, 0, 0, 0),
        record(3, 0x40_0000, 0, 4, 4),
        record(4, 0x40_0000, 0, 4, 4),
    ];
    let all = read(&ring(4, 6, &records)).unwrap();
    let seqs: Vec<u64> = all.records.iter().map(|record| record.seq).collect();
    assert_eq!(seqs, [3, 4, 5]);
    assert_eq!((all.lost, all.being_written), (2, 1));
}

#[test]
fn nothing_unexpected_is_guessed_at() {
    let field = |bytes: Vec<u8>| match read(&bytes).unwrap_err() {
        OrderError::Unexpected { field, .. } => field,
        other => panic!("{other}"),
    };
    let good = || ring(4, 1, &[record(1, 0x40_0000, 0, 4, 4)]);
    let with = |at: usize, value: u8| {
        let mut bytes = good();
        bytes[at] = value;
        bytes
    };
    assert_eq!(field(with(0, 0)), "magic");
    assert_eq!(field(with(8, 88)), "record_size");
    assert_eq!(field(with(15, 0xff)), "nr_records");
    assert_eq!(field(with(24, 2)), "seq");
    assert_eq!(field(with(24 + 56, 9)), "policy");
    assert_eq!(field(with(24 + 57, 16)), "preferred");
    assert_eq!(field(with(24 + 58, 99)), "chosen");
    assert_eq!(field(with(24 + 59, 4)), "flags");
    let of_the_second_patch = read(&with(24 + 64 + 2, 17)).unwrap();
    assert_eq!(of_the_second_patch.records[0].reasons[2], Reason::Policy);
    assert_eq!(field(with(24 + 64 + 2, 18)), "reason");
    assert_eq!(
        field(with(24 + 64 + 2, 1)),
        "order whose reason is `chosen`"
    );
    assert_eq!(field(with(24 + 18, 0)), "address");
    assert_eq!(field(with(24 + 39, 1)), "vm_end");
    let cut = ring(4, 1, &[record(1, 0x40_0000, 0, 4, 4)])[..60].to_vec();
    assert!(matches!(read(&cut), Err(OrderError::Unreadable { .. })));
}

/// Builds a ring of one record with the fields behind the first ones.
fn behind(reason: u8, pfn: u64, allowed: u32, path: u8) -> Vec<u8> {
    let mut bytes = record(1, 0x40_5000, 0, 4, 2);
    bytes[64 + 4] = reason;
    bytes.extend(pfn.to_le_bytes());
    bytes.extend(allowed.to_le_bytes());
    bytes.extend([path, 0, 0, 0]);
    let mut ring = ring(4, 1, &[]);
    ring.truncate(24);
    ring[8] = 96;
    ring.extend(bytes);
    ring.resize(24 + 4 * 96, 0);
    ring
}

#[test]
fn what_came_behind_the_first_fields_is_read() {
    for (number, reason) in [
        (11, Reason::Nohugepage),
        (12, Reason::ThpDisabled),
        (13, Reason::SizeNever),
        (14, Reason::SizeMadvise),
        (15, Reason::TopNever),
        (16, Reason::TopMadvise),
        (17, Reason::Policy),
        (18, Reason::WithinSize),
        (19, Reason::Misaligned),
        (20, Reason::SwapEntries),
    ] {
        let all = read(&behind(number, 0x4_5678, 0b1_0100, 7)).unwrap();
        let record = &all.records[0];
        assert_eq!(record.reasons[4], reason);
        assert_eq!((record.pfn, record.path), (Some(0x4_5678), Path::SwapIn));
        assert_eq!(record.allowed.as_deref(), Some(&[2, 4][..]));
    }
    let all = read(&behind(13, 8, 4, 0)).unwrap();
    assert_eq!(
        all.records[0].sentence(),
        "policy sysfs, order 4 was preferred, order 2 was mapped: order 9 is not allowed, order 4 is switched off for its size"
    );
    // The place of a new folio follows from its size; that of a reused part does not.
    let folio = |path: u8| read(&behind(13, 8, 4, path)).unwrap().records[0].folio(4096);
    assert_eq!(folio(4), Some((0x40_4000, 0x4000)));
    assert_eq!((folio(1), folio(2)), (folio(4), folio(4)));
    assert_eq!(folio(3), None);
    let field = |bytes: Vec<u8>| match read(&bytes).unwrap_err() {
        OrderError::Unexpected { field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(field(behind(21, 8, 4, 0)), "reason");
    assert_eq!(field(behind(13, 8, 4, 8)), "path");
    assert_eq!(field(behind(13, 8, 1 << 16, 0)), "allowed");
    assert_eq!(field(behind(13, u64::MAX, 4, 0)), "pfn");
    // A folio begins at a multiple of its size: the one of order 2 not at frame 9.
    assert_eq!(field(behind(13, 9, 4, 0)), "pfn");
}

#[test]
fn records_that_are_switched_off_are_not_missing_ones() {
    let read = |key: i32, ring: &[u8]| {
        let mut reader = |va: u64, buffer: &mut [u8]| {
            match va {
                0x8000 => buffer.copy_from_slice(&key.to_le_bytes()),
                OFFSETS => buffer.fill(0),
                _ => buffer.copy_from_slice(&ring[(va - RING) as usize..][..buffer.len()]),
            }
            Ok(())
        };
        let at = RingAddresses {
            rings: RING,
            pointers: false,
            per_cpu_offset: OFFSETS,
            recording: Some(0x8000),
        };
        OrderRecords::read(&mut reader, at, 1)
    };
    let (none, one) = (ring(4, 0, &[]), behind(13, 8, 4, 0));
    assert_eq!(read(0, &none), Err(OrderError::Off));
    assert!(read(1, &none).unwrap().records.is_empty());
    assert_eq!(read(1, &one).unwrap().records.len(), 1);
    // Recording was switched off since: newer faults have no record, so the newest record need not be true.
    assert_eq!(read(0, &one), Err(OrderError::Off));
}

#[test]
fn just_the_pages_of_the_records_are_touched() {
    let pages = |next: u64, start: u64, whole: bool| {
        let records: Vec<_> = (1..=256)
            .map(|seq| record(seq, 0x40_5000, 3, 4, 4))
            .collect();
        let bytes = ring(256, next, &records);
        let mut pages = std::collections::BTreeSet::new();
        let mut reader = |va: u64, buffer: &mut [u8]| {
            if (OFFSETS..OFFSETS + 64).contains(&va) {
                buffer.copy_from_slice(&start.to_le_bytes());
                return Ok(());
            }
            pages.extend(va / PAGE..=(va + buffer.len() as u64 - 1) / PAGE);
            let at = (va - RING - start) as usize;
            buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
            Ok(())
        };
        const PAGE: u64 = 4096;
        let at = RingAddresses {
            rings: RING,
            pointers: false,
            per_cpu_offset: OFFSETS,
            recording: None,
        };
        if whole {
            OrderRecords::read(&mut reader, at, 1).unwrap();
        } else {
            OrderRecords::touch(&mut reader, at, 1).unwrap();
        }
        pages
    };
    // 4072 bytes behind the header are 50 records and 72 bytes.
    for next in [0, 1, 50, 51, 255, 256] {
        for start in [0, 8, 0xfe8, 0xff0] {
            assert_eq!(
                pages(next, start, false),
                pages(next, start, true),
                "{next} records at {start:#x}"
            );
        }
    }
}

/// Builds a record that has the overlap, the input of `adaptive` and the free blocks.
fn last(seq: u64, failed: u8) -> Vec<u8> {
    let mut bytes = record(seq, 0x40_5000, 5, 4, 0);
    bytes[59] = 4;
    bytes[64 + 4] = 6;
    bytes[64 + 3] = failed;
    bytes.extend(0x1234_u64.to_le_bytes());
    bytes.extend(0x1c_u32.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(0x40_7000_u64.to_le_bytes());
    bytes.extend(5_u16.to_le_bytes());
    bytes.extend([2 | 3 << 3, 0, 0, 0, 0, 0]);
    let mut free = [0; 16];
    free[0] = 255;
    free[2] = 3;
    bytes.extend(free);
    assert_eq!(bytes.len(), 128);
    bytes
}

#[test]
fn what_stood_behind_a_decision() {
    let ring = |record: &[u8]| {
        let mut bytes = b"fao_ring".to_vec();
        bytes.extend(128u32.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        bytes.extend(record);
        bytes
    };
    let all = read(&ring(&last(1, 7))).unwrap();
    let record = &all.records[0];
    let adapted = record.adapted.unwrap();
    assert_eq!((adapted.run, adapted.probe), (5, true));
    assert_eq!((adapted.state.trust, adapted.state.spent), (2, 3));
    assert_eq!(record.overlap, Some(0x40_7000));
    assert_eq!(record.free.unwrap()[..4], [255, 0, 3, 0]);
    // Without an order that could not be allocated, nothing was looked at.
    assert_eq!(read(&ring(&last(1, 17))).unwrap().records[0].free, None);
    // An entry that is not of the VMA is not in the way of its folios.
    let mut wrong = last(1, 7);
    wrong[96..104].copy_from_slice(&0x80_0000_u64.to_le_bytes());
    assert!(matches!(
        read(&ring(&wrong)),
        Err(OrderError::Unexpected {
            field: "overlap",
            ..
        })
    ));
}

#[test]
fn a_ring_that_is_pointed_to() {
    let bytes = ring(1, 1, &[record(1, 0x40_5000, 3, 4, 4)]);
    let read = |pointer: u64| {
        let mut reader = |va: u64, buffer: &mut [u8]| {
            match va {
                OFFSETS => buffer.fill(0),
                0x9000 => buffer.copy_from_slice(&pointer.to_le_bytes()),
                _ => buffer.copy_from_slice(&bytes[(va - RING) as usize..][..buffer.len()]),
            }
            Ok(())
        };
        let at = RingAddresses {
            rings: 0x9000,
            pointers: true,
            per_cpu_offset: OFFSETS,
            recording: None,
        };
        OrderRecords::touch(&mut reader, at, 1).unwrap();
        OrderRecords::read(&mut reader, at, 1)
            .unwrap()
            .records
            .len()
    };
    assert_eq!(read(RING), 1);
    // There are no rings before recording starts.
    assert_eq!(read(0), 0);
}
