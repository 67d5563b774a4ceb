//! A copy that is made from the last one and a record of writes is the copy that would be made from nothing:
//! for any tables, however they change and whatever else was written to.

use std::collections::BTreeMap;

use proptest::prelude::*;
use snapshot::{
    LastCopy, Memory, MemoryError, Range, RangeSet, ReadAgain, Recording, Region, Wanted, PAGE,
};
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{
    walk, Descend, Granule, Half, PhysMemory as _, PhysicalAddress, Regime, Table, Visitor,
};

/// Where the builder puts its tables.
const BASE: u64 = 0x4000_0000;
/// Tables that there is memory for.
const TABLES: u64 = 24;
/// Descriptors of a table that are changed: the first ones. Tables that lead to each other are walked often enough.
const PLACES: u64 = 4;

/// Each granule with tables at all levels, small first tables, and addresses of more than 48 bits.
fn layouts() -> Vec<Layout> {
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

/// Guest memory with tables of two processes in it, and a record of what was written.
struct World {
    layout: Layout,
    memory: Memory,
    roots: [u64; 2],
    /// A page that is wanted besides the tables.
    other: u64,
    written: RangeSet,
    last: LastCopy,
}

impl World {
    fn new(layout: Layout) -> Self {
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

    fn regimes(&self) -> Vec<Regime> {
        let regime = |root| Regime::new(&self.layout.registers(root), self.layout.half).unwrap();
        self.roots.map(regime).to_vec()
    }

    fn granule(&self) -> u64 {
        self.layout.granule.bytes()
    }

    fn word(&self, at: u64) -> u64 {
        self.memory.words(PhysicalAddress(at), 1).unwrap()[0]
    }

    fn write(&mut self, at: u64, word: u64) {
        self.memory
            .write(PhysicalAddress(at), &word.to_le_bytes())
            .unwrap();
        self.written.insert(range(at, 8));
    }

    /// The tables that a walk visits now.
    fn visited(&self) -> Vec<u64> {
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

    fn change(&mut self, change: &Change) {
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
    fn copy_again(
        &mut self,
        written: Option<&RangeSet>,
    ) -> Result<(Memory, ReadAgain), MemoryError> {
        let regimes = self.regimes();
        let others = [range(self.other, 8)].into_iter().collect();
        let wanted = Wanted {
            regimes: &regimes,
            others: &others,
            unit: self.granule(),
        };
        self.last.copy_again(&self.memory, &wanted, written)
    }

    /// What a copy that is made from nothing holds, page by page.
    fn whole(&self) -> BTreeMap<u64, Vec<u64>> {
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

    /// That the copy is whole and walks like the memory itself.
    fn compare(&self, copy: &Memory) -> Result<(), String> {
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

/// All that a copy holds, page by page.
fn held(copy: &Memory) -> BTreeMap<u64, Vec<u64>> {
    let regions = copy.regions().iter();
    regions
        .flat_map(|region| pages_of(copy, region.range()))
        .collect()
}

fn link_to(layout: &Layout, table: u64) -> u64 {
    0b11 | layout.encode_address(table)
}

fn range(base: u64, bytes: u64) -> Range {
    Range::new(PhysicalAddress(base), bytes).unwrap()
}

fn pages_of(memory: &Memory, range: Range) -> Vec<(u64, Vec<u64>)> {
    let page = |at| {
        let words = memory.words(PhysicalAddress(at), PAGE as usize / 8);
        (at, words.unwrap().to_vec())
    };
    (range.base.0..range.end())
        .step_by(PAGE as usize)
        .map(page)
        .collect()
}

struct Nothing;
impl Visitor<'_> for Nothing {}

#[derive(Default)]
struct Visited(Vec<u64>);
impl<'m> Visitor<'m> for Visited {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        self.0.push(table.address.0);
        Descend::Into
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// A page, a block or nothing is mapped.
    Leaf,
    /// Any table, be it an ancestor, is linked here too.
    Link,
    /// A table where there is no memory, or none that can be read.
    Outside,
    Garbage,
    Unlink,
    /// A table's words go to another place and every link follows.
    Move,
    /// A process has another first table.
    Root,
    /// A write to what need not be a table.
    Elsewhere,
}

#[derive(Clone, Debug)]
struct Change {
    what: What,
    numbers: [u64; 3],
}

fn change() -> impl Strategy<Value = Change> {
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

/// Some changes between two copies, and pages that are said to be written though they are not.
fn step() -> impl Strategy<Value = (Vec<Change>, Vec<u64>)> {
    let pages = prop::collection::vec(0..TABLES, 0..3);
    (prop::collection::vec(change(), 0..4), pages)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn copy_after_copy_is_whole(
        layout in prop::sample::select(layouts()),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut world = World::new(layout);
        let (copy, _) = world.copy_again(None).unwrap();
        prop_assert_eq!(world.compare(&copy), Ok(()));
        // A copy that somebody still has does not change.
        let mut kept = Some((held(&copy), copy));
        for (changes, more) in steps {
            world.written = RangeSet::new();
            for change in &changes {
                world.change(change);
            }
            // Most often the same as before.
            if let [page] = *more {
                world.other = BASE + page * PAGE;
            }
            let mut written = world.written.clone();
            written.extend(more.iter().map(|page| range(BASE + page * PAGE, PAGE)));
            let (copy, read_again) = world.copy_again(Some(&written)).unwrap();
            prop_assert_eq!(world.compare(&copy), Ok(()), "after {:?}", changes);
            prop_assert!(read_again.tables <= read_again.of);
            if let Some((before, kept)) = kept.take() {
                prop_assert!(held(&kept) == before);
            }
            kept = (more.len() != 1).then(|| (held(&copy), copy));
        }
    }

    /// That the test above is able to fail.
    #[test]
    fn a_write_that_is_withheld_is_missed(
        layout in prop::sample::select(layouts()),
        numbers in any::<[u64; 2]>(),
        link in any::<bool>(),
    ) {
        let mut world = World::new(layout);
        world.copy_again(None).unwrap();
        let visited = world.visited();
        let table = visited[(numbers[0] % visited.len() as u64) as usize];
        let place = table + numbers[1] % PLACES * 8;
        let unused = BASE + (TABLES - 1) * world.granule();
        let word = if link { link_to(&layout, unused) } else { 0b10 };
        prop_assume!(world.word(place) & 0b11 != 0b11);
        world.write(place, word);
        let (copy, read_again) = world.copy_again(Some(&RangeSet::new())).unwrap();
        prop_assert_eq!(read_again.tables, 0);
        prop_assert!(world.compare(&copy).is_err());
    }
}

/// Tables of 1 GiB by pages of 4K, as Linux has them.
fn gibibyte() -> World {
    let mut world = World::new(Layout::new(Granule::K4, Half::Lower, 48));
    let mut tables = TableBuilder::new(world.layout);
    for page in 0..1 << 18 {
        let va = 0x40_0000_0000 + (page << 12);
        tables.map_page(va, page << 12, Attributes::default(), false);
    }
    let words: Vec<u64> = (0..)
        .map_while(|index| tables.memory().word(BASE + index * 8))
        .collect();
    let ram = vec![range(BASE, words.len() as u64 * 8)];
    world.memory = Memory::new(vec![Region::owned(PhysicalAddress(BASE), words)], ram).unwrap();
    world.roots = [tables.root(); 2];
    world
}

#[test]
fn one_written_table_is_one_table_read() {
    let mut world = gibibyte();
    let regimes = world.regimes();
    let none = RangeSet::new();
    let wanted = Wanted {
        regimes: &regimes[..1],
        others: &none,
        unit: 4096,
    };
    let mut last = LastCopy::default();
    let (first, read_again) = last.copy_again(&world.memory, &wanted, None).unwrap();
    let of = 512 + 3;
    assert_eq!(read_again, ReadAgain { tables: of, of });
    let place = first.regions()[100].range().base.0;
    world.write(place, 0);
    let (second, read_again) = last
        .copy_again(&world.memory, &wanted, Some(&world.written))
        .unwrap();
    assert_eq!(read_again, ReadAgain { tables: 1, of });
    let words = |memory: &Memory, region: usize| {
        let at = memory.regions()[region].range().base;
        memory.words(at, 512).unwrap().as_ptr()
    };
    assert_eq!(first.regions().len(), of as usize);
    let same = (0..of as usize).filter(|region| words(&first, *region) == words(&second, *region));
    assert_eq!(same.count() as u64, of - 1, "all others are shared");
}

/// Every descriptor leads to the same next table: 2^36 ways, of which a walk takes as many as its budget has.
#[test]
fn a_walk_that_ends_early_is_copied_as_far_as_it_came() {
    let mut world = World::new(Layout::new(Granule::K4, Half::Lower, 48));
    world.roots = [BASE; 2];
    for (table, next) in [(0, 1), (1, 2), (2, 3)] {
        for index in 0..512 {
            let word = link_to(&world.layout, BASE + next * 4096);
            world.write(BASE + table * 4096 + index * 8, word);
        }
    }
    // Beyond the end of the budget: not visited, so not to be copied.
    let far = link_to(&world.layout, BASE + 9 * 4096);
    world.write(BASE + 511 * 8, far);
    for written in [None, Some(RangeSet::new())] {
        let (copy, _) = world.copy_again(written.as_ref()).unwrap();
        assert_eq!(world.compare(&copy), Ok(()));
        assert!(!world.visited().contains(&(BASE + 9 * 4096)));
    }
}

#[test]
fn another_asid_is_the_same_walk() {
    let mut world = gibibyte();
    world.copy_again(None).unwrap();
    let mut regime = world.regimes()[0];
    regime.asid = 77;
    let none = RangeSet::new();
    let wanted = Wanted {
        regimes: &[regime],
        others: &none,
        unit: 4096,
    };
    let (_, read_again) = world
        .last
        .copy_again(&world.memory, &wanted, Some(&none))
        .unwrap();
    assert_eq!(read_again.tables, 0);
    regime.va_bits -= 1;
    let wanted = Wanted {
        regimes: &[regime],
        ..wanted
    };
    let (_, read_again) = world
        .last
        .copy_again(&world.memory, &wanted, Some(&none))
        .unwrap();
    assert_eq!(
        read_again.tables, read_again.of,
        "another regime is read anew"
    );
}
