// SPDX-License-Identifier: GPL-2.0-only
//! Registers as real kernels set them, field by field, and registers that are refused.

use stage1::{
    Granule, Half, Level, PhysicalAddress, Regime, RegimeError, SystemRegisters, VirtualAddress,
};

/// ID_AA64MMFR0_EL1 of QEMU's `-cpu max`: all granules with LPA2, 52 bits of PA.
const MMFR0_MAX: u64 = 0x0000_0000_1020_0126;
/// ID_AA64MMFR0_EL1 of a Cortex-A72: no 16K granule, 44 bits of PA.
const MMFR0_A72: u64 = 0x0000_0000_0000_1124;

/// Returns the registers of Linux, 4K pages, 48 bits of VA, on a PE before FEAT_LPA2: TCR_EL1 with 16-bit ASIDs, A1,
/// TBI0, both halves on, 44 bits of PA.
fn linux_4k() -> SystemRegisters {
    SystemRegisters {
        ttbr0_el1: 0x0000_0000_4188_0000,
        ttbr1_el1: 0x0042_0000_4150_3001, // ASID 0x42, CnP
        tcr_el1: 0x0000_0034_b550_3510 | 1 << 22,
        mair_el1: 0x0000_0004_0044_ffff,
        sctlr_el1: 0x0000_0000_30d0_d985,
        id_aa64mmfr: [Some(MMFR0_A72), Some(0), Some(0), Some(0)],
        ..SystemRegisters::default()
    }
}

#[test]
fn a_kernel_with_4k_pages_and_48_bits() {
    let registers = linux_4k();
    let lower = Regime::new(&registers, Half::Lower).unwrap();
    assert_eq!(
        (lower.granule, lower.va_bits, lower.pa_bits),
        (Granule::K4, 48, 44)
    );
    assert_eq!((lower.root_level, lower.root_entries), (Level::L0, 512));
    assert_eq!(lower.root, PhysicalAddress(0x4188_0000));
    assert_eq!((lower.first.0, lower.last.0), (0, 0x0000_ffff_ffff_ffff));
    assert_eq!(lower.asid, 0x42, "TCR_EL1.A1 names TTBR1_EL1");
    assert!(!lower.ds && !lower.lpa && !lower.ha && !lower.hd && !lower.epd && !lower.cnp);

    let upper = Regime::new(&registers, Half::Upper).unwrap();
    assert_eq!(
        (upper.granule, upper.va_bits, upper.root_level),
        (Granule::K4, 48, Level::L0)
    );
    assert_eq!(upper.root, PhysicalAddress(0x4150_3000));
    assert_eq!(
        (upper.first.0, upper.last.0),
        (0xffff_0000_0000_0000, u64::MAX)
    );
    assert!(upper.cnp);
}

#[test]
fn a_kernel_with_52_bits_of_everything() {
    // As a tinyconfig on `-cpu max`: DS, HA, HD, HPD0, HPD1, E0PD1, TBI0, five levels.
    let (ds, ha, hd, hpd, e0pd1) = (1 << 59, 1 << 39, 1 << 40, 0b11 << 41, 1 << 56);
    let registers = SystemRegisters {
        // BADDR [5:2] are address bits [51:48].
        ttbr0_el1: 0x0001_0000_4188_0f80 | 0b0011 << 2,
        ttbr1_el1: 0x0000_0000_4150_3000,
        tcr_el1: 12 | 12 << 16 | 0b10 << 30 | 6 << 32 | 1 << 36 | ds | ha | hd | hpd | e0pd1,
        sctlr_el1: 1,
        id_aa64mmfr: [
            Some(MMFR0_MAX),
            Some(0x2022),
            Some(1 << 60 | 1 << 16 | 1 << 28),
            Some(0),
        ],
        ..SystemRegisters::default()
    };
    let lower = Regime::new(&registers, Half::Lower).unwrap();
    assert_eq!((lower.va_bits, lower.pa_bits, lower.ds), (52, 52, true));
    assert_eq!((lower.root_level, lower.root_entries), (Level::Minus1, 16));
    assert_eq!(
        lower.root,
        PhysicalAddress(0x3_0000_4188_0f80),
        "16 descriptors: 128 bytes"
    );
    assert_eq!(lower.last, VirtualAddress(0x000f_ffff_ffff_ffff));
    assert!(lower.ha && lower.hd && lower.hpd && !lower.e0pd);
    let upper = Regime::new(&registers, Half::Upper).unwrap();
    assert_eq!(upper.first, VirtualAddress(0xfff0_0000_0000_0000));
    assert!(upper.e0pd);
    assert_eq!(upper.asid, 1);
}

#[test]
fn features_that_the_pe_lacks_have_no_effect() {
    let mut registers = linux_4k();
    registers.tcr_el1 |= 1 << 59 | 1 << 39 | 1 << 40 | 1 << 41 | 1 << 55;
    let regime = Regime::new(&registers, Half::Lower).unwrap();
    assert!(!regime.ds && !regime.ha && !regime.hd && !regime.hpd && !regime.e0pd);
    // HAFDBS 1 is AF only; and HD has no effect without HA.
    registers.id_aa64mmfr[1] = Some(1);
    let regime = Regime::new(&registers, Half::Lower).unwrap();
    assert!(regime.ha && !regime.hd);
    registers.id_aa64mmfr[1] = Some(2);
    assert!(Regime::new(&registers, Half::Lower).unwrap().hd);
    registers.tcr_el1 &= !(1 << 39);
    assert!(!Regime::new(&registers, Half::Lower).unwrap().hd);
    // An unknown ID register counts as one that has the feature.
    registers.id_aa64mmfr = [None; 4];
    let regime = Regime::new(&registers, Half::Lower).unwrap();
    assert!(regime.ds && regime.hpd && regime.e0pd);
}

#[test]
fn geometry_of_each_granule() {
    // Level, bits that a descriptor maps, block allowed (DS, LPA off and on), contiguous entries:
    // Arm ARM table D8-104 and the figures of the descriptor formats.
    type Row = (Level, u32, bool, bool, Option<usize>);
    let rows: [(Granule, &[Row]); 3] = [
        (
            Granule::K4,
            &[
                (Level::Minus1, 48, false, false, None),
                (Level::L0, 39, false, true, None),
                (Level::L1, 30, true, true, Some(16)),
                (Level::L2, 21, true, true, Some(16)),
                (Level::L3, 12, false, false, Some(16)),
            ],
        ),
        (
            Granule::K16,
            &[
                (Level::L0, 47, false, false, None),
                (Level::L1, 36, false, true, None),
                (Level::L2, 25, true, true, Some(32)),
                (Level::L3, 14, false, false, Some(128)),
            ],
        ),
        (
            Granule::K64,
            &[
                (Level::L1, 42, false, true, None),
                (Level::L2, 29, true, true, Some(32)),
                (Level::L3, 16, false, false, Some(32)),
            ],
        ),
    ];
    for (granule, levels) in rows {
        let layout = stage1::testing::Layout::new(granule, Half::Lower, 48);
        let narrow = Regime::new(&layout.registers(0), Half::Lower).unwrap();
        let wide = Regime::new(&layout.wide().registers(0), Half::Lower).unwrap();
        for (level, shift, block, wide_block, contiguous) in levels {
            for regime in [&narrow, &wide] {
                assert_eq!(regime.entry_size(*level), 1 << shift);
                assert_eq!(regime.contiguous_entries(*level), *contiguous);
            }
            assert_eq!(
                narrow.block_allowed(*level),
                *block,
                "{granule} level {level}"
            );
            assert_eq!(
                wide.block_allowed(*level),
                *wide_block,
                "{granule} level {level}"
            );
        }
    }
    assert_eq!(Level::Minus1.to_string(), "-1");
    assert_eq!(Level::L3.to_string(), "3");
}

fn refused(change: impl FnOnce(&mut SystemRegisters)) -> (RegimeError, String) {
    let mut registers = linux_4k();
    change(&mut registers);
    let error = Regime::new(&registers, Half::Lower).unwrap_err();
    (error, error.to_string())
}

#[test]
fn registers_that_are_refused() {
    let (error, text) = refused(|r| r.sctlr_el1 &= !1);
    assert!(matches!(error, RegimeError::MmuOff { .. }));
    assert!(text.starts_with("the MMU is off: SCTLR_EL1 is 0x30d0d984, expected M (bit 0) to be 1"));
    let (error, _) = refused(|r| r.hcr_el2 = Some(1 << 31 | 1));
    assert!(matches!(error, RegimeError::Stage2 { .. }));
    let (error, _) = refused(|r| r.hcr_el2 = Some(1 << 34 | 1 << 27));
    assert!(matches!(error, RegimeError::HostAtEl2 { .. }));
    let (error, _) = refused(|r| r.sctlr_el1 |= 1 << 25);
    assert!(matches!(error, RegimeError::BigEndian { .. }));
    let (error, text) = refused(|r| r.tcr_el1 |= 0b11 << 14);
    assert!(matches!(
        error,
        RegimeError::GranuleReserved { found: 3, .. }
    ));
    assert!(
        text.starts_with("TCR_EL1.TG0 is 0b11, a reserved granule encoding"),
        "{text}"
    );
    let (error, _) = refused(|r| r.tcr_el1 |= 0b10 << 14);
    assert!(matches!(
        error,
        RegimeError::GranuleNotImplemented {
            granule: Granule::K16,
            ..
        }
    ));
    for size in [0, 15, 40, 63] {
        let (error, text) = refused(|r| r.tcr_el1 = r.tcr_el1 & !0x3f | size);
        assert!(matches!(
            error,
            RegimeError::InputSize {
                min: 16,
                max: 39,
                ..
            }
        ));
        assert!(
            text.contains(&format!("T0SZ is {size}, expected 16 to 39")),
            "{text}"
        );
    }
    let (error, _) = refused(|r| r.tcr_el1 |= 0b111 << 32);
    assert!(matches!(
        error,
        RegimeError::OutputSizeReserved { found: 7 }
    ));
    let (error, _) = refused(|r| r.tcr2_el1 = Some(1 << 5));
    assert!(matches!(error, RegimeError::Descriptors128 { .. }));
    for (pir_el1, pire0_el1) in [(None, None), (Some(0), None), (None, Some(0))] {
        let (error, text) = refused(|r| {
            (r.tcr2_el1, r.pir_el1, r.pire0_el1) = (Some(1 << 1), pir_el1, pire0_el1);
        });
        assert!(matches!(error, RegimeError::IndirectionUnknown { .. }));
        assert!(text.contains("PIRE0_EL1 could not be read"), "{text}");
    }
    let (error, _) = refused(|r| r.tcr2_el1 = Some(1));
    assert!(matches!(error, RegimeError::ProtectedBit { .. }));
    let (error, _) = refused(|r| r.id_aa64mmfr[3] = Some(1 << 8));
    assert!(matches!(error, RegimeError::Tcr2Unknown { .. }));
    let (error, text) = refused(|r| r.ttbr0_el1 |= 0x800);
    assert!(matches!(
        error,
        RegimeError::RootMisaligned { bytes: 4096, .. }
    ));
    assert!(text.starts_with("TTBR0_EL1 is 0x41880800"), "{text}");
    let (error, _) = refused(|r| r.ttbr0_el1 |= 1 << 45);
    assert!(matches!(
        error,
        RegimeError::RootBeyondOutputSize { pa_bits: 44, .. }
    ));
}

#[test]
fn a_disabled_half_says_so_whatever_its_root() {
    let mut registers = linux_4k();
    registers.tcr_el1 |= 1 << 7;
    registers.ttbr0_el1 = u64::MAX;
    let regime = Regime::new(&registers, Half::Lower).unwrap();
    assert!(regime.epd);
    assert_eq!(regime.root, PhysicalAddress(0));
}

#[test]
fn input_sizes_at_their_limits() {
    // Granule encoding (TG0), DS, ID_AA64MMFR2_EL1, smallest and largest T0SZ.
    let (ttst, lva) = (1 << 28, 1 << 16);
    for (tg0, ds, mmfr2, min, max) in [
        (0b00, false, 0, 16, 39),
        (0b00, false, ttst, 16, 48),
        (0b00, true, 0, 12, 39),
        (0b00, true, ttst, 12, 48),
        (0b10, false, lva | ttst, 16, 48),
        (0b10, true, ttst, 12, 48),
        (0b01, false, ttst, 16, 47),
        (0b01, false, lva | ttst, 12, 47),
        (0b01, true, ttst, 16, 47), // DS has no effect at 64K
    ] {
        for size in 0..64 {
            let registers = SystemRegisters {
                tcr_el1: size | tg0 << 14 | 5 << 32 | u64::from(ds) << 59,
                sctlr_el1: 1,
                id_aa64mmfr: [Some(MMFR0_MAX), Some(0), Some(mmfr2), Some(0)],
                ..SystemRegisters::default()
            };
            let accepted = Regime::new(&registers, Half::Lower).is_ok();
            assert_eq!(
                accepted,
                (min..=max).contains(&size),
                "TG0 {tg0} T0SZ {size} DS {ds}"
            );
        }
    }
}
