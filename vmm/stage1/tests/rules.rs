//! Each rule both ways: a good table passes, and one broken in just that way is caught by just
//! that rule, at every granule and level that has it.

mod common;

use common::{rules, telling_layouts, violations};
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{ArchRule, Granule, Half, Level, PhysicalAddress, VirtualAddress};

const CONTIGUOUS: u64 = 1 << 52;

/// The layouts, with every level of it that has groups.
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

/// A VA in the half's middle that is aligned to a group of `level`, and a PA likewise.
fn addresses(layout: &Layout, level: i8) -> (u64, u64) {
    let bytes = layout.entry_size(level) * layout.group(level).max(1);
    let middle = 1_u64 << (layout.va_bits - 1);
    // With the smallest VAs the middle may be within the only group.
    let va = layout.first_va() + middle / bytes * bytes;
    let pa = (1_u64 << (layout.pa_bits - 1)) + bytes;
    (va, pa)
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
fn a6_contiguous_bit_where_it_is_reserved() {
    let mut tried = 0;
    for layout in telling_layouts() {
        for level in layout
            .leaf_levels()
            .into_iter()
            .filter(|level| layout.group(*level) == 0)
        {
            let (va, pa) = addresses(&layout, level);
            let mut tables = TableBuilder::new(layout);
            tables.map(va, pa, level, Attributes::default(), false);
            assert_eq!(rules(&tables), [""; 0], "{layout:?} level {level}");
            tables.map(va, pa, level, Attributes::default(), true);
            assert_eq!(rules(&tables), ["A6"], "{layout:?} level {level}");
            tried += 1;
        }
    }
    assert!(
        tried > 20,
        "4K level 0, 16K level 1 and 64K level 1 blocks: {tried}"
    );
}

#[test]
fn a7_reserved_type() {
    for layout in telling_layouts() {
        let (va, pa) = addresses(&layout, 3);
        let mut tables = TableBuilder::new(layout);
        tables.map_page(va, pa, Attributes::default(), false);
        assert_eq!(rules(&tables), [""; 0], "{layout:?}");
        tables.change(va, 3, |word| word & !0b10);
        assert_eq!(rules(&tables), ["A7"], "{layout:?}");
    }
}

/// RES0 bits of a leaf of `level`, written down from the figures of the descriptor formats.
fn res0(layout: &Layout, level: i8) -> Vec<u32> {
    let page = match layout.granule {
        Granule::K4 => 12,
        Granule::K16 => 14,
        Granule::K64 => 16,
    };
    let shift = if level == 3 {
        page
    } else {
        layout.entry_size(level).trailing_zeros()
    };
    // At 64K bits [15:12] are address with FEAT_LPA and RES0 without.
    let at_64k = layout.granule == Granule::K64 && layout.pa_bits == 52;
    let mut bits: Vec<u32> = (12..shift).filter(|bit| !(at_64k && *bit < 16)).collect();
    if !layout.ds {
        bits.extend([48, 49]);
    }
    bits
}

#[test]
fn a7_bits_that_have_to_be_zero() {
    for layout in telling_layouts() {
        for level in layout.leaf_levels() {
            let (va, pa) = addresses(&layout, level);
            for bit in res0(&layout, level) {
                let mut tables = TableBuilder::new(layout);
                tables.map(va, pa, level, Attributes::default(), false);
                tables.change(va, level, |word| word | 1 << bit);
                assert_eq!(
                    rules(&tables),
                    ["A7"],
                    "bit {bit}: {layout:?} level {level}"
                );
            }
        }
        // Table descriptors: bit 50, and [49:48] without DS.
        let bits = if layout.ds { &[50][..] } else { &[48, 49, 50] };
        for bit in bits {
            let (va, pa) = addresses(&layout, 3);
            let mut tables = TableBuilder::new(layout);
            tables.map_page(va, pa, Attributes::default(), false);
            let first = layout.levels()[0].0;
            tables.change(va, first, |word| word | 1 << bit);
            let expected: &[&str] = if first == 3 { &[] } else { &["A7"] };
            assert_eq!(rules(&tables), expected, "bit {bit}: {layout:?}");
        }
    }
}

#[test]
fn a7_nt_only_where_the_pe_is_known_to_lack_it() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    let mut tables = TableBuilder::new(layout);
    tables.map(0, 1 << 30, 2, Attributes::default(), false);
    tables.change(0, 2, |word| word | 1 << 16);
    assert_eq!(rules(&tables), ["A7"], "the layout's PE has no FEAT_BBM");
    for mmfr2 in [None, Some(1 << 52), Some(2 << 52)] {
        let mut registers = tables.registers();
        registers.id_aa64mmfr[2] = mmfr2;
        let regime = stage1::Regime::new(&registers, Half::Lower).unwrap();
        let found = common::violations_of(&tables, &regime, regime.first, regime.last);
        assert_eq!(found, [], "ID_AA64MMFR2_EL1 {mmfr2:x?}");
    }
}

#[test]
fn a7_bits_that_mean_something_or_nothing() {
    // NS, AF, nG, GP, DBM, PXN, UXN, software's, PBHA, 63: none is reported.
    for layout in telling_layouts() {
        for bit in [
            2, 3, 4, 5, 6, 7, 10, 11, 50, 51, 53, 54, 55, 58, 59, 60, 61, 62, 63,
        ] {
            let (va, pa) = addresses(&layout, 3);
            let mut tables = TableBuilder::new(layout);
            tables.map_page(va, pa, Attributes::default(), false);
            tables.change(va, 3, |word| word ^ 1 << bit);
            assert_eq!(rules(&tables), [""; 0], "bit {bit}: {layout:?}");
        }
    }
}

#[test]
fn a7_output_address_above_the_output_size() {
    for pa_bits in [32, 36, 40, 42, 44] {
        for granule in Granule::ALL {
            let layout = Layout {
                pa_bits,
                ..Layout::new(granule, Half::Lower, 48)
            };
            let top = 1_u64 << (pa_bits - 1);
            let mut tables = TableBuilder::new(layout);
            tables.map_page(0, top, Attributes::default(), false);
            assert_eq!(rules(&tables), [""; 0], "{layout:?}");
            tables.map_page(0, top << 1, Attributes::default(), false);
            assert_eq!(rules(&tables), ["A7"], "{layout:?}");
            // A whole group of them is consecutive and aligned: only too high.
            tables.map_group(0, top << 1, 3, Attributes::default());
            assert_eq!(rules(&tables), ["A7"], "{layout:?}");
        }
    }
    // 52-bit descriptors with 48 bits of output: the high address bits lie elsewhere.
    for (granule, bits) in [
        (Granule::K4, [8, 9, 48, 49]),
        (Granule::K16, [8, 9, 48, 49]),
        (Granule::K64, [12, 13, 14, 15]),
    ] {
        let layout = Layout {
            pa_bits: 48,
            ..Layout::new(granule, Half::Lower, 48).wide()
        };
        for bit in bits {
            let mut tables = TableBuilder::new(layout);
            tables.map_page(0, 1 << 47, Attributes::default(), false);
            assert_eq!(rules(&tables), [""; 0], "{layout:?}");
            tables.change(0, 3, |word| word | 1 << bit);
            assert_eq!(rules(&tables), ["A7"], "bit {bit}: {layout:?}");
        }
    }
}

#[test]
fn a7_next_table_above_the_output_size() {
    let layout = Layout {
        pa_bits: 40,
        ..Layout::new(Granule::K4, Half::Lower, 48)
    };
    let mut tables = TableBuilder::new(layout);
    tables.map_page(0, 0, Attributes::default(), false);
    tables.change(0, 1, |word| word | 1 << 44);
    assert_eq!(rules(&tables), ["A7"]);
}

#[test]
fn a8_block_where_the_granule_has_none() {
    let mut tried = 0;
    for layout in telling_layouts() {
        let leaves = layout.leaf_levels();
        for (level, _) in layout
            .levels()
            .into_iter()
            .filter(|(level, _)| !leaves.contains(level))
        {
            let (va, pa) = (layout.first_va(), 0);
            let mut tables = TableBuilder::new(layout);
            tables.map_page(va, pa, Attributes::default(), false);
            assert_eq!(rules(&tables), [""; 0], "{layout:?}");
            tables.map(va, pa, level, Attributes::default(), false);
            assert_eq!(rules(&tables), ["A8"], "{layout:?} level {level}");
            tried += 1;
        }
    }
    assert!(tried > 20, "only {tried} combinations were tried");
}

#[test]
fn a8_not_judged_at_64k_where_lpa_is_unknown() {
    let layout = Layout {
        pa_bits: 48,
        ..Layout::new(Granule::K64, Half::Lower, 48)
    };
    let mut tables = TableBuilder::new(layout);
    tables.map(0, 0, 1, Attributes::default(), false);
    assert_eq!(
        rules(&tables),
        ["A8"],
        "ID_AA64MMFR0_EL1.PARange says 48 bits"
    );
    let mut registers = tables.registers();
    registers.id_aa64mmfr[0] = None;
    let regime = stage1::Regime::new(&registers, Half::Lower).unwrap();
    assert_eq!(
        common::violations_of(&tables, &regime, regime.first, regime.last),
        []
    );
}

#[test]
fn a_violation_says_where_and_what() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    let mut tables = TableBuilder::new(layout);
    tables.map_group(0x40_0000, 0x8000_0000, 3, Attributes::default());
    tables.change(0x40_3000, 3, |word| word & !CONTIGUOUS);
    let found = violations(&tables);
    let [violation] = &found[..] else {
        panic!("one violation, found {found:?}")
    };
    assert_eq!(violation.rule, ArchRule::A4);
    assert_eq!(violation.level, Level::L3);
    assert_eq!(violation.va, VirtualAddress(0x40_0000));
    assert_eq!(
        violation.table,
        PhysicalAddress(tables.place(0x40_0000, 3).unwrap())
    );
    assert_eq!(violation.index, 0);
    assert_eq!(violation.words.len(), 16);
    assert_eq!(violation.words[3] & CONTIGUOUS, 0);
    assert_eq!(
        violation.to_string(),
        "A4 VA 0x0000000000400000 level 3: 15 descriptors have the Contiguous bit and 1 valid \
         ones lack it (the first at index 3), expected all valid ones of a group to agree"
    );
}

#[test]
fn every_rule_has_its_own_id_title_and_reference() {
    for (number, rule) in ArchRule::ALL.into_iter().enumerate() {
        assert_eq!(rule.id(), format!("A{}", number + 1));
        assert!(rule.reference().starts_with("Arm ARM D8."));
        assert!(!rule.title().is_empty());
    }
}
