// SPDX-License-Identifier: GPL-2.0-only
//! The parts of ELF64 that a core of an AArch64 guest is made of.
//!
//! ```text
//! 0      ELF header
//! 64     one empty section header, only where there are 65,535 program headers or more
//!        program headers: PT_NOTE, then a PT_LOAD for each saved range
//!        notes: for each CPU  CORE       NT_PRSTATUS   general registers, as Linux writes them
//!                             FOLIOSCOPE REGISTERS     system registers, JSON
//!               then          FOLIOSCOPE RAM           the machine's RAM, JSON
//!                             FOLIOSCOPE NOTES         `Notes`, JSON
//!               of all RAM    VMCOREINFO 0             what the kernel says of itself, text
//! 4096*n the saved ranges, one behind the other
//! ```
//!
//! All numbers are little-endian. `p_paddr` is the guest physical address, and `p_vaddr` is the same. A core's readers
//! look addresses up by `p_vaddr` (gdb's `x`), and QEMU's own `dump-guest-memory` also has physical addresses there
//! unless it follows tables. Guest RAM lies in the lower half, so no kernel virtual address can be mistaken for one.

pub(crate) const CORE: &[u8] = b"CORE";
/// The owner of our own notes, whose types follow. The standard allows small numbers, but BFD reads the type alone: gdb
/// took a note of type 2 for floating-point registers.
pub(crate) const FOLIOSCOPE: &[u8] = b"FOLIOSCOPE";
/// The owner of the kernel's own note in its dumps (`VMCOREINFO_NOTE_NAME`); its type is 0.
pub(crate) const VMCOREINFO: &[u8] = b"VMCOREINFO";
pub(crate) const NT_REGISTERS: u32 = 0x464f_4c01;
pub(crate) const NT_RAM: u32 = 0x464f_4c02;
pub(crate) const NT_NOTES: u32 = 0x464f_4c03;

/// The version of the REGISTERS and RAM notes that this program writes, and the newest that it
/// reads: it reads all before, too.
pub(crate) const CORE_SCHEMA: u32 = 1;

/// `struct elf_prstatus` of arm64 (include/linux/elfcore.h): its size and where in it are pr_pid
/// and pr_reg (`struct user_pt_regs`: X0 to X30, SP, PC, PSTATE).
pub(crate) const PRSTATUS_BYTES: usize = 392;
pub(crate) const PRSTATUS_PID: usize = 32;
pub(crate) const PRSTATUS_REG: usize = 112;

/// The two numbers of the REGISTERS note that name the CPU, and its registers as hex strings.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct RegistersNote {
    pub(crate) schema: u32,
    pub(crate) cpu: usize,
    pub(crate) registers: std::collections::BTreeMap<String, String>,
}

/// The RAM note: the ranges of the machine's memory, so that "not saved" differs from "no memory".
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct RamNote {
    pub(crate) schema: u32,
    pub(crate) ranges: Vec<RamRange>,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct RamRange {
    #[serde(with = "crate::notes::hex")]
    pub(crate) base: u64,
    #[serde(with = "crate::notes::hex")]
    pub(crate) bytes: u64,
}

/// The name of SP_EL0 in the REGISTERS note, beside those of [`crate::SYSTEM_REGISTERS`].
pub(crate) const SP_EL0: &str = "SP_EL0";
