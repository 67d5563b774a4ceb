//! Opens an ELF core as a snapshot. The file is not trusted: it may be cut short, damaged or
//! somebody else's, and each of these has its own error.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use stage1::PhysicalAddress;

use crate::elf::{self, RamNote, RegistersNote};
use crate::notes::hex;
use crate::{
    CoreError, Cpu, Mapping, Memory, Notes, Range, Region, Snapshot, NOTES_SCHEMA, PAGE,
    SYSTEM_REGISTERS,
};

/// Opens the core at `path`.
///
/// The saved memory is mapped, not read: it costs no memory until it is looked at. The file must
/// not be changed while the snapshot lives.
pub fn read_core(path: &Path) -> Result<Snapshot, CoreError> {
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
        return Err(CoreError::NotElf { found: Vec::new() });
    }
    let io = |source| CoreError::Io {
        what: "map",
        source,
    };
    let mapping = Arc::new(Mapping::read_only(&file, bytes).map_err(io)?);
    // SAFETY: the mapping is private and read-only. That nobody changes or cuts the file while it
    // is open is what the documentation asks of the user; it is what every program that maps a
    // file relies on.
    let core = Bytes(unsafe { mapping.slice(0, bytes) });
    let headers = program_headers(core)?;
    let notes = read_notes(core, &headers)?;
    let mut regions = Vec::new();
    for header in headers.iter().filter(|header| header.kind == elf::PT_LOAD) {
        let (range, offset) = header.load(core)?;
        if range.bytes > 0 {
            // SAFETY: as above, the file does not change.
            regions.push(unsafe { Region::live(range, Arc::clone(&mapping), offset) });
        }
    }
    Ok(Snapshot {
        cpus: notes.cpus,
        memory: Memory::new(regions, notes.ram)?,
        notes: notes.notes,
    })
}

/// The file, with checked access.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn get(self, what: &str, offset: u64, bytes: u64) -> Result<&'a [u8], CoreError> {
        let end = offset.saturating_add(bytes);
        if end > self.0.len() as u64 {
            return Err(CoreError::CutShort {
                what: what.to_string(),
                offset,
                end,
                file_bytes: self.0.len() as u64,
            });
        }
        Ok(&self.0[offset as usize..end as usize])
    }
}

/// The little-endian number in `bytes`, of which there are at most eight.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

struct ProgramHeader {
    index: u64,
    /// Where the header itself stands.
    at: u64,
    kind: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

impl ProgramHeader {
    /// The saved range, and where in the file it lies.
    fn load(&self, core: Bytes) -> Result<(Range, usize), CoreError> {
        let wrong = |problem| CoreError::Segment {
            index: self.index,
            offset: self.at,
            problem,
        };
        if self.file_bytes != self.memory_bytes {
            return Err(wrong(format!(
                "expected all of p_memsz {:#x} in the file, found p_filesz {:#x}",
                self.memory_bytes, self.file_bytes
            )));
        }
        for (field, value) in [
            ("p_offset", self.offset),
            ("p_paddr", self.address),
            ("p_filesz", self.file_bytes),
        ] {
            if value % PAGE != 0 {
                return Err(wrong(format!(
                    "expected {field} to be a multiple of {PAGE:#x}, found {value:#x}"
                )));
            }
        }
        core.get(
            &format!("the memory of program header {}", self.index),
            self.offset,
            self.file_bytes,
        )?;
        let range =
            Range::new(PhysicalAddress(self.address), self.file_bytes).ok_or_else(|| {
                wrong(format!(
                    "p_paddr {:#x} and p_filesz {:#x} reach beyond the address space",
                    self.address, self.file_bytes
                ))
            })?;
        Ok((range, self.offset as usize))
    }
}

fn program_headers(core: Bytes) -> Result<Vec<ProgramHeader>, CoreError> {
    let found = &core.0[..core.0.len().min(4)];
    if found != &elf::IDENT[..4] {
        return Err(CoreError::NotElf {
            found: found.to_vec(),
        });
    }
    let header = core.get("the ELF header", 0, elf::EHDR_BYTES as u64)?;
    let field = |offset: usize, bytes: usize| number(&header[offset..offset + bytes]);
    for (name, offset, bytes, expected, meaning) in [
        ("EI_CLASS", 4, 1, 2, " (64 bit)"),
        ("EI_DATA", 5, 1, 1, " (little-endian)"),
        ("EI_VERSION", 6, 1, 1, ""),
        ("e_type", 16, 2, u64::from(elf::ET_CORE), " (ET_CORE)"),
        (
            "e_machine",
            18,
            2,
            u64::from(elf::EM_AARCH64),
            " (EM_AARCH64)",
        ),
        ("e_version", 20, 4, u64::from(elf::EV_CURRENT), ""),
        ("e_phentsize", 54, 2, elf::PHDR_BYTES as u64, ""),
    ] {
        let found = field(offset, bytes);
        if found != expected {
            return Err(CoreError::Header {
                field: name,
                expected: format!("{expected}{meaning}"),
                found,
                offset: offset as u64,
            });
        }
    }
    let (phoff, shoff, mut count) = (field(32, 8), field(40, 8), field(56, 2));
    if count == u64::from(elf::PN_XNUM) {
        let section = core.get("section header 0", shoff, elf::SHDR_BYTES as u64)?;
        count = number(&section[44..48]);
    }
    let table = core.get(
        &format!("the table of {count} program headers"),
        phoff,
        count * elf::PHDR_BYTES as u64,
    )?;
    Ok(table
        .chunks_exact(elf::PHDR_BYTES)
        .zip(0..)
        .map(|(raw, index)| ProgramHeader {
            index,
            at: phoff + index * elf::PHDR_BYTES as u64,
            kind: number(&raw[0..4]) as u32,
            offset: number(&raw[8..16]),
            address: number(&raw[24..32]),
            file_bytes: number(&raw[32..40]),
            memory_bytes: number(&raw[40..48]),
        })
        .collect())
}

struct AllNotes {
    cpus: Vec<Cpu>,
    ram: Vec<Range>,
    notes: Notes,
}

fn read_notes(core: Bytes, headers: &[ProgramHeader]) -> Result<AllNotes, CoreError> {
    let mut cpus: Vec<Cpu> = Vec::new();
    // Whether the last CPU still waits for its system registers.
    let mut open = false;
    let mut ram = None;
    let mut notes = None;
    for header in headers.iter().filter(|header| header.kind == elf::PT_NOTE) {
        let all = core.get("the notes", header.offset, header.file_bytes)?;
        let mut at = 0;
        while at < all.len() {
            let note = Note::read(all, header.offset, &mut at)?;
            match (note.owner, note.kind) {
                (owner, elf::NT_PRSTATUS) if owner == elf::CORE.as_bytes() => {
                    if open {
                        return Err(CoreError::Foreign {
                            missing: "FOLIOSCOPE registers",
                        });
                    }
                    cpus.push(note.prstatus()?);
                    open = true;
                }
                (owner, kind) if owner == elf::FOLIOSCOPE.as_bytes() => match kind {
                    elf::NT_REGISTERS => {
                        match cpus.last_mut().filter(|_| open) {
                            Some(cpu) => note.registers(cpu)?,
                            None => {
                                return Err(note.damaged(
                                    "expected an NT_PRSTATUS note of the same CPU before it, found none".into(),
                                ))
                            }
                        }
                        open = false;
                    }
                    elf::NT_RAM => ram = Some(note.ram()?),
                    elf::NT_NOTES => notes = Some(note.notes()?),
                    // A later version may add notes that this one can do without.
                    _ => (),
                },
                _ => (),
            }
        }
    }
    let missing = |missing| CoreError::Foreign { missing };
    if open || cpus.is_empty() {
        return Err(missing("FOLIOSCOPE registers"));
    }
    Ok(AllNotes {
        cpus,
        ram: ram.ok_or(missing("FOLIOSCOPE RAM"))?,
        notes: notes.ok_or(missing("FOLIOSCOPE metadata"))?,
    })
}

/// One note, its owner without the closing zero.
struct Note<'a> {
    name: &'static str,
    offset: u64,
    owner: &'a [u8],
    kind: u32,
    body: &'a [u8],
}

impl<'a> Note<'a> {
    fn read(all: &'a [u8], base: u64, at: &mut usize) -> Result<Self, CoreError> {
        let offset = base + *at as u64;
        let mut take = |bytes: usize| {
            let rest = &all[*at..];
            if bytes > rest.len() {
                return Err(CoreError::Note {
                    note: "ELF",
                    offset,
                    problem: format!(
                        "expected {bytes} more bytes, found {} before the notes end",
                        rest.len()
                    ),
                });
            }
            // The padding of the last note may be missing.
            *at = (*at + bytes.next_multiple_of(4)).min(all.len());
            Ok(&rest[..bytes])
        };
        let header = take(elf::NHDR_BYTES)?;
        let owner = take(number(&header[0..4]) as usize)?;
        let body = take(number(&header[4..8]) as usize)?;
        let owner = owner.strip_suffix(&[0]).unwrap_or(owner);
        let kind = number(&header[8..12]) as u32;
        let name = match kind {
            _ if owner == elf::CORE.as_bytes() => "CORE PRSTATUS",
            elf::NT_REGISTERS => "FOLIOSCOPE registers",
            elf::NT_RAM => "FOLIOSCOPE RAM",
            _ => "FOLIOSCOPE metadata",
        };
        Ok(Self {
            name,
            offset,
            owner,
            kind,
            body,
        })
    }

    fn damaged(&self, problem: String) -> CoreError {
        CoreError::Note {
            note: self.name,
            offset: self.offset,
            problem,
        }
    }

    fn json<T: serde::de::DeserializeOwned>(&self, expected: u32) -> Result<T, CoreError> {
        #[derive(serde::Deserialize)]
        struct Version {
            schema: u32,
        }
        let wrong = |error: serde_json::Error| self.damaged(format!("its JSON says: {error}"));
        // The version alone first: what else a later version holds may not be readable at all.
        let version: Version = serde_json::from_slice(self.body).map_err(wrong)?;
        if version.schema != expected {
            return Err(CoreError::Schema {
                note: self.name,
                offset: self.offset,
                found: version.schema,
                expected,
            });
        }
        serde_json::from_slice(self.body).map_err(wrong)
    }

    fn prstatus(&self) -> Result<Cpu, CoreError> {
        if self.body.len() != elf::PRSTATUS_BYTES {
            return Err(self.damaged(format!(
                "expected the {} bytes of arm64's elf_prstatus, found {}",
                elf::PRSTATUS_BYTES,
                self.body.len()
            )));
        }
        let register = |index: usize| number(&self.body[elf::PRSTATUS_REG + index * 8..][..8]);
        let mut cpu = Cpu::default();
        for (index, x) in cpu.general.x.iter_mut().enumerate() {
            *x = register(index);
        }
        cpu.general.sp = register(31);
        cpu.general.pc = register(32);
        cpu.general.pstate = register(33);
        Ok(cpu)
    }

    fn registers(&self, cpu: &mut Cpu) -> Result<(), CoreError> {
        let note: RegistersNote = self.json(elf::CORE_SCHEMA)?;
        cpu.index = note.cpu;
        let value = |name: &str| match note.registers.get(name) {
            None => Ok(None),
            Some(text) => match hex::parse(text) {
                Ok(value) => Ok(Some(value)),
                Err(problem) => Err(self.damaged(format!("{name}: {problem}"))),
            },
        };
        for row in &SYSTEM_REGISTERS {
            match value(row.name)? {
                Some(value) => (row.set)(&mut cpu.system, value),
                None if row.required => {
                    return Err(self.damaged(format!("expected {}, found none", row.name)))
                }
                None => (),
            }
        }
        cpu.general.sp_el0 = value(elf::SP_EL0)?;
        Ok(())
    }

    fn ram(&self) -> Result<Vec<Range>, CoreError> {
        let note: RamNote = self.json(elf::CORE_SCHEMA)?;
        note.ranges
            .iter()
            .map(|ram| {
                Range::new(PhysicalAddress(ram.base), ram.bytes).ok_or_else(|| {
                    self.damaged(format!(
                        "RAM of {:#x} bytes at {:#x} reaches beyond the address space",
                        ram.bytes, ram.base
                    ))
                })
            })
            .collect()
    }

    fn notes(&self) -> Result<Notes, CoreError> {
        self.json(NOTES_SCHEMA)
    }
}
