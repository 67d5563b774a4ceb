//! Opens an ELF core as a snapshot. The file is not trusted: it may be cut short, damaged,
//! somebody else's or made to harm, and each of these has its own error. What ELF says of it is
//! read by the crate `object`.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use object::elf::{FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader as _, NoteIterator, ProgramHeader as _};
use object::{LittleEndian, ReadRef as _};
use stage1::PhysicalAddress;

use crate::elf;
use crate::other::{self, OtherCore};
use crate::{
    file_kind, kdump, CoreError, Cpu, Mapping, Memory, Notes, Range, Region, Snapshot, PAGE,
};
use note::Note;

pub(crate) mod note;

/// The byte order of every core of an arm64 guest.
pub(crate) const LE: LittleEndian = LittleEndian;

type ElfHeader = FileHeader64<LittleEndian>;
pub(crate) type ProgramHeader = ProgramHeader64<LittleEndian>;

/// A core of ours, or of another program.
#[derive(Debug)]
pub enum Core {
    /// Written by `folioscope save`.
    Ours(Box<Snapshot>),
    /// Written by another program.
    Other(Box<OtherCore>),
}

/// Opens a core of ours at `path`.
///
/// The saved memory is mapped, not read: it costs no memory until it is looked at. The file must
/// not be changed while the snapshot lives.
///
/// # Errors
/// Where the file is no such core; [`CoreError::Foreign`] where it is another program's.
pub fn read_core(path: &Path) -> Result<Snapshot, CoreError> {
    let mapping = map(path)?;
    // SAFETY: the mapping is private and read-only. That nobody changes or cuts the file while it
    // is open is what the documentation asks of the user; it is what every program that maps a
    // file relies on.
    let core = unsafe { mapping.slice(0, mapping.bytes()) };
    let headers = program_headers(core)?;
    ours(core, headers, &mapping)
}

/// Opens a core at `path`, whoever wrote it; as [`read_core`].
///
/// # Errors
/// Where the file is no core of an arm64 machine, and what it is instead where that is known.
pub fn open_core(path: &Path) -> Result<Core, CoreError> {
    let mapping = map(path)?;
    // SAFETY: as in `read_core`.
    let core = unsafe { mapping.slice(0, mapping.bytes()) };
    if let Some(dump) = kdump::read(&mapping)? {
        return Ok(Core::Other(Box::new(dump)));
    }
    let headers = program_headers(core)?;
    if is_ours(core, headers)? {
        return ours(core, headers, &mapping).map(|core| Core::Ours(Box::new(core)));
    }
    let other = other::read(core, headers, &mapping)?;
    Ok(Core::Other(Box::new(other)))
}

fn map(path: &Path) -> Result<Arc<Mapping>, CoreError> {
    let open = |source| CoreError::Open {
        path: path.to_path_buf(),
        source,
    };
    // Asked before opening: opening a pipe would wait for a writer.
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
    Ok(Arc::new(Mapping::read_only(&file, bytes).map_err(io)?))
}

fn ours(
    core: &[u8],
    headers: &[ProgramHeader],
    mapping: &Arc<Mapping>,
) -> Result<Snapshot, CoreError> {
    let notes = read_notes(core, headers)?;
    let mut regions = Vec::new();
    for (index, header) in headers.iter().enumerate() {
        if header.p_type(LE) != object::elf::PT_LOAD {
            continue;
        }
        let (range, offset) = load(core, index, header)?;
        if range.bytes > 0 {
            // SAFETY: as above, the file does not change.
            regions.push(unsafe { Region::live(range, Arc::clone(mapping), offset) });
        }
    }
    Ok(Snapshot {
        cpus: notes.cpus,
        memory: Memory::new(regions, notes.ram)?,
        notes: notes.notes,
    })
}

/// Whether any note has our name. One that is damaged is told of by whoever reads them.
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

/// The error for `bytes` bytes at `offset` that the file does not have.
pub(crate) fn cut_short(core: &[u8], what: String, offset: u64, bytes: u64) -> CoreError {
    CoreError::CutShort {
        what,
        offset,
        end: offset.saturating_add(bytes),
        file_bytes: core.len() as u64,
    }
}

/// Where in the file `part` of it lies.
pub(crate) fn offset_in(core: &[u8], part: &[u8]) -> u64 {
    (part.as_ptr() as usize).wrapping_sub(core.as_ptr() as usize) as u64
}

/// The error for a program header.
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

/// The saved range of a program header, and where in the file it lies.
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

fn program_headers(core: &[u8]) -> Result<&[ProgramHeader], CoreError> {
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

/// The program header of the notes, where there is one.
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

/// The notes that a program header has.
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

struct AllNotes {
    cpus: Vec<Cpu>,
    ram: Vec<Range>,
    notes: Notes,
}

fn read_notes(core: &[u8], headers: &[ProgramHeader]) -> Result<AllNotes, CoreError> {
    let mut cpus: Vec<Cpu> = Vec::new();
    // Whether the last CPU still waits for its system registers.
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
