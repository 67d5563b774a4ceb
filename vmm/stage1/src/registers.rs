//! The system registers that say how a PE translates.

/// The EL1 registers of one PE that stage 1 of the EL1&0 regime depends on, and where it last faulted, raw.
///
/// Whoever reads them (gdbstub, KVM, a saved core) fills in what there is: `None` is "could not
/// be read", which is not the same as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemRegisters {
    /// TTBR0_EL1: table base, ASID and CnP of the lower half.
    pub ttbr0_el1: u64,
    /// TTBR1_EL1: the same of the upper half.
    pub ttbr1_el1: u64,
    /// TCR_EL1.
    pub tcr_el1: u64,
    /// TCR2_EL1 (FEAT_TCR2), which QEMU up to 10.1 does not have.
    pub tcr2_el1: Option<u64>,
    /// PIR_EL1 (FEAT_S1PIE): EL1's permissions by PIIndex.
    pub pir_el1: Option<u64>,
    /// PIRE0_EL1 (FEAT_S1PIE): EL0's.
    pub pire0_el1: Option<u64>,
    /// POR_EL1 (FEAT_S1POE): what of EL1's permissions is left, by POIndex.
    pub por_el1: Option<u64>,
    /// POR_EL0 (FEAT_S1POE): what of EL0's. Each thread has its own.
    pub por_el0: Option<u64>,
    /// MAIR_EL1.
    pub mair_el1: u64,
    /// SCTLR_EL1.
    pub sctlr_el1: u64,
    /// CONTEXTIDR_EL1: with `CONFIG_PID_IN_CONTEXTIDR` the thread's PID.
    pub contextidr_el1: u64,
    /// ID_AA64MMFR0_EL1 to ID_AA64MMFR3_EL1, by number.
    pub id_aa64mmfr: [Option<u64>; 4],
    /// VBAR_EL1: where the kernel's vectors are, and so how far KASLR moved it.
    pub vbar_el1: Option<u64>,
    /// HCR_EL2, on a PE with EL2: whether EL1's registers are those of a virtual machine, and so its
    /// addresses not yet physical, or are not in use at all.
    pub hcr_el2: Option<u64>,
    /// ESR_EL1: why the PE last took an exception to EL1 that is no interrupt. No walk depends on it nor on the next.
    pub esr_el1: Option<u64>,
    /// FAR_EL1: the address of the last one that was a fault.
    pub far_el1: Option<u64>,
}
