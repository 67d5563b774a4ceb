// SPDX-License-Identifier: GPL-2.0-only
//! Recognises the instructions that matter, by their opcodes (Arm ARM C5 and C6).

use crate::{Barrier, Domain, Register, Types};

/// An instruction that is an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// TLB maintenance of EL1, or of EL2 where it concerns EL1's tables.
    Tlbi {
        /// The opcode without its register.
        opcode: u32,
        /// The register, 31 for none.
        register: u8,
    },
    /// DSB or ISB.
    Barrier(Barrier),
    /// MSR to a register of [`Register`].
    Msr {
        /// The system register.
        to: Register,
        /// The source register, 31 for zero.
        register: u8,
    },
}

/// SYS, with op1 to op2 and Rt zero.
const SYS: u32 = 0xd508_0000;
/// Everything but Rt.
const NO_RT: u32 = !0x1f;

impl Instruction {
    /// Returns the instruction with this opcode, if it matters.
    #[must_use]
    pub fn decode(opcode: u32) -> Option<Self> {
        let register = (opcode & 0x1f) as u8;
        // Barriers: CRm in [11:8], op2 in [7:5].
        match opcode & !0xf00 {
            0xd503_309f => return dsb(opcode >> 8 & 0xf),
            // DSB nXS: its domain in [11:10].
            0xd503_303f if opcode >> 8 & 3 == 2 => return dsb(opcode >> 8 & 0xc | 3),
            0xd503_30df => return Some(Self::Barrier(Barrier::Isb)),
            _ => (),
        }
        let to = match opcode & NO_RT {
            0xd518_1000 => Some(Register::Sctlr),
            0xd518_2000 => Some(Register::Ttbr0),
            0xd518_2020 => Some(Register::Ttbr1),
            0xd518_2040 => Some(Register::Tcr),
            0xd518_2060 => Some(Register::Tcr2),
            0xd518_a200 => Some(Register::Mair),
            0xd518_d020 => Some(Register::Contextidr),
            0xd518_4000 => Some(Register::Spsr),
            _ => None,
        };
        if let Some(to) = to {
            return Some(Self::Msr { to, register });
        }
        let is_sys = opcode & 0xfff8_0000 == SYS;
        let crn = opcode >> 12 & 0xf;
        (is_sys && (crn == 8 || crn == 9)).then_some(Self::Tlbi {
            opcode: opcode & NO_RT,
            register,
        })
    }
}

fn dsb(crm: u32) -> Option<Instruction> {
    let domain = match crm >> 2 {
        0 => Domain::OuterShareable,
        1 => Domain::NonShareable,
        2 => Domain::InnerShareable,
        _ => Domain::System,
    };
    let types = match crm & 3 {
        1 => Types::Loads,
        2 => Types::Stores,
        3 => Types::All,
        // SSBB and PSSBB, which order speculation alone.
        _ => return None,
    };
    Some(Instruction::Barrier(Barrier::Dsb { domain, types }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_as_the_assembler_makes_them() {
        let barrier = |domain, types| Some(Instruction::Barrier(Barrier::Dsb { domain, types }));
        let msr = |to, register| Some(Instruction::Msr { to, register });
        let tlbi = |opcode, register| Some(Instruction::Tlbi { opcode, register });
        for (opcode, expected) in [
            // dsb ishst, dsb ish, dsb nsh, dsb nshst, dsb sy, dsb oshld, dsb ishnxs, ssbb
            (0xd503_3a9f, barrier(Domain::InnerShareable, Types::Stores)),
            (0xd503_3b9f, barrier(Domain::InnerShareable, Types::All)),
            (0xd503_379f, barrier(Domain::NonShareable, Types::All)),
            (0xd503_369f, barrier(Domain::NonShareable, Types::Stores)),
            (0xd503_3f9f, barrier(Domain::System, Types::All)),
            (0xd503_319f, barrier(Domain::OuterShareable, Types::Loads)),
            (0xd503_3a3f, barrier(Domain::InnerShareable, Types::All)),
            (0xd503_309f, None),
            // isb, dmb ish
            (0xd503_3fdf, Some(Instruction::Barrier(Barrier::Isb))),
            (0xd503_3bbf, None),
            // msr ttbr0_el1, x1; msr ttbr1_el1, x2; msr tcr_el1, x0; msr sctlr_el1, x19; msr mair_el1, x5; msr contextidr_el1, x1;
            // msr spsr_el1, x22; msr elr_el1, x21
            (0xd518_2001, msr(Register::Ttbr0, 1)),
            (0xd518_2022, msr(Register::Ttbr1, 2)),
            (0xd518_2040, msr(Register::Tcr, 0)),
            (0xd518_1013, msr(Register::Sctlr, 19)),
            (0xd518_a205, msr(Register::Mair, 5)),
            (0xd518_d021, msr(Register::Contextidr, 1)),
            (0xd518_4016, msr(Register::Spsr, 22)),
            (0xd518_4035, None),
            // mrs x1, ttbr0_el1
            (0xd538_2001, None),
            // tlbi vmalle1is; tlbi vae1is, x3; tlbi rvale1is, x4; tlbi aside1is, x0
            (0xd508_831f, tlbi(0xd508_8300, 31)),
            (0xd508_8323, tlbi(0xd508_8320, 3)),
            (0xd508_82a4, tlbi(0xd508_82a0, 4)),
            (0xd508_8340, tlbi(0xd508_8340, 0)),
            // dc zva, x0; dc civac, x0; ret
            (0xd50b_7420, None),
            (0xd50b_7e20, None),
            (0xd65f_03c0, None),
        ] {
            assert_eq!(Instruction::decode(opcode), expected, "{opcode:#x}");
        }
    }
}
