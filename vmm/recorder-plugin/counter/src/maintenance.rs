// SPDX-License-Identifier: GPL-2.0-only
//! Recognises the instructions that maintain the TLB or order accesses.

/// Kind of such an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TLBI, of any scope.
    Tlbi,
    /// DSB, its nXS form included.
    Dsb,
    /// DMB.
    Dmb,
    /// ISB.
    Isb,
}

impl Kind {
    /// Number of kinds.
    pub const COUNT: usize = 4;

    /// Returns the kind of the instruction with this opcode (Arm ARM C6.2: DMB, DSB, ISB; C5.5: TLBI, which is SYS with
    /// CRn 8, or 9 for nXS).
    pub fn of(opcode: u32) -> Option<Self> {
        // Barriers: CRm in [11:8], op2 in [7:5].
        match opcode & !0xf00 {
            // The types in CRm[1:0]. The value 0 is SSBB and PSSBB, which order speculation alone.
            0xd503_309f if opcode >> 8 & 3 != 0 => return Some(Self::Dsb),
            0xd503_303f if opcode >> 8 & 3 == 2 => return Some(Self::Dsb),
            0xd503_30bf => return Some(Self::Dmb),
            0xd503_30df => return Some(Self::Isb),
            _ => (),
        }
        let is_sys = opcode & 0xfff8_0000 == 0xd508_0000;
        (is_sys && matches!(opcode >> 12 & 0xf, 8 | 9)).then_some(Self::Tlbi)
    }
}
