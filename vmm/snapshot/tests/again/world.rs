// SPDX-License-Identifier: GPL-2.0-only
//! Guest memory whose tables change in any way, and the expected contents of a copy.

use std::collections::BTreeMap;

use proptest::prelude::*;
use snapshot::{
    LastCopy, Memory, MemoryError, Range, RangeSet, Recording, Region, TablesRead, Wanted, PAGE,
};
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{
    walk, Descend, Granule, Half, PhysMemory as _, PhysicalAddress, Regime, Table, Visitor,
};

/// Address at which the builder puts its tables.
pub const BASE: u64 = 0x4000_0000;
/// Number of tables for which there is memory.
pub const TABLES: u64 = 24;
/// Descriptors of a table that are changed: the first ones. Tables that lead to each other are walked often enough.
pub const PLACES: u64 = 4;

/// Returns each granule with tables at all levels, small first tables, and addresses of more than 48 bits.
pub fn layouts() -> Vec<Layout> {
    let sizes = [
        (Granule::K4, [48, 39, 40, 52]),
        (Granule::K16, [48, 36, 47, 38]),
        (Granule::K64, [48, 42, 43, 52]),
    ];
    let each = |(granule, sizes): (Granule, [u32; 4])| {
        sizes.map(|va_bits| Layout::new(granule, Half::Lower, va_bits))
    };
    sizes.into_iter().flat_map(each).collect()
}

/// Guest memory with tables of two processes in it, and a record of the writes.
pub struct World {
    pub layout: Layout,
    pub memory: Memory,
    pub roots: [u64; 2],
    /// A page that is wanted besides the tables.
    pub other: u64,
    pub written: RangeSet,
    pub last: LastCopy,
}

impl World {
    pub fn new(layout: Layout) -> Self {
        let mut tables = TableBuilder::new(layout);
        let size = layout.entry_size(3);
        for page in 0..PLACES {
            tables.map_page(page * size, page * size, Attributes::default(), false);
        }
        // The second process has a table at each level as well.
        let first = tables.root();
        let second = tables.new_table();
        let levels = layout.levels();
        let mut above = second;
        for _ in 1..levels.len() {
            let below = tables.new_table();
            let word = 0b11 | layout.encode_address(below);
            assert!(tables.memory_mut().poke(above, word));
            above = below;
        }
        let granule = layout.granule.bytes();
        let bytes = TABLES * granule;
        let words: Vec<u64> = (BASE..BASE + bytes)
            .step_by(8)
            .map(|at| tables.memory().word(at).unwrap_or(0))
            .collect();
        // Two nodes that touch, and RAM that cannot be read.
        let (one, other) = words.split_at(words.len() / 3);
        let node = |base, words: &[u64]| Region::owned(PhysicalAddress(base), words.to_vec());
        let regions = vec![node(BASE, one), node(BASE + bytes / 3, other)];
        let ram = vec![range(BASE, bytes + 4 * granule)];
        Self {
            layout,
            memory: Memory::new(regions, ram).unwrap(),
            roots: [first, second],
            other: BASE + 5 * PAGE,
            written: RangeSet::new(),
            last: LastCopy::default(),
        }
    }

    pub fn regimes(&self) -> Vec<Regime> {
        let regime = |root| Regime::new(&self.layout.registers(root), self.layout.half).unwrap();
        self.roots.map(regime).to_vec()
    }

    pub fn granule(&self) -> u64 {
        self.layout.granule.bytes()
    }

    pub fn word(&self, at: u64) -> u64 {
        self.memory.words(PhysicalAddress(at), 1).unwrap()[0]
    }

    pub fn write(&mut self, at: u64, word: u64) {
        self.memory
            .write(PhysicalAddress(at), &word.to_le_bytes())
            .unwrap();
        self.written.insert(range(at, 8));
    }

    /// Returns the tables that a walk visits now.
    pub fn visited(&self) -> Vec<u64> {
        let mut visited = Visited::default();
        for regime in self.regimes() {
            walk(
                &self.memory,
                &regime,
                regime.first,
                regime.last,
                &mut visited,
            );
        }
        visited.0.sort_unstable();
        visited.0.dedup();
        visited.0
    }

    pub fn change(&mut self, change: &Change) {
        let [one, two, three] = change.numbers;
        let granule = self.granule();
        let visited = self.visited();
        let table = visited[(one % visited.len() as u64) as usize];
        // Mostly one of the first; a table of the large granules has several pages.
        let index = match two >> 60 {
            0..3 => two % (granule / 8),
            _ => two % PLACES,
        };
        let place = (table + index * 8).min(BASE + TABLES * granule - 8);
        let any = BASE + three % TABLES * granule;
        let link = |to| link_to(&self.layout, to);
        match change.what {
            What::Leaf => self.write(place, three & !0b11 | [0b11, 0b01, 0][three as usize % 3]),
            What::Link => self.write(place, link(any)),
            What::Outside => self.write(place, link(BASE + (TABLES + three % 8) * granule)),
            What::Garbage => self.write(place, three),
            What::Unlink => self.write(place, 0),
            What::Move if table % granule == 0 => {
                for at in (0..granule).step_by(8) {
                    let word = self.word(table + at);
                    if self.word(any + at) != word {
                        self.write(any + at, word);
                    }
                }
                for parent in visited {
                    for at in (0..PLACES * 8).step_by(8) {
                        if self.word(parent + at) == link_to(&self.layout, table) {
                            self.write(parent + at, link_to(&self.layout, any));
                        }
                    }
                }
            }
            What::Root => {
                // A first table that is smaller than a page may be anywhere in one.
                let bytes = (self.regimes()[0].root_entries as u64 * 8).max(64);
                let inside = (three >> 32) % (granule / bytes) * bytes;
                self.roots[(one % 2) as usize] = any + inside;
            }
            What::Move | What::Elsewhere => self.write(any + two % (granule / 8) * 8, three),
        }
    }

    /// Copies again; `more` was written to as well, for all that is known.
    pub fn copy_again(
        &mut self,
        written: Option<&RangeSet>,
    ) -> Result<(Memory, TablesRead), MemoryError> {
        let regimes = self.regimes();
        let others = [range(self.other, 8)].into_iter().collect();
        let wanted = Wanted {
            regimes: &regimes,
            others: &others,
            unit: self.granule(),
        };
        self.last.copy_again(&self.memory, &wanted, written)
    }

    /// Returns what a copy that is made from nothing holds, page by page.
    pub fn whole(&self) -> BTreeMap<u64, Vec<u64>> {
        let recording = Recording::new(&self.memory);
        for regime in self.regimes() {
            walk(&recording, &regime, regime.first, regime.last, &mut Nothing);
        }
        recording.words(PhysicalAddress(self.other), 1);
        let pages = recording.into_ranges();
        pages
            .iter()
            .flat_map(|range| pages_of(&self.memory, range))
            .collect()
    }

    /// Checks that the copy is whole and walks like the memory itself.
    pub fn compare(&self, copy: &Memory) -> Result<(), String> {
        let held = held(copy);
        let whole = self.whole();
        let keys = |pages: &BTreeMap<u64, _>| pages.keys().copied().collect::<Vec<_>>();
        if keys(&held) != keys(&whole) {
            return Err(format!(
                "pages {:x?}, expected {:x?}",
                keys(&held),
                keys(&whole)
            ));
        }
        if let Some((page, _)) = whole.iter().find(|(page, words)| held[*page] != **words) {
            return Err(format!("other words in page {page:#x}"));
        }
        for regime in self.regimes() {
            let summary = |memory| walk(memory, &regime, regime.first, regime.last, &mut Nothing);
            assert_eq!(summary(copy), summary(&self.memory));
        }
        Ok(())
    }
}

/// Returns all that a copy holds, page by page.
pub fn held(copy: &Memory) -> BTreeMap<u64, Vec<u64>> {
    let regions = copy.regions().iter();
    regions
        .flat_map(|region| pages_of(copy, region.range()))
        .collect()
}

pub fn link_to(layout: &Layout, table: u64) -> u64 {
    0b11 | layout.encode_address(table)
}

pub fn range(base: u64, bytes: u64) -> Range {
    Range::new(PhysicalAddress(base), bytes).unwrap()
}

pub fn pages_of(memory: &Memory, range: Range) -> Vec<(u64, Vec<u64>)> {
    let page = |at| {
        let words = memory.words(PhysicalAddress(at), PAGE as usize / 8);
        (at, words.unwrap().to_vec())
    };
    (range.base.0..range.end())
        .step_by(PAGE as usize)
        .map(page)
        .collect()
}

pub struct Nothing;
impl Visitor<'_> for Nothing {}

#[derive(Default)]
pub struct Visited(Vec<u64>);
impl<'m> Visitor<'m> for Visited {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        self.0.push(table.address.0);
        Descend::Into
    }
}

#[derive(Clone, Copy, Debug)]
pub enum What {
    /// A page, a block or nothing is mapped.
    Leaf,
    /// Links any table here too, even an ancestor.
    Link,
    /// Links a table where there is no memory, or none that can be read.
    Outside,
    Garbage,
    Unlink,
    /// A table's words go to another place and every link follows.
    Move,
    /// A process has another first table.
    Root,
    /// Writes to memory that need not be a table.
    Elsewhere,
}

#[derive(Clone, Debug)]
pub struct Change {
    what: What,
    numbers: [u64; 3],
}

pub fn change() -> impl Strategy<Value = Change> {
    let what = prop_oneof![
        6 => Just(What::Leaf),
        6 => Just(What::Link),
        1 => Just(What::Outside),
        1 => Just(What::Garbage),
        3 => Just(What::Unlink),
        2 => Just(What::Move),
        1 => Just(What::Root),
        2 => Just(What::Elsewhere),
    ];
    (what, any::<[u64; 3]>()).prop_map(|(what, numbers)| Change { what, numbers })
}
