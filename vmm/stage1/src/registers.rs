// SPDX-License-Identifier: GPL-2.0-only
//! The system registers that control how a PE translates.

/// The raw EL1 registers of one PE on which stage 1 of the EL1&0 regime depends, and those of its last fault.
///
/// The reader (gdbstub, KVM, a saved core) fills in the registers it has. `None` means that a register could not be
/// read, which is not the same as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemRegisters {
    /// TTBR0_EL1: table base, ASID and CnP of the lower half.
    pub ttbr0_el1: u64,
    /// TTBR1_EL1: table base, ASID and CnP of the upper half.
    pub ttbr1_el1: u64,
    /// TCR_EL1.
    pub tcr_el1: u64,
    /// TCR2_EL1 (FEAT_TCR2), which QEMU up to 10.1 does not have.
    pub tcr2_el1: Option<u64>,
    /// PIR_EL1 (FEAT_S1PIE): EL1's permissions by PIIndex.
    pub pir_el1: Option<u64>,
    /// PIRE0_EL1 (FEAT_S1PIE): EL0's.
    pub pire0_el1: Option<u64>,
    /// POR_EL1 (FEAT_S1POE): the part of EL1's permissions that is left, by POIndex.
    pub por_el1: Option<u64>,
    /// POR_EL0 (FEAT_S1POE): the part of EL0's permissions that is left. Each thread has its own.
    pub por_el0: Option<u64>,
    /// MAIR_EL1.
    pub mair_el1: u64,
    /// SCTLR_EL1.
    pub sctlr_el1: u64,
    /// CONTEXTIDR_EL1: with `CONFIG_PID_IN_CONTEXTIDR` the thread's PID.
    pub contextidr_el1: u64,
    /// ID_AA64MMFR0_EL1 to ID_AA64MMFR3_EL1, by number.
    pub id_aa64mmfr: [Option<u64>; 4],
    /// VBAR_EL1: the address of the kernel's vectors, which gives the KASLR offset.
    pub vbar_el1: Option<u64>,
    /// HCR_EL2, on a PE with EL2. It gives whether EL1's registers belong to a virtual machine, so that their addresses
    /// are not physical, and whether they are in use at all.
    pub hcr_el2: Option<u64>,
    /// ESR_EL1: the syndrome of the last exception to EL1 that was not an interrupt. No walk depends on it or on
    /// FAR_EL1.
    pub esr_el1: Option<u64>,
    /// FAR_EL1: the address of the last exception that was a fault.
    pub far_el1: Option<u64>,
}
