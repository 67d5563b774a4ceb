// SPDX-License-Identifier: GPL-2.0-only
//! Writes tables.

use super::{Layout, SparseMemory};
use crate::SystemRegisters;

/// The fields of a page or block, by the Arm ARM's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // the bits of a descriptor
pub struct Attributes {
    /// AttrIndx\[2:0\].
    pub attr_indx: u8,
    /// AP\[2:1\].
    pub ap: u8,
    /// SH\[1:0\]; not written with TCR_EL1.DS.
    pub sh: u8,
    /// AF.
    pub af: bool,
    /// nG.
    pub ng: bool,
    /// GP.
    pub gp: bool,
    /// DBM.
    pub dbm: bool,
    /// PXN.
    pub pxn: bool,
    /// UXN.
    pub uxn: bool,
    /// Bits \[58:55\].
    pub software: u8,
}

impl Default for Attributes {
    /// Returns writable user memory as Linux maps it, accessed and written.
    fn default() -> Self {
        Self {
            attr_indx: 0,
            ap: 0b01,
            sh: 0b11,
            af: true,
            ng: true,
            gp: false,
            dbm: true,
            pxn: true,
            uxn: true,
            software: 0b0001,
        }
    }
}

impl Attributes {
    /// Returns the bits of a leaf, without type, address and Contiguous bit.
    #[must_use]
    pub const fn encode(&self, layout: &Layout) -> u64 {
        let sh = if layout.ds { 0 } else { self.sh as u64 & 0b11 };
        (self.attr_indx as u64 & 0b111) << 2
            | (self.ap as u64 & 0b11) << 6
            | sh << 8
            | (self.af as u64) << 10
            | (self.ng as u64) << 11
            | (self.gp as u64) << 50
            | (self.dbm as u64) << 51
            | (self.pxn as u64) << 53
            | (self.uxn as u64) << 54
            | (self.software as u64 & 0b1111) << 55
    }
}

/// Tables under construction, in a memory of their own.
///
/// VAs and PAs are in bytes. A request that the layout cannot express panics.
#[derive(Clone, Debug)]
pub struct TableBuilder {
    layout: Layout,
    memory: SparseMemory,
    root: u64,
    /// Address of the next table.
    free: u64,
}

impl TableBuilder {
    /// Creates an empty first table at 1 GiB, where QEMU's `virt` machine has its RAM.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self::at(layout, 0x4000_0000)
    }

    /// Creates an empty first table at `base`, a multiple of 64 KiB. Further tables follow it.
    ///
    /// # Panics
    /// If `base` is no such multiple.
    #[must_use]
    pub fn at(layout: Layout, base: u64) -> Self {
        assert_eq!(base % 0x1_0000, 0, "tables start at a multiple of 64 KiB");
        let mut memory = SparseMemory::new();
        memory.add(base, Vec::new());
        let mut builder = Self {
            layout,
            memory,
            root: base,
            free: base,
        };
        builder.new_table();
        builder
    }

    /// Returns the layout.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns registers whose TTBR holds the first table.
    #[must_use]
    pub fn registers(&self) -> SystemRegisters {
        self.layout.registers(self.root)
    }

    /// Returns the memory with the tables.
    #[must_use]
    pub const fn memory(&self) -> &SparseMemory {
        &self.memory
    }

    /// Returns the memory with the tables, to be changed.
    pub const fn memory_mut(&mut self) -> &mut SparseMemory {
        &mut self.memory
    }

    /// Returns the memory by value, to be merged with that of other tables.
    #[must_use]
    pub fn into_memory(self) -> SparseMemory {
        self.memory
    }

    /// Returns the first table.
    #[must_use]
    pub const fn root(&self) -> u64 {
        self.root
    }

    /// Adds an empty table, to which no descriptor leads yet.
    pub fn new_table(&mut self) -> u64 {
        let bytes = self.layout.granule.bytes();
        let address = self.free;
        self.memory.grow(usize::try_from(bytes / 8).unwrap_or(0));
        self.free += bytes;
        address
    }

    /// Maps one page.
    pub fn map_page(&mut self, va: u64, pa: u64, attributes: Attributes, contiguous: bool) {
        self.map(va, pa, 3, attributes, contiguous);
    }

    /// Maps one page or block at `level`, and creates the tables that lead to it.
    pub fn map(&mut self, va: u64, pa: u64, level: i8, attributes: Attributes, contiguous: bool) {
        let word = self.leaf(pa, level, attributes, contiguous);
        self.poke(va, level, word);
    }

    /// Maps a whole group at `level`, every member with the Contiguous bit.
    pub fn map_group(&mut self, va: u64, pa: u64, level: i8, attributes: Attributes) {
        let size = self.layout.entry_size(level);
        for member in 0..self.layout.group(level) {
            self.map(
                va + member * size,
                pa + member * size,
                level,
                attributes,
                true,
            );
        }
    }

    /// Returns the descriptor that [`TableBuilder::map`] would write.
    #[must_use]
    pub fn leaf(&self, pa: u64, level: i8, attributes: Attributes, contiguous: bool) -> u64 {
        let kind = if level == 3 { 0b11 } else { 0b01 };
        let address = self.layout.encode_address(pa);
        kind | address | attributes.encode(&self.layout) | u64::from(contiguous) << 52
    }

    /// Returns the address of the descriptor of `va` at `level`, if tables lead to it.
    #[must_use]
    pub fn place(&self, va: u64, level: i8) -> Option<u64> {
        let mut table = self.root;
        for (at, shift) in self.layout.levels() {
            let place = table + self.index(va, shift) * 8;
            if at == level {
                return Some(place);
            }
            table = self.next_table(self.memory.word(place)?)?;
        }
        None
    }

    /// Returns the descriptor of `va` at `level`.
    #[must_use]
    pub fn peek(&self, va: u64, level: i8) -> Option<u64> {
        self.memory.word(self.place(va, level)?)
    }

    /// Writes a raw descriptor for `va` at `level`, and creates the tables that lead to it.
    ///
    /// # Panics
    /// If the layout has no such VA or level, or a table descriptor leads out of the memory.
    pub fn poke(&mut self, va: u64, level: i8, word: u64) {
        let mut table = self.root;
        for (at, shift) in self.layout.levels() {
            let place = table + self.index(va, shift) * 8;
            if at == level {
                assert!(self.memory.poke(place, word), "no memory at {place:#x}");
                return;
            }
            let there = self
                .memory
                .word(place)
                .and_then(|word| self.next_table(word));
            table = there.unwrap_or_else(|| {
                let new = self.new_table();
                self.memory
                    .poke(place, 0b11 | self.layout.encode_address(new));
                new
            });
        }
        panic!("no level {level} in {:?}", self.layout);
    }

    /// Changes the descriptor of `va` at `level`, which has to exist.
    ///
    /// # Panics
    /// If no table leads there.
    pub fn change(&mut self, va: u64, level: i8, change: impl FnOnce(u64) -> u64) {
        let word = self
            .peek(va, level)
            .unwrap_or_else(|| panic!("no table for {va:#x}"));
        self.poke(va, level, change(word));
    }

    /// Returns the index of `va` in a table whose descriptors map `1 << shift` bytes. The first table ignores bits
    /// above those of the VA.
    fn index(&self, va: u64, shift: u32) -> u64 {
        let offset = va.wrapping_sub(self.layout.first_va());
        assert_eq!(
            offset >> self.layout.va_bits,
            0,
            "VA {va:#x} is not in this half"
        );
        (offset >> shift) % (self.layout.granule.bytes() / 8)
    }

    /// Returns the table that a table descriptor leads to.
    fn next_table(&self, word: u64) -> Option<u64> {
        if word & 0b11 != 0b11 {
            return None;
        }
        let low = word & 0x0000_ffff_ffff_f000;
        Some(if self.layout.ds {
            low | word & 0x0003_0000_0000_0000 | (word >> 8 & 0b11) << 50
        } else if self.layout.granule.bytes() == 0x1_0000 {
            low & !0xf000 | (word >> 12 & 0b1111) << 48
        } else {
            low
        })
    }
}
