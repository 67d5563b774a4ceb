// SPDX-License-Identifier: GPL-2.0-only
//! A1 to A5, the rules on groups, both ways: a good table passes, and a table broken in one way violates exactly that
//! rule, at every granule and level that has groups.

mod common;

use common::{addresses, rules, telling_layouts, violations};
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{Granule, Half, VirtualAddress};

const CONTIGUOUS: u64 = 1 << 52;

/// Returns the layouts, with every level of it that has groups.
fn groups() -> impl Iterator<Item = (Layout, i8)> {
    let with_levels = |layout: Layout| {
        let grouped = move |level: &i8| layout.group(*level) > 0;
        layout
            .leaf_levels()
            .into_iter()
            .filter(grouped)
            .map(move |level| (layout, level))
    };
    telling_layouts().into_iter().flat_map(with_levels)
}

fn good(layout: Layout, level: i8) -> (TableBuilder, u64, u64) {
    let mut tables = TableBuilder::new(layout);
    let (va, pa) = addresses(&layout, level);
    tables.map_group(va, pa, level, Attributes::default());
    (tables, va, pa)
}

/// Applies `breaks` to a good group's table for every layout and level, and expects `rule` alone.
fn each_group(rule: &str, breaks: impl Fn(&mut TableBuilder, u64, u64, i8)) {
    let mut tried = 0;
    for (layout, level) in groups() {
        let (mut tables, va, pa) = good(layout, level);
        assert_eq!(
            rules(&tables),
            [""; 0],
            "good table: {layout:?} level {level}"
        );
        breaks(&mut tables, va, pa, level);
        assert_eq!(
            rules(&tables),
            [rule],
            "broken table: {layout:?} level {level}"
        );
        tried += 1;
    }
    assert!(tried > 100, "only {tried} combinations were tried");
}

#[test]
fn a1_group_at_an_index_that_is_no_multiple_of_its_size() {
    let mut tried = 0;
    for (layout, level) in groups() {
        let (group, size) = (layout.group(level), layout.entry_size(level));
        let (va, pa) = addresses(&layout, level);
        // Needs two groups side by side in one table.
        let entries =
            (1_u64 << (layout.va_bits - size.trailing_zeros())).min(layout.granule.bytes() / 8);
        if entries < 2 * group {
            continue;
        }
        let mut tables = TableBuilder::new(layout);
        let shifted = va + group / 2 * size;
        for member in 0..group {
            let offset = member * size;
            tables.map(
                shifted + offset,
                pa + offset,
                level,
                Attributes::default(),
                true,
            );
        }
        assert_eq!(rules(&tables), ["A1"], "{layout:?} level {level}");
        let found = violations(&tables);
        assert_eq!(found.len(), 2, "the group lies in two windows");
        assert_eq!(found[0].va, VirtualAddress(va));
        assert_eq!(found[0].words.len() as u64, group);
        tried += 1;
    }
    assert!(tried > 100, "only {tried} combinations were tried");
}

#[test]
fn a1_group_larger_than_its_table() {
    // 33 bits of VA: the first table has 8 descriptors of 1 GiB, and a group has 16.
    for (layout, level) in [
        (Layout::new(Granule::K4, Half::Lower, 33), 1),
        (Layout::new(Granule::K4, Half::Upper, 24), 2),
        (Layout::new(Granule::K16, Half::Lower, 18), 3),
        (Layout::new(Granule::K64, Half::Upper, 20), 3),
    ] {
        let mut tables = TableBuilder::new(layout);
        tables.map(
            layout.first_va(),
            1 << 40,
            level,
            Attributes::default(),
            false,
        );
        assert_eq!(rules(&tables), [""; 0], "{layout:?}");
        tables.map(
            layout.first_va(),
            1 << 40,
            level,
            Attributes::default(),
            true,
        );
        assert_eq!(rules(&tables), ["A1"], "{layout:?}");
    }
}

#[test]
fn a2_output_range_not_aligned_to_the_group() {
    each_group("A2", |tables, va, pa, level| {
        let layout = *tables.layout();
        let size = layout.entry_size(level);
        for member in 0..layout.group(level) {
            let offset = member * size;
            tables.map(
                va + offset,
                pa + size + offset,
                level,
                Attributes::default(),
                true,
            );
        }
    });
}

#[test]
fn a2_half_a_group_that_no_neighbour_continues() {
    for (layout, level) in groups() {
        let (va, pa) = addresses(&layout, level);
        let (group, size) = (layout.group(level), layout.entry_size(level));
        let mut tables = TableBuilder::new(layout);
        for member in 0..group / 2 {
            let (va, pa) = (va + (group / 2 + member) * size, pa + member * size);
            tables.map(va, pa, level, Attributes::default(), true);
        }
        // No descriptor shows that the place in the table is wrong rather than the output address.
        assert_eq!(rules(&tables), ["A2"], "{layout:?} level {level}");
    }
}

#[test]
fn a3_one_member_elsewhere() {
    for place in [0, 1, 7, u64::MAX] {
        each_group("A3", |tables, va, pa, level| {
            let layout = *tables.layout();
            let (group, size) = (layout.group(level), layout.entry_size(level));
            let member = place.min(group - 1);
            let elsewhere = pa + (group + member) * size;
            tables.map(
                va + member * size,
                elsewhere,
                level,
                Attributes::default(),
                true,
            );
        });
    }
}

#[test]
fn a3_two_members_in_each_others_place() {
    each_group("A3", |tables, va, pa, level| {
        let size = tables.layout().entry_size(level);
        tables.map(va, pa + size, level, Attributes::default(), true);
        tables.map(va + size, pa, level, Attributes::default(), true);
    });
}

#[test]
fn a4_one_member_without_the_bit() {
    for place in [0, 1, 9, u64::MAX] {
        each_group("A4", |tables, va, _, level| {
            let layout = *tables.layout();
            let member = place.min(layout.group(level) - 1);
            let va = va + member * layout.entry_size(level);
            tables.change(va, level, |word| word & !CONTIGUOUS);
        });
    }
}

#[test]
fn a4_one_member_alone_with_the_bit() {
    for place in [0, 3, u64::MAX] {
        each_group("A4", |tables, va, pa, level| {
            let layout = *tables.layout();
            let size = layout.entry_size(level);
            let chosen = place.min(layout.group(level) - 1);
            for member in 0..layout.group(level) {
                let offset = member * size;
                let alone = member == chosen;
                tables.map(
                    va + offset,
                    pa + offset,
                    level,
                    Attributes::default(),
                    alone,
                );
            }
        });
    }
}

#[test]
fn a4_table_descriptor_among_contiguous_blocks() {
    let mut tried = 0;
    for (layout, level) in groups().filter(|(_, level)| *level < 3) {
        let (mut tables, va, _) = good(layout, level);
        let table = tables.new_table();
        tables.poke(
            va + layout.entry_size(level),
            level,
            0b11 | layout.encode_address(table),
        );
        assert_eq!(rules(&tables), ["A4"], "{layout:?} level {level}");
        // Bit 52 of a table descriptor is IGNORED: it makes no member of it.
        tables.change(va + layout.entry_size(level), level, |word| {
            word | CONTIGUOUS
        });
        assert_eq!(rules(&tables), ["A4"], "{layout:?} level {level}");
        tried += 1;
    }
    assert!(tried > 40, "only {tried} combinations were tried");
}

#[test]
fn a4_and_others_leave_invalid_members_alone() {
    for (layout, level) in groups() {
        let (mut tables, va, _) = good(layout, level);
        let size = layout.entry_size(level);
        // I_PGVGZ: invalid ones do not count, whatever their bits (a swap entry's are software's).
        tables.poke(va, level, 0);
        tables.poke(va + size, level, 0xffff_ffff_ffff_fffe);
        tables.poke(va + 2 * size, level, 0xffff_ffff_ffff_fffc & !CONTIGUOUS);
        assert_eq!(rules(&tables), [""; 0], "{layout:?} level {level}");
    }
}

#[test]
fn a5_one_member_with_another_attribute() {
    // AttrIndx 2 is Non-cacheable, 0 is cacheable; AP[1], AP[2], nG, GP, PXN, UXN.
    for bit in [3, 6, 7, 11, 50, 53, 54] {
        for place in [0, 5, u64::MAX] {
            each_group("A5", |tables, va, _, level| {
                let layout = *tables.layout();
                let member = place.min(layout.group(level) - 1);
                let va = va + member * layout.entry_size(level);
                tables.change(va, level, |word| word ^ 1 << bit);
            });
        }
    }
}

#[test]
fn a5_shareability_unless_it_is_address() {
    for (layout, level) in groups() {
        let (mut tables, va, _) = good(layout, level);
        tables.change(va, level, |word| word ^ 1 << 8);
        // With DS bits [9:8] are OA[51:50]: the same change moves the output.
        let expected = if layout.ds { "A3" } else { "A5" };
        assert_eq!(rules(&tables), [expected], "{layout:?} level {level}");
    }
}

#[test]
fn a5_bits_that_may_differ() {
    // AF, NS (no meaning in Non-secure state), DBM without hardware management, [58:55], [63:59].
    for bit in [5, 10, 51, 55, 56, 57, 58, 59, 60, 61, 62, 63] {
        for (layout, level) in groups() {
            let (mut tables, va, _) = good(layout, level);
            tables.change(va + layout.entry_size(level), level, |word| word ^ 1 << bit);
            assert_eq!(
                rules(&tables),
                [""; 0],
                "bit {bit}: {layout:?} level {level}"
            );
        }
    }
}

#[test]
fn a5_read_only_bit_follows_hardware_management_and_dbm() {
    const AP2: u64 = 1 << 7;
    const DBM: u64 = 1 << 51;
    for (layout, level) in groups() {
        for (ha, hd, dbm, expected) in [
            (true, true, true, &[][..]),  // the PE clears AP[2]
            (true, true, false, &["A5"]), // not without DBM
            (true, false, true, &["A5"]), // not without HD
            (false, true, true, &["A5"]), // HD needs HA
            (false, false, true, &["A5"]),
        ] {
            let layout = Layout { ha, hd, ..layout };
            let (mut tables, va, _) = good(layout, level);
            let size = layout.entry_size(level);
            for member in 0..layout.group(level) {
                let keep = if dbm { u64::MAX } else { !DBM };
                tables.change(va + member * size, level, |word| word & keep);
            }
            tables.change(va + size, level, |word| word | AP2);
            assert_eq!(
                rules(&tables),
                expected,
                "{layout:?} level {level} DBM {dbm}"
            );
        }
        let layout = layout.hardware_dirty();
        let (mut tables, va, _) = good(layout, level);
        tables.change(va, level, |word| word & !DBM);
        assert_eq!(
            rules(&tables),
            ["A5"],
            "DBM of one member: {layout:?} level {level}"
        );
    }
}

#[test]
fn a5_is_about_attributes_and_not_their_index() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    let (mut tables, va, _) = good(layout, 3);
    tables.change(va, 3, |word| word | 1 << 2); // AttrIndx 1
    assert_eq!(rules(&tables), ["A5"], "MAIR_EL1 has 0xf0 for it");
    let mut registers = tables.registers();
    registers.mair_el1 |= 0xff00;
    let regime = stage1::Regime::new(&registers, Half::Lower).unwrap();
    let found = common::violations_of(&tables, &regime, regime.first, regime.last);
    assert_eq!(found, [], "MAIR_EL1 has 0xff for both");
}

#[test]
fn a_group_that_the_range_touches_is_judged_whole() {
    for (layout, level) in groups() {
        let (mut tables, va, _) = good(layout, level);
        let size = layout.entry_size(level);
        tables.change(va, level, |word| word & !CONTIGUOUS);
        if level < 3 {
            // Only a table descriptor of the same group shows it.
            let table = tables.new_table();
            tables.poke(va + size, level, 0b11 | layout.encode_address(table));
        }
        let regime = common::regime(&tables);
        for member in [1, layout.group(level) - 1] {
            let at = VirtualAddress(va + member * size + 0x10);
            let found = common::violations_of(&tables, &regime, at, at);
            assert_eq!(found.len(), 1, "{layout:?} level {level}");
            assert_eq!(
                (found[0].rule.id(), found[0].va),
                ("A4", VirtualAddress(va))
            );
        }
        let beside = VirtualAddress(va.wrapping_sub(1));
        if regime.contains(beside) {
            assert_eq!(common::violations_of(&tables, &regime, beside, beside), []);
        }
    }
}
