// SPDX-License-Identifier: GPL-2.0-only
//! Tables built from a random description of mappings read back as the same mappings, for every
//! granule, size of VA, form of descriptors and half.

mod common;

use std::collections::BTreeMap;
use std::ops::Range;

use common::{all_layouts, regime, small_layouts, violations};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{
    lookup, walk, Descend, Descriptor, Kind, Level, Lookup, Permissions, PhysicalAddress, Regime,
    Table, VirtualAddress, Visitor,
};

/// One page or block: the input and the expected output.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mapping {
    pa: u64,
    level: i8,
    attributes: Attributes,
    contiguous: bool,
}

/// A planned mapping, as numbers that fit any layout once they are reduced to its size.
type Wish = (usize, u64, u64, Attributes, bool, [u64; 2]);

fn attributes() -> impl Strategy<Value = Attributes> {
    (0..8_u8, 0..4_u8, 0..4_u8, 0..16_u8, any::<[bool; 6]>()).prop_map(
        |(attr_indx, ap, sh, software, [af, ng, gp, dbm, pxn, uxn])| Attributes {
            attr_indx,
            ap,
            sh,
            af,
            ng,
            gp,
            dbm,
            pxn,
            uxn,
            software,
        },
    )
}

fn wish() -> impl Strategy<Value = Wish> {
    (
        any::<usize>(),
        any::<u64>(),
        any::<u64>(),
        attributes(),
        any::<bool>(),
        any::<[u64; 2]>(),
    )
}

/// Maps each wish that does not overlap an earlier one.
fn build(layout: Layout, wishes: &[Wish]) -> (TableBuilder, BTreeMap<u64, Mapping>) {
    let mut tables = TableBuilder::new(layout);
    let mut mapped = BTreeMap::new();
    let half = (1_u64 << (layout.va_bits - 1)) << 1;
    for (level, place, pa, attributes, folded, _) in wishes {
        let levels = layout.leaf_levels();
        let level = levels[level % levels.len()];
        let size = layout.entry_size(level);
        let folded = *folded && layout.group(level) > 0 && half >= layout.group(level) * size;
        let members = if folded { layout.group(level) } else { 1 };
        let bytes = members * size;
        // Low and high ends are more frequent than values between.
        let place = match place % 4 {
            0 => place / 4 % 8 * bytes % half,
            1 => half - (place / 4 % 8 + 1) * bytes % half,
            _ => *place % half,
        };
        let offset = place / bytes * bytes % half;
        let va = layout.first_va().wrapping_add(offset);
        let pa = pa % (1 << layout.pa_bits) / bytes * bytes;
        let end = va.wrapping_add(bytes - 1);
        let overlaps = mapped.iter().any(|(at, other): (&u64, &Mapping)| {
            let other_end = at.wrapping_add(layout.entry_size(other.level) - 1);
            *at <= end && va <= other_end
        });
        if overlaps {
            continue;
        }
        for member in 0..members {
            let (va, pa) = (va + member * size, pa + member * size);
            tables.map(va, pa, level, *attributes, folded);
            let mapping = Mapping {
                pa,
                level,
                attributes: *attributes,
                contiguous: folded,
            };
            mapped.insert(va, mapping);
        }
    }
    (tables, mapped)
}

fn read_back(descriptor: &Descriptor<'_>, layout: &Layout) -> Mapping {
    Mapping {
        pa: descriptor.output_address().0,
        level: descriptor.level.number(),
        contiguous: descriptor.contiguous(),
        attributes: Attributes {
            attr_indx: descriptor.attr_indx(),
            ap: descriptor.ap(),
            sh: descriptor.sh().unwrap_or(0),
            af: descriptor.af(),
            ng: descriptor.ng(),
            gp: descriptor.gp(),
            dbm: descriptor.dbm(),
            pxn: descriptor.pxn(),
            uxn: descriptor.uxn(),
            software: descriptor.software(),
        },
    }
    .under(layout)
}

impl Mapping {
    /// Removes SH with DS, which has none.
    fn under(mut self, layout: &Layout) -> Self {
        if layout.ds {
            self.attributes.sh = 0;
        }
        self
    }
}

/// Collects the leaves of a walk, and asserts that its runs tile the range without gap or overlap.
struct Collect<'r> {
    regime: &'r Regime,
    layout: Layout,
    leaves: BTreeMap<u64, Mapping>,
    runs: Vec<(u64, u64)>,
}

impl<'m> Visitor<'m> for Collect<'_> {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        assert!(table.range.end <= table.words.len() && !table.range.is_empty());
        Descend::Into
    }

    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        assert!(range.start >= table.range.start && range.end <= table.range.end);
        let end = table.va_of(range.end, self.regime).0.wrapping_sub(1);
        self.runs
            .push((table.va_of(range.start, self.regime).0, end));
        for index in range {
            let descriptor = Descriptor::new(table.words[index], table.level, self.regime);
            assert_ne!(descriptor.kind(), Kind::Table);
            if descriptor.kind().is_leaf() {
                let va = table.va_of(index, self.regime).0;
                self.leaves.insert(va, read_back(&descriptor, &self.layout));
            }
        }
    }
}

fn collect(
    tables: &TableBuilder,
    regime: &Regime,
    first: u64,
    last: u64,
) -> BTreeMap<u64, Mapping> {
    let layout = *tables.layout();
    let mut visitor = Collect {
        regime,
        layout,
        leaves: BTreeMap::new(),
        runs: Vec::new(),
    };
    let (first, last) = (VirtualAddress(first), VirtualAddress(last));
    let summary = walk(tables.memory(), regime, first, last, &mut visitor);
    assert!(summary.complete && summary.problems == 0);
    let runs = &visitor.runs;
    assert!(
        runs[0].0 <= first.0 && runs[runs.len() - 1].1 >= last.0,
        "{runs:x?}"
    );
    for pair in runs.windows(2) {
        assert_eq!(pair[0].1.wrapping_add(1), pair[1].0, "{runs:x?}");
    }
    visitor.leaves
}

fn round_trip(layout: Layout, wishes: &[Wish]) {
    let (tables, mapped) = build(layout, wishes);
    let regime = regime(&tables);
    let expected: BTreeMap<_, _> = mapped
        .iter()
        .map(|(va, m)| (*va, m.under(&layout)))
        .collect();
    assert_eq!(
        collect(&tables, &regime, regime.first.0, regime.last.0),
        expected
    );
    assert_eq!(violations(&tables), [], "good tables");

    for (_, _, _, _, _, [one, two]) in wishes {
        // A part of the half: exactly the descriptors that it touches.
        let (one, two) = (one % (1 << layout.va_bits), two % (1 << layout.va_bits));
        let first = layout.first_va().wrapping_add(one.min(two));
        let last = layout.first_va().wrapping_add(one.max(two));
        let touched = |va: u64, mapping: &Mapping| {
            va <= last && va.wrapping_add(layout.entry_size(mapping.level) - 1) >= first
        };
        let part = expected.iter().filter(|(va, m)| touched(**va, m));
        let part: BTreeMap<_, _> = part.map(|(va, m)| (*va, *m)).collect();
        assert_eq!(
            collect(&tables, &regime, first, last),
            part,
            "{first:#x} to {last:#x}"
        );
        look_up(&tables, &regime, &expected, first);
    }
    for (va, mapping) in &expected {
        let size = layout.entry_size(mapping.level);
        for at in [*va, va + 1, va + size / 2 + 3, va + (size - 1)] {
            look_up(&tables, &regime, &expected, at);
        }
        for at in [va.wrapping_sub(1), va.wrapping_add(size)] {
            if regime.contains(VirtualAddress(at)) {
                look_up(&tables, &regime, &expected, at);
            }
        }
    }
}

fn look_up(tables: &TableBuilder, regime: &Regime, expected: &BTreeMap<u64, Mapping>, va: u64) {
    let layout = tables.layout();
    let there = expected.range(..=va).next_back();
    let there = there.filter(|(at, m)| va - **at < layout.entry_size(m.level));
    match (lookup(tables.memory(), regime, VirtualAddress(va)), there) {
        (Lookup::Mapped { entry, pa, .. }, Some((at, mapping))) => {
            assert_eq!(pa, PhysicalAddress(mapping.pa + (va - at)));
            assert_eq!(entry.va, VirtualAddress(*at));
            assert_eq!(read_back(&entry.descriptor, layout), *mapping);
            let place = tables.place(va, mapping.level).unwrap();
            assert_eq!(entry.table.0 + entry.index as u64 * 8, place);
        }
        (Lookup::NotMapped { entry }, None) => assert_eq!(entry.descriptor.kind(), Kind::Invalid),
        (found, there) => panic!("VA {va:#x}: found {found:?}, expected {there:x?}"),
    }
}

#[test]
fn every_format_reads_back_what_was_mapped() {
    let wishes = proptest::collection::vec(wish(), 1..12);
    for layout in all_layouts().into_iter().chain(small_layouts()) {
        let mut runner = TestRunner::new(Config {
            cases: 8,
            ..Config::default()
        });
        let result = runner.run(&wishes, |wishes| {
            round_trip(layout, &wishes);
            Ok(())
        });
        if let Err(failure) = result {
            panic!("{layout:?}: {failure}");
        }
    }
}

#[test]
fn tables_above_48_bits_of_address() {
    for layout in all_layouts()
        .into_iter()
        .filter(|layout| layout.pa_bits == 52)
    {
        let mut tables = TableBuilder::at(layout, 0xf_8765_4321_0000);
        let (va, pa) = (layout.first_va(), 0xa_0000_0000_0000);
        tables.map_group(va, pa, 3, Attributes::default());
        let regime = regime(&tables);
        assert_eq!(regime.root, PhysicalAddress(0xf_8765_4321_0000));
        let Lookup::Mapped { pa: found, .. } =
            lookup(tables.memory(), &regime, VirtualAddress(va + 0x2345))
        else {
            panic!("not mapped in {layout:?}");
        };
        assert_eq!(found, PhysicalAddress(pa + 0x2345));
        assert_eq!(violations(&tables), []);
    }
}

#[test]
fn tags_are_ignored_with_tbi_only() {
    let layout = Layout::new(stage1::Granule::K4, stage1::Half::Lower, 48);
    let mut tables = TableBuilder::new(layout);
    tables.map_page(0x7000, 0x9000, Attributes::default(), false);
    let mut registers = tables.registers();
    let tagged = VirtualAddress(0xab00_0000_0000_7123);
    let without = Regime::new(&registers, stage1::Half::Lower).unwrap();
    assert_eq!(
        lookup(tables.memory(), &without, tagged),
        Lookup::OutsideRegime
    );
    registers.tcr_el1 |= 1 << 37;
    let with = Regime::new(&registers, stage1::Half::Lower).unwrap();
    let Lookup::Mapped { pa, .. } = lookup(tables.memory(), &with, tagged) else {
        panic!("not mapped");
    };
    assert_eq!(pa, PhysicalAddress(0x9123));
}

#[test]
fn what_tables_impose_holds_below_them() {
    let layout = Layout::new(stage1::Granule::K4, stage1::Half::Lower, 48);
    let all = Permissions {
        el0_read: true,
        el0_write: true,
        el0_exec: true,
        el1_read: true,
        el1_write: true,
        el1_exec: false, // EL0 may write
    };
    // Bits of a table descriptor, and the permissions left of `all`.
    for (bits, expected) in [
        (0, all),
        (1 << 59, all), // PXNTable: it was not executable for EL1 anyway
        (
            1 << 60,
            Permissions {
                el0_exec: false,
                ..all
            },
        ),
        (
            0b01 << 61,
            Permissions {
                el0_read: false,
                el0_write: false,
                el1_exec: true,
                ..all
            },
        ),
        (
            0b10 << 61,
            Permissions {
                el0_write: false,
                el1_write: false,
                el1_exec: true,
                ..all
            },
        ),
        (
            0b11 << 61 | 1 << 59,
            Permissions {
                el0_read: false,
                el0_write: false,
                el1_write: false,
                ..all
            },
        ),
    ] {
        for level in 0..=2 {
            for hpd in [false, true] {
                let mut tables = TableBuilder::new(Layout { hpd, ..layout });
                let attributes = Attributes {
                    pxn: false,
                    uxn: false,
                    ..Attributes::default()
                };
                tables.map_page(0x5000, 0x9000, attributes, false);
                tables.change(0x5000, level, |word| word | bits);
                let regime = regime(&tables);
                let Lookup::Mapped {
                    permissions, entry, ..
                } = lookup(tables.memory(), &regime, VirtualAddress(0x5000))
                else {
                    panic!("not mapped");
                };
                assert_eq!(entry.descriptor.level, Level::L3);
                let expected = if hpd { all } else { expected };
                assert_eq!(
                    permissions, expected,
                    "{bits:#x} at level {level}, HPD {hpd}"
                );
            }
        }
    }
}
