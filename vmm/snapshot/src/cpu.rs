// SPDX-License-Identifier: GPL-2.0-only
//! One PE at the instant of the snapshot.

use stage1::SystemRegisters;

/// The registers that a program can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GeneralRegisters {
    /// X0 to X30.
    pub x: [u64; 31],
    /// The stack pointer in use: SP_EL0 at EL0 or where PSTATE.SP is 0, else SP_EL1.
    pub sp: u64,
    /// SP_EL0. While Linux runs in the kernel it holds the address of the current task.
    ///
    /// `None` where the machine could not read it apart from `sp`.
    pub sp_el0: Option<u64>,
    /// The program counter.
    pub pc: u64,
    /// PSTATE in the layout of SPSR_ELx (Arm ARM C5.2.19): NZCV in \[31:28], DAIF in \[9:6],
    /// the exception level in \[3:2], the stack pointer's choice in \[0].
    pub pstate: u64,
}

/// One PE: its index, its program's registers, and its translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The CPU's number in the machine, from 0.
    pub index: usize,
    /// The general-purpose registers, PC and PSTATE.
    pub general: GeneralRegisters,
    /// The EL1 registers that stage 1 depends on.
    pub system: SystemRegisters,
}

impl Cpu {
    /// Returns the exception level that the PE is at, 0 to 3, from PSTATE.
    pub fn el(&self) -> u8 {
        // An AArch32 mode has M[4] set, and no EL in M[3:2]: User mode (0b10000) is EL0, and all
        // others are at EL1 as far as this translation regime is concerned.
        let mode = self.general.pstate & 0x1f;
        match mode {
            0x10 => 0,
            0x11..=0x1f => 1,
            _ => (mode >> 2 & 3) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pstate: u64) -> u8 {
        let mut cpu = Cpu::default();
        cpu.general.pstate = pstate;
        cpu.el()
    }

    #[test]
    fn the_exception_level_comes_from_pstate() {
        assert_eq!(at(0x6000_1000), 0, "EL0t with Z, C and SSBS set");
        assert_eq!(at(0x6140_00c5), 1, "EL1h");
        assert_eq!(at(0x3c4), 1, "EL1t");
        assert_eq!(at(0x3c9), 2, "EL2h");
        assert_eq!(at(0x10), 0, "AArch32 User");
        assert_eq!(at(0x13), 1, "AArch32 Supervisor");
    }
}
