// SPDX-License-Identifier: GPL-2.0-only
//! Everything that can be wrong with a core file, each with its own sentence.

use std::path::PathBuf;

use crate::{MemoryError, Range};

/// The reason why a core could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The file is not there, or may not be read.
    #[error("cannot open the snapshot {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is a directory, a pipe or the like.
    #[error("{} is not a regular file: a snapshot is an ELF core written by `folioscope save`", .0.display())]
    NotAFile(PathBuf),
    /// The file does not begin as an ELF file does.
    #[error("not an ELF file: expected the bytes 7f 45 4c 46 at offset 0, found {found:02x?}; a snapshot is an ELF core, by `folioscope save`, QEMU's dump-guest-memory or kdump, and raw memory (pmemsave) says neither where it lay nor what the CPUs held")]
    NotElf {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// The file is known to be of another kind.
    #[error("not an ELF file: it is {what}; {advice}")]
    OtherKind {
        /// The kind.
        what: &'static str,
        /// How to make an ELF core of it.
        advice: &'static str,
    },
    /// A dump that is compressed by page makes no sense.
    #[error("the compressed dump (kdump) is damaged: {problem}; have it written again")]
    Dump {
        /// The value expected and the value found.
        problem: String,
    },
    /// A dump that is compressed by page, in a way that is not read.
    #[error("the pages of this dump (kdump) are compressed by {method}, and only zlib is read; have them compressed by zlib: makedumpfile -c DUMP NEW, or dump-guest-memory -z in QEMU")]
    Packed {
        /// The way.
        method: &'static str,
    },
    /// A header field has another value than any core of an arm64 guest has.
    #[error("not a core of an arm64 guest: expected {field} to be {expected}, found {found} at offset {offset:#x}")]
    Header {
        /// The ELF field.
        field: &'static str,
        /// The value expected.
        expected: String,
        /// The value found.
        found: u64,
        /// Its offset in the file.
        offset: u64,
    },
    /// The file ends too early.
    #[error("the snapshot is cut short: {what} needs bytes {offset:#x} to {end:#x}, but the file ends at {file_bytes:#x}; save it again")]
    CutShort {
        /// The value found there.
        what: String,
        /// Its first byte.
        offset: u64,
        /// The first byte behind it; saturated where it would overflow.
        end: u64,
        /// The size of the file.
        file_bytes: u64,
    },
    /// The structure of ELF itself is broken.
    #[error("the snapshot is damaged: {problem}; save it again")]
    Elf {
        /// The error from the crate `object`.
        problem: object::read::Error,
    },
    /// A note that cannot be understood.
    #[error("the {note} note at offset {offset:#x} is damaged: {problem}")]
    Note {
        /// The note.
        note: &'static str,
        /// Offset of its content in the file.
        offset: u64,
        /// The value expected and the value found.
        problem: String,
    },
    /// A note of a later version, or of version 0, which there never was.
    #[error("the {note} note at offset {offset:#x} has version {found}, and this program reads version {newest} and those before: use the folioscope that wrote it")]
    Schema {
        /// The note.
        note: &'static str,
        /// Offset of its content in the file.
        offset: u64,
        /// The version found.
        found: u32,
        /// The newest that is read.
        newest: u32,
    },
    /// Most likely a core of another program.
    #[error("the core has no {missing} note: it was not written by `folioscope save`, so it lacks what a judgement needs")]
    Foreign {
        /// The missing note.
        missing: &'static str,
    },
    /// Saved memory that makes no sense.
    #[error("program header {index} at offset {offset:#x} is wrong: {problem}")]
    Segment {
        /// Its number, from 0.
        index: u64,
        /// Its offset in the file.
        offset: u64,
        /// The value expected and the value found.
        problem: String,
    },
    /// The saved ranges do not go together.
    #[error("the saved memory is wrong: {0}")]
    Memory(#[from] MemoryError),
    /// A range to save that the snapshot cannot read.
    #[error("cannot save {0}: it is not readable in this snapshot")]
    NotReadable(Range),
    /// More ranges than an ELF file can hold.
    #[error("cannot save {0} ranges: an ELF core holds at most 4294967294")]
    TooManyRanges(usize),
    /// The file could not be written or mapped.
    #[error("cannot {what} the snapshot: {source}")]
    Io {
        /// The operation that failed, as a verb.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}
