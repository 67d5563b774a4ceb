// SPDX-License-Identifier: GPL-2.0-only
//! Parses the headers and notes of an ELF core of an arm64 guest, of any writer. The file is untrusted.

use object::elf::{FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader as _, NoteIterator, ProgramHeader as _};
use object::{LittleEndian, ReadRef as _};

use crate::{file_kind, CoreError};

/// The byte order of every core of an arm64 guest.
pub(crate) const LE: LittleEndian = LittleEndian;

pub(crate) type ElfHeader = FileHeader64<LittleEndian>;

pub(crate) type ProgramHeader = ProgramHeader64<LittleEndian>;

pub(crate) fn program_headers(core: &[u8]) -> Result<&[ProgramHeader], CoreError> {
    if !core.starts_with(&object::elf::ELFMAG) {
        return Err(file_kind::not_elf(core));
    }
    let header_bytes = size_of::<ElfHeader>() as u64;
    let header: &ElfHeader = core
        .read_at(0)
        .map_err(|()| cut_short(core, "the ELF header".into(), 0, header_bytes))?;
    let ident = header.e_ident();
    for (field, offset, found, expected, meaning) in [
        (
            "EI_CLASS",
            4,
            u32::from(ident.class),
            u32::from(object::elf::ELFCLASS64),
            " (64 bit)",
        ),
        (
            "EI_DATA",
            5,
            u32::from(ident.data),
            u32::from(object::elf::ELFDATA2LSB),
            " (little-endian)",
        ),
        (
            "EI_VERSION",
            6,
            u32::from(ident.version),
            u32::from(object::elf::EV_CURRENT),
            "",
        ),
        (
            "e_type",
            16,
            u32::from(header.e_type(LE)),
            u32::from(object::elf::ET_CORE),
            " (ET_CORE)",
        ),
        (
            "e_machine",
            18,
            u32::from(header.e_machine(LE)),
            u32::from(object::elf::EM_AARCH64),
            " (EM_AARCH64)",
        ),
        (
            "e_version",
            20,
            header.e_version(LE),
            u32::from(object::elf::EV_CURRENT),
            "",
        ),
        (
            "e_phentsize",
            54,
            u32::from(header.e_phentsize(LE)),
            size_of::<ProgramHeader>() as u32,
            "",
        ),
    ] {
        if found != expected {
            return Err(CoreError::Header {
                field,
                expected: format!("{expected}{meaning}"),
                found: u64::from(found),
                offset,
            });
        }
    }
    let elf = |problem| CoreError::Elf { problem };
    let count = header.phnum(LE, core).map_err(elf)? as u64;
    let (start, bytes) = (
        header.e_phoff(LE),
        count * size_of::<ProgramHeader>() as u64,
    );
    if start
        .checked_add(bytes)
        .is_none_or(|end| end > core.len() as u64)
    {
        let what = format!("the table of {count} program headers");
        return Err(cut_short(core, what, start, bytes));
    }
    header.program_headers(LE, core).map_err(elf)
}

/// Returns the program header of the notes, if the file has one.
pub(crate) fn notes_header<'h>(
    core: &[u8],
    headers: &'h [ProgramHeader],
) -> Result<Option<&'h ProgramHeader>, CoreError> {
    let mut segments = headers
        .iter()
        .enumerate()
        .filter(|(_, header)| header.p_type(LE) == object::elf::PT_NOTE);
    let first = segments.next().map(|(_, header)| header);
    // A table of a million headers, each of all the file, would be read a million times.
    if let Some((index, second)) = segments.next() {
        let problem = "expected one PT_NOTE, found another".into();
        return Err(header_error(core, index, second, problem));
    }
    Ok(first)
}

/// Returns the notes that a program header has.
pub(crate) fn raw_notes<'c>(
    core: &'c [u8],
    header: &ProgramHeader,
) -> Result<NoteIterator<'c, ElfHeader>, CoreError> {
    let (start, bytes) = header.file_range(LE);
    if header.data(LE, core).is_err() {
        return Err(cut_short(core, "the notes".into(), start, bytes));
    }
    let notes = header.notes(LE, core);
    let notes = notes.map_err(|problem| CoreError::Elf { problem })?;
    Ok(notes.expect("the header is that of notes"))
}

/// Returns the error for `bytes` bytes at `offset` that the file does not have.
pub(crate) fn cut_short(core: &[u8], what: String, offset: u64, bytes: u64) -> CoreError {
    CoreError::CutShort {
        what,
        offset,
        end: offset.saturating_add(bytes),
        file_bytes: core.len() as u64,
    }
}

/// Returns the offset of `part` in the file.
pub(crate) fn offset_in(core: &[u8], part: &[u8]) -> u64 {
    (part.as_ptr() as usize).wrapping_sub(core.as_ptr() as usize) as u64
}

/// Returns the error for a program header.
pub(crate) fn header_error(
    core: &[u8],
    index: usize,
    header: &ProgramHeader,
    problem: String,
) -> CoreError {
    CoreError::Segment {
        index: index as u64,
        offset: offset_in(core, object::pod::bytes_of(header)),
        problem,
    }
}
