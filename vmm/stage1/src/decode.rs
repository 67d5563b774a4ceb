// SPDX-License-Identifier: GPL-2.0-only
//! Decodes system registers into a [`Regime`], after TCR_EL1, TTBRn_EL1 and section D8.2 of the Arm ARM (DDI 0487).

use crate::geometry::{Features, PBHA};
use crate::{
    Granule, Half, Indirection, Level, LevelGeometry, Overlays, PhysicalAddress, Regime,
    RegimeError, SystemRegisters, VirtualAddress,
};

/// SCTLR_EL1.M.
const SCTLR_M: u64 = 1;
/// SCTLR_EL1.WXN.
const SCTLR_WXN: u64 = 1 << 19;
/// SCTLR_EL1.EE.
const SCTLR_EE: u64 = 1 << 25;
/// HCR_EL2.VM.
const HCR_VM: u64 = 1;
/// HCR_EL2.TGE.
const HCR_TGE: u64 = 1 << 27;
/// TCR_EL1.A1: the ASID is TTBR1_EL1's.
const TCR_A1: u32 = 22;
/// TCR_EL1.AS: ASIDs have 16 bits.
const TCR_AS: u32 = 36;
/// TCR_EL1.HA.
const TCR_HA: u32 = 39;
/// TCR_EL1.HD.
const TCR_HD: u32 = 40;
/// TCR_EL1.DS.
const TCR_DS: u32 = 59;
/// TCR2_EL1.PnCH.
const TCR2_PNCH: u64 = 1;
/// TCR2_EL1.PIE.
const TCR2_PIE: u64 = 1 << 1;
/// TCR2_EL1.E0POE.
const TCR2_E0POE: u64 = 1 << 2;
/// TCR2_EL1.POE.
const TCR2_POE: u64 = 1 << 3;
/// TCR2_EL1.AIE.
const TCR2_AIE: u64 = 1 << 4;
/// TCR2_EL1.D128.
const TCR2_D128: u64 = 1 << 5;
/// TCR2_EL1.HAFT.
const TCR2_HAFT: u64 = 1 << 11;

/// Returns the 4-bit field of an ID register that starts at bit `low`.
const fn id_field(register: u64, low: u32) -> u64 {
    register >> low & 0xf
}

/// Bit positions in TCR_EL1 of the fields of one half.
struct Fields {
    tcr: u64,
    upper: bool,
}

impl Fields {
    fn bit(&self, lower: u32, upper: u32) -> bool {
        self.field(lower, upper, 1) != 0
    }

    fn field(&self, lower: u32, upper: u32, mask: u64) -> u64 {
        self.tcr >> if self.upper { upper } else { lower } & mask
    }
}

impl Regime {
    /// Decodes the translation regime of `half`.
    ///
    /// An ID register that is `None` counts as one that allows what TCR_EL1 enables. With EPDn the result has
    /// [`Regime::epd`] set, and TTBRn_EL1 is not decoded.
    ///
    /// # Errors
    /// If the registers describe no VMSAv8-64 stage 1 translation that can be judged.
    pub fn new(registers: &SystemRegisters, half: Half) -> Result<Self, RegimeError> {
        check_mode(registers)?;
        let tcr = registers.tcr_el1;
        let upper = half == Half::Upper;
        let fields = Fields { tcr, upper };
        let [mmfr0, mmfr1, mmfr2, _] = registers.id_aa64mmfr;
        let tcr2 = registers.tcr2_el1.unwrap_or(0);

        let granule = granule(&fields, half, mmfr0)?;
        let ds = tcr >> TCR_DS & 1 != 0 && has_lpa2(granule, mmfr0);
        let lpa = granule == Granule::K64 && mmfr0.is_none_or(|id| id_field(id, 0) >= 6);
        let va_bits = input_size(&fields, half, granule, ds, mmfr2)?;
        let pa_bits = output_size(tcr, ds || lpa, mmfr0)?;

        let stride = granule.stride();
        let below = (va_bits - 1 - granule.shift()) / stride;
        let root_level = Level::ALL[4 - below as usize];
        let root_entries = 1 << (va_bits - granule.shift() - stride * below);

        let epd = fields.bit(7, 23);
        let ttbr = if upper {
            registers.ttbr1_el1
        } else {
            registers.ttbr0_el1
        };
        let root = if epd {
            PhysicalAddress(0)
        } else {
            let wide = ds || lpa && tcr >> 32 & 0b111 == 6;
            root(ttbr, half, root_entries as u64 * 8, wide, pa_bits)?
        };

        let features = Features {
            ds,
            lpa,
            no_nt: mmfr2.is_some_and(|id| id_field(id, 52) == 0),
            pa_bits,
        };
        let hafdbs = mmfr1.map_or(2, |id| id_field(id, 0));
        let ha = tcr >> TCR_HA & 1 != 0 && hafdbs >= 1;
        let hpds = mmfr1.map_or(2, |id| id_field(id, 12));
        let indirection = indirection(registers)?;
        // Indirection leaves no bits for hierarchical permissions: HPDn is then 1 in effect.
        let hpd = fields.bit(41, 42) && hpds >= 1 || indirection.is_some();
        let asid_of = if tcr >> TCR_A1 & 1 != 0 {
            registers.ttbr1_el1
        } else {
            registers.ttbr0_el1
        };
        let asid_mask = if tcr >> TCR_AS & 1 != 0 { 0xffff } else { 0xff };
        let aie = tcr2 & TCR2_AIE != 0;

        Ok(Self {
            half,
            granule,
            va_bits,
            pa_bits,
            ds,
            lpa,
            ha,
            hd: ha && tcr >> TCR_HD & 1 != 0 && hafdbs >= 2,
            hpd,
            tbi: fields.bit(37, 38),
            tbid: fields.bit(51, 52),
            e0pd: fields.bit(55, 56) && mmfr2.is_none_or(|id| id_field(id, 60) != 0),
            epd,
            nfd: fields.bit(53, 54),
            wxn: registers.sctlr_el1 & SCTLR_WXN != 0,
            haft: tcr2 & TCR2_HAFT != 0,
            indirection,
            overlays: Overlays {
                el0: registers.por_el0.filter(|_| tcr2 & TCR2_E0POE != 0),
                el1: registers.por_el1.filter(|_| tcr2 & TCR2_POE != 0),
            },
            aie,
            upper_attributes: upper_attributes(&fields, hpd && hpds >= 2, tcr2),
            asid: u16::try_from(asid_of >> 48 & asid_mask).unwrap_or(0),
            cnp: ttbr & 1 != 0,
            root,
            root_level,
            root_entries,
            first: VirtualAddress(if upper { u64::MAX << va_bits } else { 0 }),
            last: VirtualAddress(if upper { u64::MAX } else { (1 << va_bits) - 1 }),
            mair: registers.mair_el1,
            levels: Level::ALL.map(|level| LevelGeometry::new(granule, level, features)),
        })
    }
}

/// Refuses modes that change the meaning of all descriptors.
fn check_mode(registers: &SystemRegisters) -> Result<(), RegimeError> {
    match registers.hcr_el2 {
        Some(hcr_el2) if hcr_el2 & HCR_TGE != 0 => return Err(RegimeError::HostAtEl2 { hcr_el2 }),
        Some(hcr_el2) if hcr_el2 & HCR_VM != 0 => return Err(RegimeError::Stage2 { hcr_el2 }),
        _ => (),
    }
    let sctlr_el1 = registers.sctlr_el1;
    if sctlr_el1 & SCTLR_M == 0 {
        return Err(RegimeError::MmuOff { sctlr_el1 });
    }
    if sctlr_el1 & SCTLR_EE != 0 {
        return Err(RegimeError::BigEndian { sctlr_el1 });
    }
    match (registers.tcr2_el1, registers.id_aa64mmfr[3]) {
        (Some(tcr2_el1), _) if tcr2_el1 & TCR2_D128 != 0 => {
            Err(RegimeError::Descriptors128 { tcr2_el1 })
        }
        (Some(tcr2_el1), _) if tcr2_el1 & TCR2_PNCH != 0 => {
            Err(RegimeError::ProtectedBit { tcr2_el1 })
        }
        // S1PIE is bits [11:8], D128 bits [35:32].
        (None, Some(id)) if id_field(id, 8) != 0 || id_field(id, 32) != 0 => {
            Err(RegimeError::Tcr2Unknown { id_aa64mmfr3: id })
        }
        _ => Ok(()),
    }
}

/// Returns PIR_EL1 and PIRE0_EL1 if they are in use.
fn indirection(registers: &SystemRegisters) -> Result<Option<Indirection>, RegimeError> {
    match registers.tcr2_el1 {
        Some(tcr2_el1) if tcr2_el1 & TCR2_PIE != 0 => {
            match registers.pire0_el1.zip(registers.pir_el1) {
                Some((el0, el1)) => Ok(Some(Indirection { el0, el1 })),
                None => Err(RegimeError::IndirectionUnknown { tcr2_el1 }),
            }
        }
        _ => Ok(None),
    }
}

/// Decodes TGn, whose encodings differ between the halves.
fn granule(fields: &Fields, half: Half, mmfr0: Option<u64>) -> Result<Granule, RegimeError> {
    let found = fields.field(14, 30, 0b11);
    let granule = match (half, found) {
        (Half::Lower, 0b00) | (Half::Upper, 0b10) => Granule::K4,
        (Half::Lower, 0b10) | (Half::Upper, 0b01) => Granule::K16,
        (Half::Lower, 0b01) | (Half::Upper, 0b11) => Granule::K64,
        (Half::Lower, _) => {
            let expected = "0b00 (4K), 0b01 (64K) or 0b10 (16K)";
            return Err(RegimeError::GranuleReserved {
                half,
                found,
                expected,
            });
        }
        (Half::Upper, _) => {
            let expected = "0b01 (16K), 0b10 (4K) or 0b11 (64K)";
            return Err(RegimeError::GranuleReserved {
                half,
                found,
                expected,
            });
        }
    };
    // TGran4 [31:28] and TGran64 [27:24]: 0b1111 is none. TGran16 [23:20]: 0 is none.
    let implemented = |id| match granule {
        Granule::K4 => id_field(id, 28) != 0xf,
        Granule::K64 => id_field(id, 24) != 0xf,
        Granule::K16 => id_field(id, 20) != 0,
    };
    match mmfr0 {
        Some(id_aa64mmfr0) if !implemented(id_aa64mmfr0) => {
            Err(RegimeError::GranuleNotImplemented {
                half,
                granule,
                id_aa64mmfr0,
            })
        }
        _ => Ok(granule),
    }
}

/// Returns whether TCR_EL1.DS has an effect. FEAT_LPA2 is per granule, and the 64K granule does not use it.
fn has_lpa2(granule: Granule, mmfr0: Option<u64>) -> bool {
    match granule {
        Granule::K4 => mmfr0.is_none_or(|id| matches!(id_field(id, 28), 1..=7)),
        Granule::K16 => mmfr0.is_none_or(|id| id_field(id, 20) >= 2),
        Granule::K64 => false,
    }
}

/// Returns the number of VA bits. TnSZ is at least 16 without 52-bit VAs. It is at most 39 without FEAT_TTST, else 48,
/// or 47 at the 64K granule.
fn input_size(
    fields: &Fields,
    half: Half,
    granule: Granule,
    ds: bool,
    mmfr2: Option<u64>,
) -> Result<u32, RegimeError> {
    let lva = mmfr2.is_none_or(|id| id_field(id, 16) != 0);
    let min = if ds || granule == Granule::K64 && lva {
        12
    } else {
        16
    };
    let small = mmfr2.is_none_or(|id| id_field(id, 28) != 0);
    let max = match (small, granule) {
        (false, _) => 39,
        (true, Granule::K64) => 47,
        (true, _) => 48,
    };
    let found = fields.field(0, 16, 0x3f);
    if (min..=max).contains(&found) {
        Ok(64 - u32::try_from(found).unwrap_or(0))
    } else {
        Err(RegimeError::InputSize {
            half,
            found,
            min,
            max,
            granule,
        })
    }
}

/// Returns the effective output size: AArch64.PhysicalAddressSize() of the Arm ARM.
fn output_size(tcr: u64, wide: bool, mmfr0: Option<u64>) -> Result<u32, RegimeError> {
    const BITS: [u32; 7] = [32, 36, 40, 42, 44, 48, 52];
    let found = tcr >> 32 & 0b111;
    let bits = |encoded: u64| BITS.get(usize::try_from(encoded).unwrap_or(7)).copied();
    let ips = bits(found).ok_or(RegimeError::OutputSizeReserved { found })?;
    // PARange above 52 bits (FEAT_D128) limits nothing here.
    let implemented = mmfr0.and_then(|id| bits(id_field(id, 0))).unwrap_or(52);
    Ok(ips.min(implemented).min(if wide { 52 } else { 48 }))
}

/// Returns the first table's address: AArch64.S1TTBaseAddress() of the Arm ARM. In the 52-bit form TTBRn_EL1 bits
/// \[5:2\] are address bits \[51:48\], so the table is at least 64-byte aligned.
fn root(
    ttbr: u64,
    half: Half,
    table_bytes: u64,
    wide: bool,
    pa_bits: u32,
) -> Result<PhysicalAddress, RegimeError> {
    const BADDR: u64 = 0x0000_ffff_ffff_fffe;
    let (address, bytes) = if wide {
        let bytes = table_bytes.max(64);
        (ttbr & BADDR & !0x3f | (ttbr >> 2 & 0xf) << 48, bytes)
    } else {
        (ttbr & BADDR, table_bytes)
    };
    if address % bytes != 0 {
        return Err(RegimeError::RootMisaligned { half, ttbr, bytes });
    }
    let root = PhysicalAddress(address);
    if address >> pa_bits != 0 {
        return Err(RegimeError::RootBeyondOutputSize {
            half,
            root,
            pa_bits,
        });
    }
    Ok(root)
}

/// Returns the bits among \[62:59\] of a leaf that the PE may use. TCR_EL1.HWUnnn enables them as PBHA, with FEAT_HPDS2
/// and HPDn only. TCR2_EL1 makes them POIndex \[62:60\] and AttrIndx\[3\] (59).
fn upper_attributes(fields: &Fields, pbha: bool, tcr2: u64) -> u64 {
    let mut mask = if pbha {
        fields.field(43, 47, 0xf) << 59
    } else {
        0
    };
    if tcr2 & (TCR2_E0POE | TCR2_POE) != 0 {
        mask |= 0b111 << 60;
    }
    if tcr2 & TCR2_AIE != 0 {
        mask |= 1 << 59;
    }
    mask & PBHA
}
