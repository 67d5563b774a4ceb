// SPDX-License-Identifier: GPL-2.0-only
//! Tables that loop, are wrong or are absent give a finding, never a panic or an endless walk.

mod common;

use std::ops::Range;

use common::{regime, telling_layouts};
use stage1::testing::{Attributes, Layout, SparseMemory, TableBuilder};
use stage1::{
    check, check_within, lookup, walk, walk_within, Descend, Granule, Half, Level, Lookup,
    PhysicalAddress, ProblemKind, Regime, Table, VirtualAddress, Visitor, WalkProblem, WalkSummary,
};

#[derive(Default)]
struct Problems {
    found: Vec<WalkProblem>,
    tables: usize,
    entries: usize,
}

impl<'m> Visitor<'m> for Problems {
    fn table(&mut self, _: &Table<'m>) -> Descend {
        self.tables += 1;
        Descend::Into
    }

    fn entries(&mut self, _: &Table<'m>, range: Range<usize>) {
        self.entries += range.len();
    }

    fn problem(&mut self, problem: &WalkProblem) {
        self.found.push(*problem);
    }
}

fn problems(tables: &TableBuilder) -> (WalkSummary, Problems) {
    let regime = regime(tables);
    let mut seen = Problems::default();
    let summary = walk(
        tables.memory(),
        &regime,
        regime.first,
        regime.last,
        &mut seen,
    );
    assert_eq!(summary.problems, seen.found.len() as u64);
    assert_eq!(summary.complete, seen.found.is_empty());
    (summary, seen)
}

#[test]
fn a_table_that_is_its_own_ancestor() {
    for layout in telling_layouts() {
        let levels = layout.levels();
        for from in 0..levels.len() - 1 {
            for to in 0..=from {
                let mut tables = TableBuilder::new(layout);
                let va = layout.first_va();
                tables.map_page(va, 0, Attributes::default(), false);
                let ancestor = tables.place(va, levels[to].0).unwrap();
                tables.poke(va, levels[from].0, 0b11 | layout.encode_address(ancestor));
                let (_, seen) = problems(&tables);
                assert_eq!(seen.found.len(), 1, "{layout:?} level {from} to {to}");
                assert_eq!(seen.found[0].kind, ProblemKind::Loop);
                assert_eq!(seen.found[0].address, PhysicalAddress(ancestor));
                assert_eq!(seen.found[0].va, VirtualAddress(va));
                assert!(seen.found[0].kind.is_finding());
                let regime = regime(&tables);
                // A look-up goes round as often as there are levels, as the PE does.
                lookup(tables.memory(), &regime, VirtualAddress(va));
            }
        }
    }
}

#[test]
fn a_table_outside_ram() {
    for layout in telling_layouts()
        .into_iter()
        .filter(|layout| layout.levels().len() > 1)
    {
        let mut tables = TableBuilder::new(layout);
        let va = layout.first_va();
        let nowhere = 0x20_0000;
        let first = layout.levels()[0].0;
        tables.poke(va, first, 0b11 | layout.encode_address(nowhere));
        let (_, seen) = problems(&tables);
        assert_eq!(seen.found.len(), 1);
        assert_eq!(seen.found[0].kind, ProblemKind::OutsideRam);
        let place = seen.found[0].from.unwrap();
        assert_eq!((place.0, place.1), (PhysicalAddress(tables.root()), 0));
        let regime = regime(&tables);
        let Lookup::Problem(problem) = lookup(tables.memory(), &regime, VirtualAddress(va)) else {
            panic!("a translation through nothing");
        };
        assert_eq!(problem, seen.found[0]);
        let mut sink = |violation| panic!("good descriptors: {violation}");
        let summary = check(
            tables.memory(),
            &regime,
            regime.first,
            regime.last,
            &mut sink,
        );
        assert_eq!((summary.problems, summary.not_judged), (1, 0));
        assert_eq!(summary.first_problems, seen.found);

        // The same, but the machine has RAM there that was not saved.
        tables.memory_mut().add_unsaved(nowhere, 0x1_0000);
        let (_, seen) = problems(&tables);
        assert_eq!(seen.found[0].kind, ProblemKind::NotSaved);
        assert!(!seen.found[0].kind.is_finding());
    }
}

#[test]
fn a_table_of_which_ram_holds_a_part() {
    let layout = Layout::new(Granule::K64, Half::Lower, 42);
    let mut tables = TableBuilder::new(layout);
    tables.memory_mut().add(0x20_0000, vec![0; 100]);
    tables.poke(0, 2, 0b11 | 0x20_0000);
    let (_, seen) = problems(&tables);
    assert_eq!(seen.found[0].kind, ProblemKind::OutsideRam);
    tables
        .memory_mut()
        .add_unsaved(0x20_0000 + 800, 0x1_0000 - 800);
    let (_, seen) = problems(&tables);
    assert_eq!(seen.found[0].kind, ProblemKind::NotSaved);
    // The PE reads one descriptor, and so does a look-up.
    let regime = regime(&tables);
    let at = |va| lookup(tables.memory(), &regime, VirtualAddress(va));
    assert!(matches!(at(99 << 16), Lookup::NotMapped { .. }));
    assert!(matches!(
        at(100 << 16),
        Lookup::Problem(WalkProblem {
            kind: ProblemKind::NotSaved,
            ..
        })
    ));
}

#[test]
fn no_memory_at_all() {
    for layout in telling_layouts() {
        let registers = layout.registers(0x4000_0000);
        let regime = Regime::new(&registers, layout.half).unwrap();
        let memory = SparseMemory::new();
        let mut seen = Problems::default();
        let summary = walk(&memory, &regime, regime.first, regime.last, &mut seen);
        assert_eq!((summary.tables, summary.complete), (0, false));
        assert_eq!(seen.found[0].kind, ProblemKind::OutsideRam);
        assert_eq!(seen.found[0].from, None);
        assert!(matches!(
            lookup(&memory, &regime, regime.last),
            Lookup::Problem(_)
        ));
    }
}

#[test]
fn a_next_table_above_the_output_size() {
    let layout = Layout {
        pa_bits: 40,
        ..Layout::new(Granule::K4, Half::Upper, 48)
    };
    let mut tables = TableBuilder::new(layout);
    let va = layout.first_va();
    tables.map_page(va, 0, Attributes::default(), false);
    tables.change(va, 0, |word| word | 1 << 41);
    let (_, seen) = problems(&tables);
    assert_eq!(seen.found[0].kind, ProblemKind::BeyondOutputSize);
    assert_eq!(seen.found[0].level, Level::L1);
    let regime = regime(&tables);
    assert!(matches!(
        lookup(tables.memory(), &regime, VirtualAddress(va)),
        Lookup::Problem(_)
    ));
}

/// Returns every descriptor of each table leads to the same next one: 512^3 tables of level 3, and with five levels
/// 512^4.
fn shared(layout: Layout) -> TableBuilder {
    let mut tables = TableBuilder::new(layout);
    let levels = layout.levels();
    let va = layout.first_va();
    tables.map_page(va, 0x9_0000, Attributes::default(), false);
    for (at, (level, shift)) in levels.iter().enumerate() {
        let place = tables.place(va, *level).unwrap();
        let entries = match at {
            0 => 1 << (layout.va_bits - shift),
            _ => layout.granule.bytes() / 8,
        };
        let word = tables.memory().word(place).unwrap();
        for index in 0..entries {
            tables.memory_mut().poke(place + index * 8, word);
        }
    }
    tables
}

#[test]
fn tables_that_share_their_children_end_at_the_budget() {
    for layout in [
        Layout::new(Granule::K4, Half::Lower, 48),
        Layout::new(Granule::K4, Half::Upper, 52),
        Layout::new(Granule::K16, Half::Lower, 47),
        Layout::new(Granule::K64, Half::Upper, 52),
    ] {
        let tables = shared(layout);
        let regime = regime(&tables);
        for budget in [0, 1, 10_000, 1_000_000] {
            let mut seen = Problems::default();
            let (first, last) = (regime.first, regime.last);
            let summary = walk_within(tables.memory(), &regime, first, last, budget, &mut seen);
            assert!(!summary.complete);
            assert_eq!(seen.found.len(), 1);
            assert_eq!(seen.found[0].kind, ProblemKind::Budget);
            assert!(summary.descriptors < budget + 8192 + 1);
            assert!(seen.entries as u64 <= summary.descriptors);
        }

        let mut sink = |violation| panic!("good tables: {violation}");
        let checked = check_within(
            tables.memory(),
            &regime,
            regime.first,
            regime.last,
            1,
            &mut sink,
        );
        assert_eq!(
            (checked.complete, checked.problems, checked.not_judged),
            (false, 1, 1)
        );
        assert_eq!(checked.first_problems[0].kind, ProblemKind::Budget);

        // The rules visit each table once. (64K tables are slow without optimisation.)
        if layout.granule == Granule::K64 {
            continue;
        }
        let mut violations = 0;
        let mut sink = |_| violations += 1;
        let (first, last) = (regime.first, regime.last);
        let checked = check_within(tables.memory(), &regime, first, last, 1 << 24, &mut sink);
        assert!(checked.complete && checked.shared > 0);
        assert_eq!((checked.problems, violations), (0, 0));
        // A broken table above level 3 is one finding, however many descriptors lead to it.
        let mut tables = tables;
        let (level, _) = layout.levels()[1];
        tables.change(layout.first_va(), level, |word| word | 1 << 50);
        let found = common::violations(&tables);
        assert_eq!(found.len(), 1, "{layout:?}");
        assert_eq!(found[0].va, regime.first);
    }
}

#[test]
fn a_walk_of_nothing() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    let mut tables = TableBuilder::new(layout);
    tables.map_page(0, 0, Attributes::default(), false);
    let regime = regime(&tables);
    let mut seen = Problems::default();
    for (first, last) in [
        (VirtualAddress(0x2000), VirtualAddress(0x1fff)),
        (VirtualAddress(1 << 48), VirtualAddress(u64::MAX)),
        (VirtualAddress(u64::MAX), VirtualAddress(0)),
    ] {
        let summary = walk(tables.memory(), &regime, first, last, &mut seen);
        assert_eq!((summary.tables, summary.complete), (0, true));
    }
    // The other half is disabled by the layout's registers.
    let upper = Regime::new(&tables.registers(), Half::Upper).unwrap();
    assert!(upper.epd);
    let summary = walk(tables.memory(), &upper, upper.first, upper.last, &mut seen);
    assert_eq!(
        (summary.tables, summary.complete, seen.tables),
        (0, true, 0)
    );
    assert_eq!(
        lookup(tables.memory(), &upper, upper.last),
        Lookup::OutsideRegime
    );
}

#[test]
fn a_visitor_may_skip() {
    struct NoPages(Vec<Level>);
    impl<'m> Visitor<'m> for NoPages {
        fn table(&mut self, table: &Table<'m>) -> Descend {
            self.0.push(table.level);
            if table.level == Level::L2 {
                Descend::Skip
            } else {
                Descend::Into
            }
        }
        fn entries(&mut self, table: &Table<'m>, _: Range<usize>) {
            assert!(table.level < Level::L2);
        }
    }
    let mut tables = TableBuilder::new(Layout::new(Granule::K4, Half::Lower, 48));
    tables.map_page(0, 0, Attributes::default(), false);
    tables.map_page(1 << 40, 0, Attributes::default(), false);
    let regime = regime(&tables);
    let mut seen = NoPages(Vec::new());
    let summary = walk(
        tables.memory(),
        &regime,
        regime.first,
        regime.last,
        &mut seen,
    );
    let (l0, l1, l2) = (Level::L0, Level::L1, Level::L2);
    assert_eq!(seen.0, [l0, l1, l2, l1, l2]);
    assert!(summary.complete);
}
