// SPDX-License-Identifier: GPL-2.0-only
//! A6 to A8, the rules on descriptors by themselves, both ways: a good table passes, and a table broken in one way
//! violates exactly that rule, at every granule and level that has it.

mod common;

use common::{addresses, rules, telling_layouts, violations};
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{ArchRule, Granule, Half, Level, PhysicalAddress, VirtualAddress};

const CONTIGUOUS: u64 = 1 << 52;

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

/// Returns the RES0 bits of a leaf of `level`, from the figures of the descriptor formats.
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
            // A whole group of them is consecutive and aligned, and only too high.
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
fn a7_high_address_bits_at_64k_whether_lpa_is_there_or_unknown() {
    // 48 bits of output on a PE that has 52 (PARange 0b0110), or may have them.
    let layout = Layout::new(Granule::K64, Half::Lower, 48);
    let narrow = layout.registers(0).id_aa64mmfr[0].unwrap();
    for mmfr0 in [Some(narrow & !0xf | 6), None] {
        for bit in 12..16 {
            let mut tables = TableBuilder::new(layout);
            tables.map_group(0, 1 << 30, 3, Attributes::default());
            let mut registers = tables.registers();
            registers.id_aa64mmfr[0] = mmfr0;
            let regime = stage1::Regime::new(&registers, Half::Lower).unwrap();
            assert_eq!((regime.lpa, regime.pa_bits), (true, 48));
            let found = |tables: &TableBuilder| {
                let found = common::violations_of(tables, &regime, regime.first, regime.last);
                found.iter().map(|v| v.rule.id()).collect::<Vec<_>>()
            };
            assert_eq!(found(&tables), [""; 0]);
            for member in 0..32 {
                tables.change(member << 16, 3, |word| word | 1 << bit);
            }
            assert_eq!(
                found(&tables),
                ["A7"; 32],
                "bit {bit}: consecutive, but too high"
            );
            tables.map_group(0, 1 << 30, 3, Attributes::default());
            tables.change(0, 2, |word| word | 1 << bit);
            assert_eq!(found(&tables), ["A7"], "bit {bit} of a table descriptor");
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
