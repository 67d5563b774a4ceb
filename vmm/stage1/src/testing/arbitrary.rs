// SPDX-License-Identifier: GPL-2.0-only
//! Reads arbitrary input as registers and memory, for the fuzz target and a property test.

use std::ops::Range;

use super::SparseMemory;
use crate::{
    check_plainly, check_within, lookup, walk_within, CheckSummary, Descriptor, Half, Lookup,
    Regime, SystemRegisters, Table, Violation, VirtualAddress, Visitor,
};

/// Maximum number of descriptors read. Arbitrary tables can ask for more than a run has time for.
const BUDGET: u64 = 1 << 13;
/// Base address of the memory.
const BASE: u64 = 0x4000_0000;
/// Number of words in the memory: four tables of the 64K granule, or 64 of 4K.
const WORDS: usize = 1 << 15;
/// Number of input words that are registers.
const REGISTERS: usize = 13;

/// Uses `input` as registers and memory, reads both halves in every way there is, and panics where two ways disagree.
/// The test is that there is no other panic, and that it ends.
pub fn read_anything(input: &[u8]) {
    let mut words = input.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    });
    let mut header = [0; REGISTERS];
    header.fill_with(|| words.next().unwrap_or(0));
    let rest: Vec<u64> = words.collect();
    let shape = header[0];
    let memory = memory(&rest, shape);
    let registers = registers(&header, shape);
    for half in Half::ALL {
        match Regime::new(&registers, half) {
            Ok(regime) => read(&memory, &regime, &rest),
            Err(error) => drop(error.to_string()),
        }
    }
}

fn registers(header: &[u64; REGISTERS], shape: u64) -> SystemRegisters {
    let given = |bit: u64, value: u64| (shape >> bit & 1 != 0).then_some(value);
    // Mostly a root that is in memory and an MMU that is on; other input exercises little.
    let root = |ttbr: u64| {
        if shape & 1 == 0 {
            ttbr & 0xffff_0000_0003_0000 | BASE
        } else {
            ttbr
        }
    };
    SystemRegisters {
        ttbr0_el1: root(header[1]),
        ttbr1_el1: root(header[2]),
        tcr_el1: header[3],
        tcr2_el1: given(1, header[4]),
        pir_el1: given(9, header[11]),
        pire0_el1: given(10, header[12]),
        por_el1: given(11, header[12].rotate_left(7)),
        por_el0: given(12, header[11].rotate_left(7)),
        mair_el1: header[5],
        sctlr_el1: if shape & 4 == 0 { 1 } else { header[6] },
        contextidr_el1: 0,
        id_aa64mmfr: [
            given(3, header[7]),
            given(4, header[8]),
            given(5, header[9]),
            given(6, header[10]),
        ],
        vbar_el1: None,
        hcr_el2: None,
        esr_el1: None,
        far_el1: None,
    }
}

/// Repeats the words over the memory, mostly with addresses that lie in this memory.
fn memory(words: &[u64], shape: u64) -> SparseMemory {
    const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
    let inside = |word: u64| {
        if shape >> 7 & 1 == 0 {
            word & !ADDRESS | BASE | word & 0x3_f000
        } else {
            word
        }
    };
    let mut memory = SparseMemory::new();
    if words.is_empty() {
        memory.add(BASE, vec![inside(shape); WORDS]);
    } else {
        memory.add(
            BASE,
            words
                .iter()
                .map(|word| inside(*word))
                .cycle()
                .take(WORDS)
                .collect(),
        );
    }
    if shape >> 8 & 1 != 0 {
        memory.add_unsaved(BASE + WORDS as u64 * 8, 1 << 20);
    }
    memory
}

fn read(memory: &SparseMemory, regime: &Regime, words: &[u64]) {
    let mut asked = words.iter().take(4).map(|word| VirtualAddress(*word));
    let (one, two) = (
        asked.next().unwrap_or(regime.first),
        asked.next().unwrap_or(regime.last),
    );
    for (first, last) in [(regime.first, regime.last), (one.min(two), one.max(two))] {
        let quick = judge(memory, regime, first, last, true);
        let plain = judge(memory, regime, first, last, false);
        assert_eq!(
            quick, plain,
            "the quick path and the plain reading of the rules"
        );
    }
    for va in asked.chain([regime.first, regime.last, one, two]) {
        drop(format!("{:?}", lookup(memory, regime, va)));
    }
    let mut leaves = Leaves {
        memory,
        regime,
        left: 64,
    };
    walk_within(
        memory,
        regime,
        regime.first,
        regime.last,
        BUDGET,
        &mut leaves,
    );
}

/// Returns the findings, counts and sentences, without all but the first of the violations.
fn judge(
    memory: &SparseMemory,
    regime: &Regime,
    first: VirtualAddress,
    last: VirtualAddress,
    quick: bool,
) -> (CheckSummary, Vec<Violation>) {
    let mut kept = Vec::new();
    let mut sink = |violation: Violation| {
        if kept.len() < 200 {
            drop(violation.to_string());
            kept.push(violation);
        }
    };
    let judge = if quick { check_within } else { check_plainly };
    let summary = judge(memory, regime, first, last, BUDGET, &mut sink);
    for problem in &summary.first_problems {
        drop(problem.to_string());
    }
    (summary, kept)
}

/// Looks up each leaf that the walk shows, and expects the same.
struct Leaves<'a> {
    memory: &'a SparseMemory,
    regime: &'a Regime,
    left: usize,
}

impl<'m> Visitor<'m> for Leaves<'_> {
    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        for index in range {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let descriptor = Descriptor::new(table.words[index], table.level, self.regime);
            drop(descriptor.to_string());
            let va = table.va_of(index, self.regime);
            let entry = match lookup(self.memory, self.regime, va) {
                Lookup::Mapped { entry, .. }
                | Lookup::NotMapped { entry }
                | Lookup::BeyondOutputSize { entry } => entry,
                other => panic!("VA {va}: the walk shows {descriptor}, the look-up says {other:?}"),
            };
            assert_eq!(entry.descriptor, descriptor, "VA {va}");
            assert_eq!(
                (entry.table, entry.index),
                (table.address, index),
                "VA {va}"
            );
            assert_eq!((entry.va, entry.inherited), (va, table.inherited));
        }
    }
}
