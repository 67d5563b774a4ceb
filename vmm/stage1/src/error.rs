// SPDX-License-Identifier: GPL-2.0-only
//! Reasons why registers cannot be decoded into a translation regime.

use crate::{Granule, Half, PhysicalAddress};

/// An error for registers that describe no stage 1 translation that can be judged.
///
/// Each variant has the value found and the values expected. None is a finding against the kernel. Where the
/// architecture leaves the behaviour to the implementation, the rig does not guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegimeError {
    /// SCTLR_EL1.M is 0.
    #[error("the MMU is off: SCTLR_EL1 is {sctlr_el1:#x}, expected M (bit 0) to be 1; look at the guest later in its boot")]
    MmuOff {
        /// The register as read.
        sctlr_el1: u64,
    },
    /// HCR_EL2.VM is 1: the tables' output is an IPA, not a physical address.
    #[error("stage 2 is on: HCR_EL2 is {hcr_el2:#x}, expected VM (bit 0) to be 0; this PE runs a virtual machine inside the guest, and its tables hold addresses that a second set of tables translates")]
    Stage2 {
        /// The register as read.
        hcr_el2: u64,
    },
    /// HCR_EL2.TGE is 1: EL0 and the kernel, at EL2, use EL2's registers.
    #[error("the kernel runs at EL2: HCR_EL2 is {hcr_el2:#x}, expected TGE (bit 27) to be 0; it translates by the EL2&0 regime, and only EL1&0 is read (start QEMU without virtualization=on)")]
    HostAtEl2 {
        /// The register as read.
        hcr_el2: u64,
    },
    /// SCTLR_EL1.EE is 1.
    #[error("the tables are big-endian: SCTLR_EL1 is {sctlr_el1:#x}, expected EE (bit 25) to be 0; only little-endian guests are read")]
    BigEndian {
        /// The register as read.
        sctlr_el1: u64,
    },
    /// TGn holds the encoding that the Arm ARM reserves.
    #[error("TCR_EL1.TG{n} is {found:#04b}, a reserved granule encoding; expected {expected}", n = .half.number())]
    GranuleReserved {
        /// The half.
        half: Half,
        /// The field as read.
        found: u64,
        /// The encodings that exist.
        expected: &'static str,
    },
    /// By the ID registers the PE lacks the granule that TCR_EL1 selects.
    #[error("TCR_EL1.TG{n} chooses the {granule} granule, but ID_AA64MMFR0_EL1 is {id_aa64mmfr0:#x}: this PE does not implement it", n = .half.number())]
    GranuleNotImplemented {
        /// The half.
        half: Half,
        /// The granule chosen.
        granule: Granule,
        /// The register as read.
        id_aa64mmfr0: u64,
    },
    /// TnSZ is outside the range that granule and features allow.
    ///
    /// The implementation chooses whether the PE faults or uses the nearest legal value. Tables under such a register
    /// are therefore not judged.
    #[error("TCR_EL1.T{n}SZ is {found}, expected {min} to {max} for the {granule} granule here; whether the PE faults or clamps is the implementation's choice, so nothing is judged", n = .half.number())]
    InputSize {
        /// The half.
        half: Half,
        /// The field as read: 64 less the number of VA bits.
        found: u64,
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
        /// The granule that the limits belong to.
        granule: Granule,
    },
    /// TCR_EL1.IPS holds a value that only FEAT_D128 defines.
    #[error("TCR_EL1.IPS is {found:#05b}, expected 0b000 (32 bits) to 0b110 (52 bits)")]
    OutputSizeReserved {
        /// The field as read.
        found: u64,
    },
    /// TCR2_EL1.D128 is 1.
    #[error("128-bit descriptors are in use: TCR2_EL1 is {tcr2_el1:#x}, expected D128 (bit 5) to be 0; only VMSAv8-64 is read")]
    Descriptors128 {
        /// The register as read.
        tcr2_el1: u64,
    },
    /// TCR2_EL1.PIE is 1, and PIR_EL1 or PIRE0_EL1 could not be read.
    #[error("permission indirection is in use (TCR2_EL1 is {tcr2_el1:#x}), but PIR_EL1 and PIRE0_EL1 could not be read; use a machine that gives them, or a CPU model without FEAT_S1PIE")]
    IndirectionUnknown {
        /// The register as read.
        tcr2_el1: u64,
    },
    /// TCR2_EL1.PnCH is 1: bit 52 is Protected.
    #[error("bit 52 of a descriptor is Protected and not Contiguous: TCR2_EL1 is {tcr2_el1:#x}, expected PnCH (bit 0) to be 0")]
    ProtectedBit {
        /// The register as read.
        tcr2_el1: u64,
    },
    /// TCR2_EL1 could not be read, and the meaning of descriptors depends on it on this PE.
    #[error("TCR2_EL1 could not be read, but ID_AA64MMFR3_EL1 is {id_aa64mmfr3:#x}: permission indirection (S1PIE) or 128-bit descriptors (D128) may be in use; use a machine that gives the register, or a CPU model without them")]
    Tcr2Unknown {
        /// The register as read.
        id_aa64mmfr3: u64,
    },
    /// TTBRn_EL1 has address bits set below the size of the first table.
    #[error("TTBR{n}_EL1 is {ttbr:#x}: expected the first table to be aligned to its {bytes} bytes; what the PE does with the low bits is CONSTRAINED UNPREDICTABLE", n = .half.number())]
    RootMisaligned {
        /// The half.
        half: Half,
        /// The register as read.
        ttbr: u64,
        /// The alignment in bytes.
        bytes: u64,
    },
    /// TTBRn_EL1 points above the output size.
    #[error("TTBR{n}_EL1 points to {root}: expected an address of at most {pa_bits} bits (TCR_EL1.IPS and ID_AA64MMFR0_EL1.PARange)", n = .half.number())]
    RootBeyondOutputSize {
        /// The half.
        half: Half,
        /// The address in the register.
        root: PhysicalAddress,
        /// The output size in bits.
        pa_bits: u32,
    },
}
