// SPDX-License-Identifier: GPL-2.0-only
//! Recognises markers, and the instructions that may fault on data.

/// `movz xzr, #0, lsl #48`; the number is in bits 20 to 5 (Arm ARM, C6.2, MOVZ).
const MARKER: u32 = 0xd2e0_001f;
const NUMBER: u32 = 0xffff << 5;

/// Returns a marker's number.
pub fn marker(opcode: u32) -> Option<u16> {
    (opcode & !NUMBER == MARKER).then_some((opcode >> 5 & 0xffff) as u16)
}

/// Returns whether it loads or stores, by the top level of A64's encoding (op0 = x1x0, Arm ARM C4.1); DC ZVA, a system
/// instruction, does as well.
pub fn accesses_memory(opcode: u32) -> bool {
    opcode >> 25 & 0b0101 == 0b0100 || opcode >> 5 == 0xd50b_7420 >> 5
}
