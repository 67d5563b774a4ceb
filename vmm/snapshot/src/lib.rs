// SPDX-License-Identifier: GPL-2.0-only
//! Registers and memory of a guest at one instant.
//!
//! [`Snapshot`] is the one type, both for a paused machine whose memory is mapped and for a file. Its readers treat
//! them alike. A saved snapshot is a standard ELF core ([`write_core`], [`read_core`]), so gdb, readelf and others open
//! it too.
//!
//! A [`Recording`] finds the pages that a question needs. It answers reads from the memory behind it and records their
//! pages as a [`RangeSet`], which is then saved.

#[cfg(not(target_endian = "little"))]
compile_error!("guest memory is read in place as little-endian words; a big-endian host cannot");

mod again;
mod copies;
mod cpu;
mod elf;
mod elf_file;
mod error;
mod fetched;
mod file_kind;
mod kdump;
mod mapping;
mod memory;
mod notes;
mod other;
mod ram;
mod range;
mod read;
mod recording;
mod registers;
mod saved;
mod sparse;
mod tree;
mod whole;
mod write;

pub use again::{LastCopy, Wanted};
pub use cpu::{Cpu, GeneralRegisters};
pub use error::CoreError;
pub use mapping::{data_of, Mapping};
pub use memory::{Memory, MemoryError, Region};
pub use notes::{Checkpoint, Notes, Process, NOTES_SCHEMA};
pub use other::OtherCore;
pub use ram::Ram;
pub use range::{Range, RangeSet, PAGE};
pub use read::{open_core, read_core, Core};
pub use recording::Recording;
pub use registers::{SystemRegister, SYSTEM_REGISTERS};
pub use sparse::SparseFile;
pub use tree::TablesRead;
pub use whole::write_whole_core;
pub use write::write_core;

/// A guest at one instant: all its CPUs, its known memory, and notes about it.
#[derive(Debug)]
pub struct Snapshot {
    /// The CPUs in the order of their index.
    pub cpus: Vec<Cpu>,
    /// Guest physical memory, as far as it can be read.
    pub memory: Memory,
    /// Notes on the guest, beyond registers and memory.
    pub notes: Notes,
}

impl Snapshot {
    /// Returns the CPU that `process` waits on, if its checkpoint proves that the CPU runs it.
    ///
    /// Only then is that CPU's TTBR0_EL1 the process's own table (see [`Checkpoint`]).
    pub fn root_of(&self, process: &Process) -> Option<&Cpu> {
        let checkpoint = process.checkpoint.as_ref()?;
        self.cpus.iter().find(|cpu| checkpoint.holds(cpu))
    }
}
