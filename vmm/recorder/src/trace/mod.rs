// SPDX-License-Identifier: GPL-2.0-only
//! The trace file: events in a compact form.
//!
//! A header of 12 bytes: `FOLIOREC`, then the version as a little-endian 32-bit number. Then records, then an end. Numbers are
//! LEB128 (7 bits a byte, the lowest first); a *delta* is the difference to the one before, wrapping, zigzag (bit 0 is the
//! sign), LEB128.
//!
//! | record | bytes |
//! |---|---|
//! | tag | bits \[3:0\] the kind, bit 4 set if the CPU is that of the record before, bit 5 if the PC is that CPU's last one |
//! | CPU | number, without bit 4 |
//! | PC | delta to that CPU's last PC over 4, without bit 5 |
//! | 0 end | number of records before it |
//! | 1 store | delta of the address over 8, delta of the word, both to the store before |
//! | 2 unknown | address over 8 |
//! | 3 table | before version 4: address over 8, number of words; then runs: zeros, others, and the others as deltas of words |
//! | 4 no table | address over 8 |
//! | 5 TLBI | opcode bits \[18:5\], delta of the operand to the TLBI before |
//! | 6 barrier | one byte: 0 ISB; else 1 + domain × 3 + types |
//! | 7 register | one byte: which; delta of its value to the last value of that register |
//! | 8 late | address over 8 |
//! | 9 chain | its number from 1, in the order in which chains come; a new one's frames: how many, then deltas of each over 4, the first to the PC's |
//! | 10 mark | number |
//! | 11 folio | delta of its first page frame to the folio before; one byte: order + 32 × kind; delta of its index |
//! | 12 table | address over 8, number of words; then runs: zeros; others × 2, and the others as deltas of words, or others × 2 + 1, and the one delta of each |
//!
//! A trace without its end record was cut: it is valid up to there. Version 1 had no chains and no marks, version 2 no
//! SPSR_EL1, version 3 no folios. A newer version is refused.

use crate::Register;

mod number;
mod read;
mod table;
mod write;

pub use read::{Reader, TraceError};
pub use write::Writer;

/// First bytes of a trace.
pub const MAGIC: &[u8; 8] = b"FOLIOREC";
/// The version that is written, and the newest one that is read.
pub const VERSION: u32 = 4;
/// The most descriptors of a table: of the 64K granule.
pub const MOST_WORDS: usize = 8192;
/// The most return addresses of a call chain.
pub const MOST_FRAMES: usize = 24;
/// Maximum number of call chains of a trace. Events under further chains have none.
pub(crate) const MOST_CHAINS: usize = 1 << 16;

pub(crate) const SAME_CPU: u8 = 1 << 4;
pub(crate) const SAME_PC: u8 = 1 << 5;

/// The state relative to which a record is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    pub(crate) cpu: u16,
    pub(crate) pcs: Vec<u64>,
    pub(crate) address: u64,
    pub(crate) word: u64,
    pub(crate) operand: u64,
    pub(crate) folio: u64,
    pub(crate) index: u64,
    pub(crate) registers: [u64; Register::ALL.len()],
    pub(crate) records: u64,
}

impl Before {
    /// Returns that CPU's last PC.
    pub(crate) fn pc(&mut self, cpu: u16) -> &mut u64 {
        let index = usize::from(cpu);
        if self.pcs.len() <= index {
            self.pcs.resize(index + 1, 0);
        }
        &mut self.pcs[index]
    }
}
