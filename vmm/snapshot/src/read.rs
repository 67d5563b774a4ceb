// SPDX-License-Identifier: GPL-2.0-only
//! Opens an ELF core as a snapshot. The file is untrusted: it may be truncated, damaged, foreign or malicious, and each
//! of these has its own error. The crate `object` parses the ELF structures.

use std::fs::File;
use std::path::Path;

use object::read::elf::ProgramHeader as _;
use stage1::PhysicalAddress;

use crate::elf;
use crate::elf_file::{
    cut_short, header_error, notes_header, program_headers, raw_notes, ProgramHeader, LE,
};
use crate::other::{self, OtherCore};
use crate::saved::Saved;
use crate::{file_kind, kdump, CoreError, Cpu, Memory, Notes, Range, Snapshot, PAGE};
use note::Note;

pub(crate) mod note;

/// A core that Folioscope wrote, or another program.
#[derive(Debug)]
pub enum Core {
    /// Written by `folioscope save`.
    Ours(Box<Snapshot>),
    /// Written by another program.
    Other(Box<OtherCore>),
}

/// Opens a core at `path` that Folioscope wrote.
///
/// The saved memory is mapped, not read: it costs no memory until it is looked at. The file must not be changed while the
/// snapshot lives. One that is changed all the same gives wrong memory, or ends the process (SIGBUS) if it becomes
/// shorter; `saved.rs` says why it does no other harm, and what of that Rust cannot check.
///
/// # Errors
/// If the file is no such core; [`CoreError::Foreign`] if another program wrote it.
pub fn read_core(path: &Path) -> Result<Snapshot, CoreError> {
    let core = map(path)?;
    let headers = program_headers(&core)?;
    ours(&core, headers)
}

/// Opens a core at `path`, of any writer, as [`read_core`] does.
///
/// # Errors
/// If the file is no core of an arm64 machine. The error names the file's format if it is known.
pub fn open_core(path: &Path) -> Result<Core, CoreError> {
    let core = map(path)?;
    if let Some(dump) = kdump::read(&core)? {
        return Ok(Core::Other(Box::new(dump)));
    }
    let headers = program_headers(&core)?;
    if is_ours(&core, headers)? {
        return ours(&core, headers).map(|core| Core::Ours(Box::new(core)));
    }
    let other = other::read(&core, headers)?;
    Ok(Core::Other(Box::new(other)))
}

fn map(path: &Path) -> Result<Saved, CoreError> {
    let open = |source| CoreError::Open {
        path: path.to_path_buf(),
        source,
    };
    // Checked before opening: opening a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(open)?;
    if !metadata.is_file() {
        return Err(CoreError::NotAFile(path.to_path_buf()));
    }
    let file = File::open(path).map_err(open)?;
    let bytes = file.metadata().map_err(open)?.len() as usize;
    if bytes == 0 {
        return Err(file_kind::not_elf(&[]));
    }
    let io = |source| CoreError::Io {
        what: "map",
        source,
    };
    Saved::map(&file, bytes).map_err(io)
}

fn ours(core: &Saved, headers: &[ProgramHeader]) -> Result<Snapshot, CoreError> {
    let notes = read_notes(core, headers)?;
    let mut regions = Vec::new();
    for (index, header) in headers.iter().enumerate() {
        if header.p_type(LE) != object::elf::PT_LOAD {
            continue;
        }
        let (range, offset) = load(core, index, header)?;
        if range.bytes > 0 {
            regions.push(core.region(range, offset));
        }
    }
    Ok(Snapshot {
        cpus: notes.cpus,
        memory: Memory::new(regions, notes.ram)?,
        notes: notes.notes,
    })
}

/// Returns whether any note has our name. The readers of the notes report a damaged one.
fn is_ours(core: &[u8], headers: &[ProgramHeader]) -> Result<bool, CoreError> {
    let Some(header) = notes_header(core, headers)? else {
        return Ok(false);
    };
    let mut notes = raw_notes(core, header)?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::FOLIOSCOPE {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the saved range of a program header, and its offset in the file.
fn load(core: &[u8], index: usize, header: &ProgramHeader) -> Result<(Range, usize), CoreError> {
    let wrong = |problem| header_error(core, index, header, problem);
    let (offset, bytes) = header.file_range(LE);
    let address = header.p_paddr(LE);
    if bytes != header.p_memsz(LE) {
        return Err(wrong(format!(
            "expected all of p_memsz {:#x} in the file, found p_filesz {bytes:#x}",
            header.p_memsz(LE)
        )));
    }
    for (field, value) in [
        ("p_offset", offset),
        ("p_paddr", address),
        ("p_filesz", bytes),
    ] {
        if value % PAGE != 0 {
            return Err(wrong(format!(
                "expected {field} to be a multiple of {PAGE:#x}, found {value:#x}"
            )));
        }
    }
    if header.data(LE, core).is_err() {
        let what = format!("the memory of program header {index}");
        return Err(cut_short(core, what, offset, bytes));
    }
    let range = Range::new(PhysicalAddress(address), bytes).ok_or_else(|| {
        wrong(format!(
            "p_paddr {address:#x} and p_filesz {bytes:#x} reach beyond the address space"
        ))
    })?;
    Ok((range, offset as usize))
}

struct AllNotes {
    cpus: Vec<Cpu>,
    ram: Vec<Range>,
    notes: Notes,
}

fn read_notes(core: &[u8], headers: &[ProgramHeader]) -> Result<AllNotes, CoreError> {
    let mut cpus: Vec<Cpu> = Vec::new();
    // True while the last CPU's system registers are missing.
    let mut open = false;
    let mut ram = None;
    let mut notes = None;
    let missing = |missing| CoreError::Foreign { missing };
    let header = notes_header(core, headers)?.ok_or(missing("FOLIOSCOPE registers"))?;
    let elf = |problem| CoreError::Elf { problem };
    let mut all = raw_notes(core, header)?;
    while let Some(raw) = all.next().map_err(elf)? {
        let note = Note::new(core, raw.name(), raw.n_type(LE), raw.desc());
        match (raw.name(), note.kind) {
            (elf::CORE, object::elf::NT_PRSTATUS) => {
                if open {
                    return Err(missing("FOLIOSCOPE registers"));
                }
                cpus.push(note.prstatus()?);
                open = true;
            }
            (elf::FOLIOSCOPE, elf::NT_REGISTERS) => {
                match cpus.last_mut().filter(|_| open) {
                    Some(cpu) => note.registers(cpu)?,
                    None => {
                        return Err(note.damaged(
                            "expected an NT_PRSTATUS note of the same CPU before it, found none"
                                .into(),
                        ))
                    }
                }
                open = false;
            }
            (elf::FOLIOSCOPE, elf::NT_RAM) => ram = Some(note.ram()?),
            (elf::FOLIOSCOPE, elf::NT_NOTES) => notes = Some(note.notes()?),
            // A later version may add notes that this one can do without.
            _ => (),
        }
    }
    if open || cpus.is_empty() {
        return Err(missing("FOLIOSCOPE registers"));
    }
    Ok(AllNotes {
        cpus,
        ram: ram.ok_or(missing("FOLIOSCOPE RAM"))?,
        notes: notes.ok_or(missing("FOLIOSCOPE metadata"))?,
    })
}
