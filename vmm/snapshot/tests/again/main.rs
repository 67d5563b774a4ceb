// SPDX-License-Identifier: GPL-2.0-only
//! A copy made from the last one and a record of writes equals a copy made from scratch: for any tables, any changes of
//! them and any other writes.

use proptest::prelude::*;
use snapshot::{LastCopy, Memory, RangeSet, Region, TablesRead, Wanted, PAGE};
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{walk, Granule, Half, PhysMemory as _, PhysicalAddress};

mod world;

use world::*;

/// Generates changes between two copies, and pages that are recorded as written though they are not.
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
        // A copy that still has an owner does not change.
        let mut kept = Some((held(&copy), copy));
        for (changes, more) in steps {
            world.written = RangeSet::new();
            for change in &changes {
                world.change(change);
            }
            // Usually the same as before.
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

    /// Shows that the test above is able to fail.
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

/// Creates tables of 1 GiB by pages of 4K, as Linux has them.
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
    assert_eq!(read_again, TablesRead { tables: of, of });
    let place = first.regions()[100].range().base.0;
    world.write(place, 0);
    let (second, read_again) = last
        .copy_again(&world.memory, &wanted, Some(&world.written))
        .unwrap();
    assert_eq!(read_again, TablesRead { tables: 1, of });
    let words = |memory: &Memory, region: usize| {
        let at = memory.regions()[region].range().base;
        memory.words(at, 512).unwrap().as_ptr()
    };
    assert_eq!(first.regions().len(), of as usize);
    let same = (0..of as usize).filter(|region| words(&first, *region) == words(&second, *region));
    assert_eq!(same.count() as u64, of - 1, "all others are shared");
}

/// Every descriptor leads to the same next table: 2^36 paths, of which a walk takes as many as its budget allows. One
/// path suffices to copy the tables (KASAN's shadow is such a tree). The part beyond that budget is copied as well, for
/// a reader that knows that tables are shared.
#[test]
fn a_table_of_many_parents_is_copied_once() {
    let mut world = World::new(Layout::new(Granule::K4, Half::Lower, 48));
    world.roots = [BASE; 2];
    for (table, next) in [(0, 1), (1, 2), (2, 3)] {
        for index in 0..512 {
            let word = link_to(&world.layout, BASE + next * 4096);
            world.write(BASE + table * 4096 + index * 8, word);
        }
    }
    let far = link_to(&world.layout, BASE + 9 * 4096);
    world.write(BASE + 511 * 8, far);
    let regime = world.regimes()[0];
    for written in [None, Some(RangeSet::new())] {
        let (copy, _) = world.copy_again(written.as_ref()).unwrap();
        let pages: Vec<_> = held(&copy).into_keys().collect();
        let tables: Vec<_> = [0, 1, 2, 3, 9].map(|table| BASE + table * 4096).into();
        assert!(
            tables.iter().all(|table| pages.contains(table)),
            "{pages:x?}"
        );
        let summary = |memory| walk(memory, &regime, regime.first, regime.last, &mut Nothing);
        assert_eq!(summary(&copy), summary(&world.memory));
        assert!(!summary(&copy).complete);
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
