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
//! 4096*n the saved ranges, one behind the other
//! ```
//!
//! All numbers are little-endian. `p_paddr` is the guest physical address. `p_vaddr` is the same:
//! a core's readers look addresses up by `p_vaddr` (gdb's `x`), and QEMU's own
//! `dump-guest-memory` gives physical addresses there too when it was not asked to follow tables.
//! Guest RAM lies in the lower half, so that no kernel virtual address can be mistaken for one.

/// e_ident: magic, 64 bit, little-endian, version 1, System V.
pub(crate) const IDENT: [u8; 16] = [
    0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
];
pub(crate) const EHDR_BYTES: usize = 64;
pub(crate) const PHDR_BYTES: usize = 56;
pub(crate) const SHDR_BYTES: usize = 64;
pub(crate) const NHDR_BYTES: usize = 12;

pub(crate) const ET_CORE: u16 = 4;
pub(crate) const EM_AARCH64: u16 = 183;
pub(crate) const EV_CURRENT: u32 = 1;
/// "More program headers than e_phnum can say": their number is in section header 0's sh_info.
pub(crate) const PN_XNUM: u16 = 0xffff;
pub(crate) const PT_LOAD: u32 = 1;
pub(crate) const PT_NOTE: u32 = 4;
pub(crate) const PF_W: u32 = 2;
pub(crate) const PF_R: u32 = 4;

pub(crate) const CORE: &str = "CORE";
pub(crate) const NT_PRSTATUS: u32 = 1;
/// The owner of our own notes; their types follow. Small numbers would do by the standard, but
/// BFD looks at the type alone: gdb took a note of type 2 for floating-point registers.
pub(crate) const FOLIOSCOPE: &str = "FOLIOSCOPE";
pub(crate) const NT_REGISTERS: u32 = 0x464f_4c01;
pub(crate) const NT_RAM: u32 = 0x464f_4c02;
pub(crate) const NT_NOTES: u32 = 0x464f_4c03;

/// The version of the REGISTERS and RAM notes.
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

/// The RAM note: what the machine had, so that "not saved" differs from "no memory".
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
