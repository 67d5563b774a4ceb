// SPDX-License-Identifier: GPL-2.0-only
//! Events on a machine that matter for sequences.

use crate::Folio;

/// An action of a CPU. Events are in the order in which they became visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The CPU.
    pub cpu: u16,
    /// The address of the instruction; 0 where it was none.
    pub pc: u64,
    /// The action.
    pub what: What,
}

/// An action of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Eight aligned bytes of physical memory have this value now.
    Store {
        /// Physical address, a multiple of 8.
        address: u64,
        /// The value.
        word: u64,
    },
    /// A store whose value is unknown.
    Unknown {
        /// Physical address, a multiple of 8.
        address: u64,
    },
    /// A store that was recorded after a later one to the same place: the state of the word between the two is unknown.
    Late {
        /// Physical address, a multiple of 8.
        address: u64,
    },
    /// The words of a table, read from memory at this instant.
    Table {
        /// Physical address of its first descriptor.
        address: u64,
        /// Its descriptors.
        words: Vec<u64>,
    },
    /// A table that could not be read.
    NoTable {
        /// Physical address of its first descriptor.
        address: u64,
    },
    /// TLB maintenance.
    Tlbi {
        /// The instruction, without its register: bits \[31:5\] are those of the opcode.
        opcode: u32,
        /// The register's value; 0 where the operation has none.
        operand: u64,
    },
    /// A DSB or ISB.
    Barrier(Barrier),
    /// The call chain of this CPU's events from here on, the innermost return address first.
    Chain {
        /// Return addresses: first the link register, which is the caller's in a leaf function without a frame record,
        /// then those of the frame records (AAPCS64, 6.4.6).
        frames: Vec<u64>,
    },
    /// The kernel's state of a page frame that the next store maps or unmaps.
    Folio(Folio),
    /// A mark of this place from outside.
    Mark {
        /// The mark's number.
        number: u64,
    },
    /// A register that translation depends on has this value now.
    Register {
        /// The register.
        register: Register,
        /// Its value.
        value: u64,
    },
}

/// A barrier instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// DSB.
    Dsb {
        /// The shareability domain.
        domain: Domain,
        /// The accesses that it waits for.
        types: Types,
    },
    /// ISB.
    Isb,
}

/// A shareability domain of a barrier, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Domain {
    /// This CPU.
    NonShareable,
    /// All CPUs under one operating system.
    InnerShareable,
    /// The outer shareable domain.
    OuterShareable,
    /// Everything.
    System,
}

/// The accesses that a barrier waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// Loads.
    Loads,
    /// Stores.
    Stores,
    /// Both.
    All,
}

/// A register of EL1 that translation depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// SCTLR_EL1.
    Sctlr,
    /// TTBR0_EL1.
    Ttbr0,
    /// TTBR1_EL1.
    Ttbr1,
    /// TCR_EL1.
    Tcr,
    /// TCR2_EL1.
    Tcr2,
    /// MAIR_EL1.
    Mair,
    /// ID_AA64MMFR0_EL1.
    Mmfr0,
    /// ID_AA64MMFR1_EL1.
    Mmfr1,
    /// ID_AA64MMFR2_EL1.
    Mmfr2,
    /// ID_AA64MMFR3_EL1.
    Mmfr3,
    /// CONTEXTIDR_EL1, where Linux writes the process's PID (CONFIG_PID_IN_CONTEXTIDR).
    Contextidr,
    /// SPSR_EL1, recorded when its target is EL0 and after stores that removed descriptors: this CPU returns to a
    /// process.
    Spsr,
}

impl Register {
    /// All registers, by the number that a trace has for them.
    pub const ALL: [Self; 12] = [
        Self::Sctlr,
        Self::Ttbr0,
        Self::Ttbr1,
        Self::Tcr,
        Self::Tcr2,
        Self::Mair,
        Self::Mmfr0,
        Self::Mmfr1,
        Self::Mmfr2,
        Self::Mmfr3,
        Self::Contextidr,
        Self::Spsr,
    ];
}
