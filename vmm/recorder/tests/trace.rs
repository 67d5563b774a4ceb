// SPDX-License-Identifier: GPL-2.0-only
//! The trace file: written events read back the same, and no input is harmful.

mod hostile;

use proptest::prelude::*;
use recorder::trace::{Reader, TraceError, Writer};
use recorder::{Barrier, Domain, Event, Folio, FolioKind, Register, Types, What};
use stage1::testing::Layout;
use stage1::{Granule, Half};

fn domain() -> impl Strategy<Value = Domain> {
    use Domain::{InnerShareable, NonShareable, OuterShareable, System};
    proptest::sample::select(&[NonShareable, InnerShareable, OuterShareable, System][..])
}

fn types() -> impl Strategy<Value = Types> {
    proptest::sample::select(&[Types::Loads, Types::Stores, Types::All][..])
}

fn what() -> impl Strategy<Value = What> {
    let address = || (any::<u64>()).prop_map(|place| place & !7);
    let barrier = (domain(), types()).prop_map(|(domain, types)| Barrier::Dsb { domain, types });
    // Single ones, and runs of one step.
    let one = prop_oneof![Just(vec![0]), any::<u64>().prop_map(|word| vec![word])];
    let run = (any::<u64>(), 0..0x4_0000_u64, 1..40_u64).prop_map(|(first, step, count)| {
        let word = |at: u64| first.wrapping_add(at.wrapping_mul(step));
        (0..count).map(word).collect()
    });
    let words = proptest::collection::vec(prop_oneof![one, run], 0..20);
    let words = words.prop_map(|runs: Vec<Vec<u64>>| runs.concat());
    prop_oneof![
        (address(), any::<u64>()).prop_map(|(address, word)| What::Store { address, word }),
        address().prop_map(|address| What::Unknown { address }),
        address().prop_map(|address| What::Late { address }),
        (address(), words).prop_map(|(address, words)| What::Table { address, words }),
        address().prop_map(|address| What::NoTable { address }),
        (0_u32..1 << 14, any::<u64>()).prop_map(|(code, operand)| What::Tlbi {
            opcode: 0xd508_0000 | code << 5,
            operand
        }),
        proptest::collection::vec(any::<u64>().prop_map(|frame| frame & !3), 1..9)
            .prop_map(|frames| What::Chain { frames }),
        any::<u64>().prop_map(|number| What::Mark { number }),
        (0..1_u64 << 52, 0..=Folio::LARGEST, any::<u64>()).prop_map(|(first, order, index)| {
            What::Folio(Folio {
                first,
                order,
                kind: FolioKind::File,
                index,
            })
        }),
        barrier.prop_map(What::Barrier),
        Just(What::Barrier(Barrier::Isb)),
        (proptest::sample::select(&Register::ALL[..]), any::<u64>())
            .prop_map(|(register, value)| What::Register { register, value }),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0_u16..512, any::<u64>(), what()).prop_map(|(cpu, pc, what)| Event {
        cpu,
        pc: pc & !3,
        what,
    });
    proptest::collection::vec(event, 0..60)
}

fn written(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for event in events {
        writer.event(event).unwrap();
    }
    writer.finish().unwrap()
}

/// Returns the events, and how the trace ends.
fn read(trace: &[u8]) -> (Vec<Event>, Option<TraceError>) {
    let mut reader = match Reader::new(trace) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut events = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, None),
            Err(error) => return (events, Some(error)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_was_written_comes_back(events in events()) {
        let (found, error) = read(&written(&events));
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert_eq!(found, events);
    }

    /// A trace that is cut anywhere gives its whole events and an error.
    #[test]
    fn a_cut_is_told(events in events(), at in any::<proptest::sample::Index>()) {
        let trace = written(&events);
        let at = at.index(trace.len());
        let (found, error) = read(&trace[..at]);
        prop_assert!(events.starts_with(&found));
        match error {
            Some(TraceError::NotATrace { .. }) => prop_assert!(at < 8),
            Some(TraceError::Cut { records, .. }) => prop_assert_eq!(records, found.len() as u64),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        hostile::judge(&bytes);
    }

    /// Registers that make sense, and then arbitrary events in a few tables that point to each other.
    #[test]
    fn tables_that_go_round(
        granule in 0_usize..3,
        half in any::<bool>(),
        seed in proptest::collection::vec((0_u8..8, 0_u64..8, 0_u64..24, any::<u64>()), 0..400),
    ) {
        let half = Half::ALL[usize::from(half)];
        let layout = Layout::new(Granule::ALL[granule], half, 48);
        let registers = layout.registers(0x4000_0000);
        let ids = registers.id_aa64mmfr.map(Option::unwrap);
        let mut all = vec![
            (Register::Mmfr0, ids[0]),
            (Register::Mmfr1, ids[1]),
            (Register::Mmfr2, ids[2]),
            (Register::Mmfr3, ids[3]),
            (Register::Tcr, registers.tcr_el1),
            (Register::Mair, registers.mair_el1),
            (Register::Ttbr0, registers.ttbr0_el1),
            (Register::Ttbr1, registers.ttbr1_el1),
            (Register::Sctlr, 1),
        ]
        .into_iter()
        .map(|(register, value)| What::Register { register, value })
        .collect::<Vec<_>>();
        let page = layout.granule.bytes();
        let table = |which: u64| 0x4000_0000 + which * page;
        for (kind, which, index, raw) in seed {
            let word = match raw % 5 {
                0 => 0,
                1 | 2 => table(raw >> 8 & 7) | 3,
                3 => raw & 0xffff_f000 | 0x0010_0000_0000_0743,
                _ => raw,
            };
            all.push(match kind {
                0..=3 => What::Store { address: table(which) + index * 8, word },
                4 => What::Table {
                    address: table(which),
                    words: (0..layout.granule.table_entries() as u64)
                        .map(|at| if at == index { word } else { 0 })
                        .collect(),
                },
                5 => What::Tlbi { opcode: 0xd508_0000 | (raw as u32 & 0x3fff) << 5, operand: raw },
                6 => What::Barrier(Barrier::Dsb { domain: Domain::System, types: Types::All }),
                _ => What::Register {
                    register: if half == Half::Lower { Register::Ttbr0 } else { Register::Ttbr1 },
                    value: table(which) | index << 48,
                },
            });
        }
        let events: Vec<Event> = all
            .into_iter()
            .enumerate()
            .map(|(at, what)| Event { cpu: (at % 3) as u16, pc: 0, what })
            .collect();
        let trace = written(&events);
        hostile::judge(&trace[12..]);
    }
}

#[test]
fn other_files_are_refused_in_a_sentence() {
    let error = |bytes: &[u8]| read(bytes).1.unwrap().to_string();
    assert!(error(b"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00").starts_with("expected a trace"));
    assert!(error(b"").starts_with("expected a trace"));
    assert!(error(b"FOLIOREC\x05\x00\x00\x00")
        .contains("version 5 and this folioscope reads up to version 4"));
    assert!(error(b"FOLIOREC\x01").starts_with("the trace was cut"));
    assert!(error(b"FOLIOREC\x01\x00\x00\x00\x3f").contains("damaged behind record 0"));
    assert!(error(b"FOLIOREC\x01\x00\x00\x00\x30\x07").contains("an end that counts 7 records"));
}

/// A table of 8192 pages with rising addresses, each no more than a block.
#[test]
fn a_table_of_blocks_is_small() {
    let word =
        |at: u64| 0x00e8_0000_4000_0fc3 + (at / 32 * 7919 % 4096) * 0x20_0000 + at % 32 * 0x1_0000;
    let table = |words: Vec<u64>| What::Table {
        address: 0x4800_0000,
        words,
    };
    let event = |what| Event {
        cpu: 0,
        pc: 0,
        what,
    };
    let blocks = written(&[event(table((0..8192).map(word).collect()))]).len();
    assert!(blocks < 8192 / 32 * 16, "{blocks} bytes");
    let even = (0..8192).map(|at| 0x00e8_0000_4000_0fc3 + at * 0x1_0000);
    assert!(written(&[event(table(even.collect()))]).len() < 60);
}

/// A table as versions before 4 have it.
#[test]
fn older_traces_are_read() {
    let (events, error) = read(b"FOLIOREC\x03\x00\x00\x00\x33\x01\x03\x01\x02\x0a\x02\x30\x01");
    assert!(error.is_none(), "{error:?}");
    let words = vec![0, 5, 6];
    assert_eq!(events[0].what, What::Table { address: 8, words });
}

/// A kernel's most frequent stores: runs of pages, and the same cleared again.
#[test]
fn a_store_takes_at_most_16_bytes() {
    let mut events = Vec::new();
    for round in 0..50_u64 {
        let word = |index: u64| 0x00e8_0000_4000_0fc3 + (round * 0x37 + index) * 0x1000;
        for index in 0..16 {
            events.push((index, word(index)));
        }
        events.extend((0..16).map(|index| (index, 0)));
        // At scattered places, in no order.
        events.push((round * 977 % 512, word(3) ^ round << 40));
    }
    let events: Vec<Event> = events
        .into_iter()
        .enumerate()
        .map(|(at, (index, word))| Event {
            cpu: (at / 7 % 2) as u16,
            pc: 0xffff_8000_8001_0000 + (at as u64 % 5) * 0x1234 * 4,
            what: What::Store {
                address: 0x4800_0000 + index * 8,
                word,
            },
        })
        .collect();
    let bytes = written(&events).len();
    assert!(
        bytes <= events.len() * 16,
        "{bytes} bytes for {}",
        events.len()
    );
}
