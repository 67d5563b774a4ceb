// SPDX-License-Identifier: GPL-2.0-only
//! Made-up rings of four records and 256 bytes of text, laid out as the kernel's structures are on arm64.

use super::*;
use crate::types::Types;

const COUNT: u64 = 4;
const SIZE: u64 = 256;

fn member(offset: u64, size: u64) -> Member {
    Member {
        offset,
        size,
        elements: 1,
    }
}

fn layout() -> Layout {
    Layout {
        ring: 0,
        count_bits: member(0, 4),
        descriptors: member(8, 8),
        infos: member(16, 8),
        head: member(24, 8),
        tail: member(32, 8),
        size_bits: member(48, 4),
        data: member(56, 8),
        descriptor: 24,
        state: member(0, 8),
        begin: member(8, 8),
        next: member(16, 8),
        info: 88,
        sequence: member(0, 8),
        at: member(8, 8),
        length: member(16, 2),
        facility: member(18, 1),
    }
}

/// Rings that begin as the kernel's do: their positions wrap soon.
struct Made {
    rings: Rings,
    sequence: u64,
    position: u64,
}

fn put(bytes: &mut [u8], at: u64, value: &[u8]) {
    bytes[at as usize..at as usize + value.len()].copy_from_slice(value);
}

impl Made {
    fn new() -> Made {
        let empty = |bytes| vec![0; bytes as usize];
        let tail = ID - 1;
        Made {
            rings: Rings {
                before: empty(COUNT * 24),
                after: empty(COUNT * 24),
                infos: empty(COUNT * 88),
                text: empty(SIZE),
                count: COUNT,
                tail,
                head: tail - 1,
            },
            sequence: 7,
            position: SIZE.wrapping_neg(),
        }
    }

    /// Adds a record as `data_alloc()` does; `exact`: as it does where a block that just fits stays at the ring's end.
    fn add(&mut self, state: u64, facility: u8, text: &str, exact: bool) {
        let id = (self.rings.head + 1) & ID;
        self.rings.head = id;
        let index = id & (COUNT - 1);
        let bytes = (8 + text.len() as u64).next_multiple_of(8);
        let begin = self.position;
        let mut next = begin.wrapping_add(bytes);
        let last = next.wrapping_sub(u64::from(exact));
        let mut at = begin % SIZE;
        if begin / SIZE != last / SIZE {
            next = (next / SIZE * SIZE).wrapping_add(bytes);
            at = 0;
        }
        self.position = next;
        put(&mut self.rings.text, at, &id.to_le_bytes());
        put(&mut self.rings.text, at + 8, text.as_bytes());
        self.describe(id | state << STATE_SHIFT, (begin, next));
        let infos = &mut self.rings.infos;
        put(infos, index * 88, &self.sequence.to_le_bytes());
        put(infos, index * 88 + 8, &(self.sequence * 1000).to_le_bytes());
        put(infos, index * 88 + 16, &(text.len() as u16).to_le_bytes());
        put(infos, index * 88 + 18, &[facility]);
        self.sequence += 1;
    }

    /// Writes the newest descriptor.
    fn describe(&mut self, state: u64, (begin, next): (u64, u64)) {
        let at = (self.rings.head & (COUNT - 1)) * 24;
        for (n, word) in [state, begin, next].into_iter().enumerate() {
            for ring in [&mut self.rings.before, &mut self.rings.after] {
                put(ring, at + n as u64 * 8, &word.to_le_bytes());
            }
        }
    }

    fn texts(&self) -> Vec<String> {
        let log = layout().log(&self.rings).unwrap();
        let text = |record: Record| String::from_utf8(record.text).unwrap();
        log.records.into_iter().map(text).collect()
    }
}

#[test]
fn records_in_order_across_the_ends_of_the_rings() {
    for exact in [false, true] {
        let mut made = Made::new();
        // 104 and 112 bytes with their ids, and 40 that just fit.
        let (one, two, fits) = ("a".repeat(96), "b".repeat(104), "c".repeat(32));
        for text in [&one, &two, &fits] {
            made.add(FINALIZED, 0, text, exact);
        }
        assert_eq!(made.position % SIZE, if exact { 0 } else { 40 });
        let log = layout().log(&made.rings).unwrap();
        assert_eq!(log.overwritten, 7);
        assert_eq!(log.records.last().map(|last| last.at_ns), Some(9000));
        // One that does not stay at the end lies upon the first, which is gone then.
        match exact {
            true => assert_eq!(made.texts(), [one, two, fits]),
            false => assert_eq!(made.texts(), [two, fits]),
        }
    }
}

#[test]
fn what_is_no_record_of_the_kernel() {
    let mut made = Made::new();
    made.add(FINALIZED, 1, "by a program", true);
    made.add(0, 0, "reserved", true);
    made.add(COMMITTED, 0, "may go on", true);
    assert_eq!(made.texts(), ["may go on"]);
    made.add(FINALIZED, 0, "whole", true);
    assert_eq!(made.texts(), ["may go on", "whole"]);
    // Used again while it was read.
    let place = (made.rings.head & (COUNT - 1)) as usize * 24;
    made.rings.after[place] ^= 4;
    assert_eq!(made.texts(), ["may go on"]);
}

#[test]
fn what_makes_no_sense() {
    let mut made = Made::new();
    made.add(FINALIZED, 0, "one", true);
    let state = made.rings.head | FINALIZED << STATE_SHIFT;
    // Without text, another's block, and positions that cannot be.
    let wrong = [
        (1, 1),
        (3, 3),
        (0, 64),
        (64, 0),
        (0, u64::MAX),
        (5, 6),
        (250, 300),
    ];
    for block in wrong {
        made.describe(state, block);
        let expected: &[&str] = match block {
            // The block at the ring's start is its own.
            (0, 64) | (250, 300) => &["one"],
            _ => &[],
        };
        assert_eq!(made.texts(), expected, "{block:?}");
    }
    made.rings.head = made.rings.tail + COUNT;
    assert!(layout().log(&made.rings).is_err());
}

#[test]
fn a_kernel_without_a_log_is_told_from_one_that_hides_it() {
    let layout = |functions: &[&str]| {
        let mut table = linux::symbols::SymbolTable {
            names: Vec::new(),
            symbols: Vec::new(),
        };
        for (at, name) in functions.iter().enumerate() {
            let address = 0xffff_8000_8000_0000 + 64 * at as u64;
            table.symbols.push((address, table.names.len() as u32));
            table.names.extend(name.bytes().chain([0]));
        }
        let kernel = Kernel {
            symbols: linux::symbols::Symbols::of_running(table),
            types: Types::parse(include_bytes!("../../../fuzz/seeds/btf/small")).unwrap(),
        };
        Layout::new(&kernel).unwrap_err().to_string()
    };
    let none = layout(&["_stext", "dump_stack_printk", "schedule"]);
    assert_eq!(
        none,
        "this kernel was built without CONFIG_PRINTK, so it reports nothing of itself"
    );
    // Without CONFIG_KALLSYMS_ALL its variables are not listed; before 5.15 the function had another name.
    for has in ["_printk", "printk"] {
        let hidden = layout(&["_stext", has, "schedule"]);
        assert!(hidden.contains("no variable prb"), "{hidden}");
    }
}
