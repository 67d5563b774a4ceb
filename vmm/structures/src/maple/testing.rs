// SPDX-License-Identifier: GPL-2.0-only
//! Memory of a few pages that holds maple trees, for the tests and the fuzz target.

use stage1::{Half, PhysicalAddress, Regime, SystemRegisters};

use super::*;

/// 64 KiB of RAM: three tables that map its rest one to one, in the upper half, and nodes.
#[derive(Debug)]
pub struct Ram(Vec<u64>);

const BASE: u64 = 0x4000_0000;
/// Where the first page behind the tables is mapped.
pub(super) const VA: u64 = 0xffff_ff80_0000_3000;

impl PhysMemory for Ram {
    fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        let at = address.0.checked_sub(BASE)? as usize / 8;
        self.0.get(at..at + count)
    }

    fn is_ram(&self, address: PhysicalAddress) -> bool {
        (BASE..BASE + (64 << 10)).contains(&address.0)
    }
}

impl Ram {
    pub(super) fn new() -> Ram {
        let mut ram = Ram(vec![0; (64 << 10) / 8]);
        ram.0[0] = (BASE + 0x1000) | 3;
        ram.0[512] = (BASE + 0x2000) | 3;
        for page in 3..16 {
            ram.0[1024 + page] = (BASE + page as u64 * 0x1000) | 0x703;
        }
        ram
    }

    pub(super) fn set(&mut self, va: u64, word: u64) {
        self.0[(0x3000 + va - VA) as usize / 8] = word;
    }

    pub(super) fn read(&self, root: u64) -> Result<Vec<Entry>, StructureError> {
        let mut ram = Ram(self.0.clone());
        ram.set(VA, root);
        let registers = SystemRegisters {
            ttbr1_el1: BASE,
            tcr_el1: 25 | 25 << 16 | 2 << 30 | 5 << 32,
            sctlr_el1: 1,
            ..SystemRegisters::default()
        };
        let upper = &Regime::new(&registers, Half::Upper).unwrap();
        let memory = &ram;
        layout().entries(View { memory, upper }, VA)
    }
}

/// `MAPLE_RANGE64_SLOTS` 16 and `MAPLE_ARANGE64_SLOTS` 10.
pub(super) fn layout() -> Layout {
    let member = |offset, elements| Member {
        offset,
        size: 8 * elements,
        elements,
    };
    let node = |kind, slots| Node {
        kind,
        size: 256,
        pivots: member(8, slots - 1),
        slots: member(8 * slots, slots),
    };
    Layout {
        root: member(0, 1),
        leaf: node(1, 16),
        range: node(2, 16),
        arange: node(3, 10),
    }
}

/// Takes any bytes for the memory that a tree lies in, its first word for the root: what is read of it are ranges that rise,
/// or a sentence. Gives how many.
pub fn is_read(bytes: &[u8]) -> Option<usize> {
    let mut ram = Ram::new();
    let mut words = bytes.chunks_exact(8).map(|word| {
        // Chunks of 8 bytes.
        u64::from_le_bytes(word.try_into().unwrap_or_default())
    });
    let root = words.next()?;
    let room = ram.0.len() - 0x4000 / 8;
    for (at, word) in (0..).zip(words.take(room)) {
        ram.set(VA + 0x1000 + 8 * at, word);
    }
    let found = ram.read(root).ok()?;
    assert!(found.iter().all(|entry| entry.first <= entry.last));
    assert!(found.is_sorted_by(|one, next| one.last < next.first));
    Some(found.len())
}
