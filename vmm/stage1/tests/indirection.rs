// SPDX-License-Identifier: GPL-2.0-only
//! Permission indirection and overlays: the permissions of a PIIndex, compared with the Arm ARM's tables and with the
//! same Linux protection without them; and groups whose members differ.

mod common;

use common::{regime, rules, violations_of};
use proptest::prelude::*;
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{
    lookup, Descriptor, Granule, Half, Indirection, Inherited, Level, Lookup, Overlays,
    Permissions, Regime, VirtualAddress,
};

/// The fields of PIR_EL1 in the words of its table (Arm ARM, PIR_EL1): the permissions; `o` where overlays are applied,
/// `g` a Guarded Control Stack, `n` not executable where writable.
const FIELDS: [&str; 16] = [
    "o", "ro", "xo", "rxo", "o", "rwo", "rwxno", "rwxo", // overlays applied
    "r", "rg", "rx", "", "rw", "", "rwx", "",
];
/// The fields of POR_EL1: the permissions left. 8 and above are reserved.
const OVERLAYS: [&str; 16] = [
    "", "r", "x", "rx", "w", "rw", "wx", "rwx", "", "", "", "", "", "", "", "",
];

/// The values of PIRE0_EL1 and PIR_EL1 in Linux 6.18.15 and 7.3.4, read from guests of QEMU 11.1.3's `-cpu max`.
const LINUX: Indirection = Indirection {
    el0: 0x5010_9080_7032_0000,
    el1: 0xcc88_0e0a_c080_0000,
};

fn with(indirection: Option<Indirection>) -> Regime {
    let layout = Layout {
        indirection,
        ..Layout::new(Granule::K4, Half::Lower, 48)
    };
    Regime::new(&layout.registers(0x4000_0000), Half::Lower).unwrap()
}

/// Returns PIIndex in its places: bits 54, 53, 51 and 6.
fn index_bits(index: u64) -> u64 {
    (index >> 2 & 3) << 53 | (index >> 1 & 1) << 51 | (index & 1) << 6
}

fn page(extra: u64) -> u64 {
    0x8000_0000 | 1 << 10 | 0b11 | extra
}

fn permissions(word: u64, regime: &Regime) -> Permissions {
    let descriptor = Descriptor::new(word, Level::L3, regime);
    Permissions::new(&descriptor, Inherited::default(), regime)
}

/// Returns six permissions from the Arm ARM's words for both fields.
fn expected(el0: u8, el1: u8, por: [Option<u8>; 2], ndirty: bool, hd: bool) -> Permissions {
    let (mut user, mut kernel) = (FIELDS[usize::from(el0)], FIELDS[usize::from(el1)]);
    if kernel.contains(['x', 'g']) && user.contains(['w', 'g']) {
        (user, kernel) = ("", "");
    }
    let may = |field: &str, por: Option<u8>, what: char| {
        let left = |what| match por {
            Some(por) if field.contains('o') => OVERLAYS[usize::from(por)].contains(what),
            _ => true,
        };
        let written = field.contains('w') && left('w');
        match what {
            'x' if field.contains('n') && written => false,
            'w' if ndirty && !hd => false,
            _ => field.contains(what) && left(what),
        }
    };
    Permissions {
        el0_read: may(user, por[0], 'r'),
        el0_write: may(user, por[0], 'w'),
        el0_exec: may(user, por[0], 'x'),
        el1_read: may(kernel, por[1], 'r'),
        el1_write: may(kernel, por[1], 'w'),
        el1_exec: may(kernel, por[1], 'x'),
    }
}

#[test]
fn every_pair_of_fields_at_every_index() {
    for index in 0..16 {
        for (el0, el1) in (0..16_u8).flat_map(|el0| (0..16_u8).map(move |el1| (el0, el1))) {
            // All other indices hold something else.
            let register = |field: u8| {
                let others = 0x1111_1111_1111_1111 * u64::from(!field & 0xf);
                others & !(0xf << (index * 4)) | u64::from(field) << (index * 4)
            };
            let mut regime = with(Some(Indirection {
                el0: register(el0),
                el1: register(el1),
            }));
            for (ndirty, hd) in [(false, false), (false, true), (true, false), (true, true)] {
                regime.hd = hd;
                let word = page(index_bits(index) | u64::from(ndirty) << 7);
                assert_eq!(
                    permissions(word, &regime),
                    expected(el0, el1, [None; 2], ndirty, hd),
                    "index {index}, fields {el0:04b} and {el1:04b}, nDirty {ndirty}, HD {hd}"
                );
            }
        }
    }
}

#[test]
fn overlays_take_from_fields_that_say_so() {
    for (field, por) in (0..16_u8).flat_map(|field| (0..16_u8).map(move |por| (field, por))) {
        let all = |field: u8| 0x1111_1111_1111_1111 * u64::from(field);
        // For EL0 and for EL1 alone: the other has no access at all.
        for half in 0..2 {
            let of = |this| if half == this { all(field) } else { 0 };
            let mut regime = with(Some(Indirection {
                el0: of(0),
                el1: of(1),
            }));
            for index in 0..8_u64 {
                let por_register =
                    all(!por & 7) & !(0xf << (index * 4)) | u64::from(por) << (index * 4);
                regime.overlays = Overlays {
                    el0: (half == 0).then_some(por_register),
                    el1: (half == 1).then_some(por_register),
                };
                let fields = if half == 0 { [field, 0] } else { [0, field] };
                let word = page(index << 60);
                assert_eq!(
                    permissions(word, &regime),
                    expected(fields[0], fields[1], [Some(por); 2], false, false),
                    "field {field:04b} of EL{half}, POIndex {index}, overlay {por:04b}"
                );
            }
        }
    }
}

/// Linux's protections (asm/pgtable-prot.h) by the bits USER, RDONLY, WRITE (DBM), PXN and UXN.
#[test]
fn linux_means_the_same_by_either() {
    const USER: u64 = 1 << 6;
    const RDONLY: u64 = 1 << 7;
    const WRITE: u64 = 1 << 51;
    const PXN: u64 = 1 << 53;
    const UXN: u64 = 1 << 54;
    let protections = [
        ("PAGE_KERNEL", PXN | UXN | WRITE),
        ("PAGE_KERNEL, clean", PXN | UXN | WRITE | RDONLY),
        ("PAGE_KERNEL_RO", PXN | UXN | RDONLY),
        ("PAGE_KERNEL_ROX", UXN | RDONLY),
        ("PAGE_KERNEL_EXEC", UXN | WRITE),
        ("_PAGE_SHARED", USER | PXN | UXN | WRITE),
        ("_PAGE_SHARED, clean", USER | PXN | UXN | WRITE | RDONLY),
        ("_PAGE_SHARED_EXEC", USER | PXN | WRITE),
        ("_PAGE_READONLY", USER | PXN | UXN | RDONLY),
        ("_PAGE_READONLY_EXEC", USER | PXN | RDONLY),
        ("_PAGE_EXECONLY", PXN | RDONLY),
    ];
    for hd in [false, true] {
        let (mut indirect, mut direct) = (with(Some(LINUX)), with(None));
        (indirect.hd, direct.hd) = (hd, hd);
        for (name, bits) in protections {
            let [indirect, direct] =
                [&indirect, &direct].map(|regime| permissions(page(bits), regime));
            let mut direct = direct;
            // Its own bits cannot prevent EL1 from reading memory that EL0 may only execute.
            if name == "_PAGE_EXECONLY" {
                assert!(direct.el1_read && direct.el0_exec && !direct.el0_read);
                direct.el1_read = false;
            }
            assert_eq!(indirect, direct, "{name}, HD {hd}");
        }
    }
}

#[test]
fn registers_make_a_regime() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    let mut registers = layout.registers(0x4000_0000);
    registers.pir_el1 = Some(LINUX.el1);
    registers.pire0_el1 = Some(LINUX.el0);
    registers.por_el0 = Some(7);
    registers.por_el1 = Some(5);
    let of = |tcr2: u64| {
        let mut registers = registers;
        registers.tcr2_el1 = Some(tcr2);
        Regime::new(&registers, Half::Lower).unwrap()
    };
    let plain = of(0);
    assert_eq!(
        (plain.indirection, plain.overlays),
        (None, Overlays::default())
    );
    assert!(!plain.hpd);
    let pie = of(1 << 1);
    assert_eq!(pie.indirection, Some(LINUX));
    // Arm ARM, TCR_EL1.HPD0: indirection leaves no hierarchical permissions.
    assert!(pie.hpd);
    assert_eq!(pie.overlays, Overlays::default());
    let overlaid = of(1 << 1 | 1 << 2);
    assert_eq!(
        (overlaid.overlays.el0, overlaid.overlays.el1),
        (Some(7), None)
    );
    assert_eq!(overlaid.upper_attributes, 0b111 << 60);
    let both = of(1 << 2 | 1 << 3);
    assert_eq!((both.overlays.el0, both.overlays.el1), (Some(7), Some(5)));
}

#[test]
fn a_descriptor_is_told_by_its_index() {
    let regime = with(Some(LINUX));
    let text = Descriptor::new(page(index_bits(0b1101) | 1 << 7), Level::L3, &regime).to_string();
    assert!(
        text.contains("PIIndex=0b1101") && text.contains("nDirty"),
        "{text}"
    );
    assert!(!text.contains("AP=") && !text.contains("XN"), "{text}");
}

/// Returns a folded block of writable memory at 4K, and its descriptors.
fn block(layout: Layout) -> TableBuilder {
    let mut tables = TableBuilder::new(layout);
    for at in 0..16 {
        tables.map_page(
            at * 4096,
            0x8000_0000 + at * 4096,
            Attributes::default(),
            true,
        );
    }
    tables
}

/// Returns the rules that the block breaks with `change` in one member's bits.
fn with_member(layout: Layout, change: u64) -> Vec<&'static str> {
    let mut tables = block(layout);
    assert_eq!(rules(&tables), [] as [&str; 0]);
    let word = tables.peek(5 * 4096, 3).unwrap();
    tables.poke(5 * 4096, 3, word ^ change);
    rules(&tables)
}

#[test]
fn a5_of_a_group() {
    let none: [&str; 0] = [];
    let plain = Layout {
        indirection: Some(LINUX),
        ..Layout::new(Granule::K4, Half::Lower, 48)
    };
    let dirty = plain.hardware_dirty();
    // nDirty of writable memory, as the PE updates it or does not.
    assert_eq!(with_member(dirty, 1 << 7), none);
    assert_eq!(with_member(plain, 1 << 7), ["A5"]);
    for layout in [plain, dirty] {
        // Each bit of the index selects something else of Linux's.
        for bit in [6, 51, 53, 54] {
            assert_eq!(with_member(layout, 1 << bit), ["A5"], "bit {bit}");
        }
        assert_eq!(with_member(layout, 1 << 10), none, "AF");
        // Two indices for the same permissions are not a difference.
        let same = Layout {
            indirection: Some(Indirection {
                el0: 0xcccc_cccc_cccc_cccc,
                el1: 0xcccc_cccc_cccc_cccc,
            }),
            ..layout
        };
        for bit in [6, 51, 53, 54] {
            assert_eq!(with_member(same, 1 << bit), none, "bit {bit}");
        }
        // Memory that is not writable has no dirty state.
        let read = Layout {
            indirection: Some(Indirection {
                el0: 0x8888_8888_8888_8888,
                el1: 0x8888_8888_8888_8888,
            }),
            ..layout
        };
        assert_eq!(with_member(read, 1 << 7), none);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The quick path agrees with the plain reading, whatever the registers and the differences.
    #[test]
    fn quick_and_plain_agree(
        el0: u64, el1: u64, linux: bool, ha: bool, hd: bool,
        changes in proptest::collection::vec((0..48_u64, prop_oneof![
            Just(6_u32), Just(7), Just(10), Just(51), Just(53), Just(54), Just(52), 0..64_u32,
        ]), 0..4),
    ) {
        let indirection = if linux { LINUX } else { Indirection { el0, el1 } };
        let layout = Layout {
            indirection: Some(indirection),
            ha,
            hd,
            ..Layout::new(Granule::K4, Half::Lower, 48)
        };
        let mut tables = TableBuilder::new(layout);
        for at in 0..48 {
            tables.map_page(at * 4096, 0x8000_0000 + at * 4096, Attributes::default(), true);
        }
        for (at, bit) in changes {
            let word = tables.peek(at * 4096, 3).unwrap();
            tables.poke(at * 4096, 3, word ^ 1 << bit);
        }
        let regime = regime(&tables);
        violations_of(&tables, &regime, regime.first, regime.last);
    }

    /// Permissions of a walk come from the index, and never from tables above.
    #[test]
    fn tables_above_impose_nothing(el0: u64, el1: u64, index in 0..16_u64, above: u64, va in 0..512_u64) {
        let layout = Layout {
            indirection: Some(Indirection { el0, el1 }),
            ..Layout::new(Granule::K4, Half::Lower, 48)
        };
        let mut tables = TableBuilder::new(layout);
        tables.map_page(va * 4096, 0x8000_0000, Attributes::default(), false);
        tables.poke(va * 4096, 3, page(index_bits(index)));
        let word = tables.peek(va * 4096, 2).unwrap();
        // APTable, UXNTable and PXNTable.
        tables.poke(va * 4096, 2, word | above & 0b1111 << 59);
        let regime = regime(&tables);
        let Lookup::Mapped { permissions: found, .. } = lookup(tables.memory(), &regime, VirtualAddress(va * 4096)) else {
            return Err(TestCaseError::fail("not mapped"));
        };
        prop_assert_eq!(found, permissions(page(index_bits(index)), &regime));
    }
}
