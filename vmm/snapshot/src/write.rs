// SPDX-License-Identifier: GPL-2.0-only
//! Saves a snapshot as an ELF core; the layout is drawn in the module `elf`.

use std::io::{self, Write};

use object::elf::{
    FileHeader64, Ident, NoteHeader64, ProgramHeader64, SectionHeader64, NT_PRSTATUS, PF_R, PF_W,
    PN_XNUM, PT_LOAD, PT_NOTE,
};
use object::pod::bytes_of;
use object::{LittleEndian, U16, U32, U64};
use stage1::{PhysMemory, PhysicalAddress};

use crate::elf::{self, RamNote, RamRange, RegistersNote};
use crate::{CoreError, Cpu, Memory, Notes, Range, RangeSet, PAGE, SYSTEM_REGISTERS};

const LE: LittleEndian = LittleEndian;
pub(crate) const EHDR_BYTES: usize = size_of::<FileHeader64<LittleEndian>>();
pub(crate) const PHDR_BYTES: usize = size_of::<ProgramHeader64<LittleEndian>>();
const SHDR_BYTES: usize = size_of::<SectionHeader64<LittleEndian>>();

/// Writes the core of a guest: its CPUs, the `ranges` of its `memory`, and `notes`.
///
/// Needs little memory of its own, whatever the ranges hold. Give it a [`crate::SparseFile`] or a `BufWriter`: it
/// writes page by page.
pub fn write_core(
    out: &mut impl Write,
    cpus: &[Cpu],
    ranges: &RangeSet,
    memory: &Memory,
    notes: &Notes,
) -> Result<(), CoreError> {
    let headers = ranges.len() + 1;
    if headers > u32::MAX as usize {
        return Err(CoreError::TooManyRanges(ranges.len()));
    }
    // Checked before the first byte is written, so that no partial file is left.
    for range in ranges.iter() {
        readable(memory, range)?;
    }
    let notes = encode_notes(cpus, memory.ram(), notes);
    let extended = headers >= usize::from(PN_XNUM);
    let phoff = EHDR_BYTES + if extended { SHDR_BYTES } else { 0 };
    let notes_offset = (phoff + headers * PHDR_BYTES) as u64;
    let notes_end = notes_offset + notes.len() as u64;
    let mut head = bytes_of(&elf_header(phoff as u64, headers, extended)).to_vec();
    if extended {
        head.extend(bytes_of(&section_zero(headers as u32)));
    }
    let of_notes = program_header(PT_NOTE, PF_R, notes_offset, 0, notes.len() as u64, 4);
    head.extend(bytes_of(&of_notes));
    let mut offset = notes_end.next_multiple_of(PAGE);
    let padding = (offset - notes_end) as usize;
    let io = |source| CoreError::Io {
        what: "write",
        source,
    };
    out.write_all(&head).map_err(io)?;
    for range in ranges.iter() {
        let header = program_header(
            PT_LOAD,
            PF_R | PF_W,
            offset,
            range.base.0,
            range.bytes,
            PAGE,
        );
        out.write_all(bytes_of(&header)).map_err(io)?;
        offset += range.bytes;
    }
    out.write_all(&notes).map_err(io)?;
    out.write_all(&vec![0; padding]).map_err(io)?;
    for page in ranges.iter().flat_map(pages) {
        let words = memory
            .words(page, PAGE as usize / 8)
            .expect("checked above, and memory does not change");
        write_words(out, words).map_err(io)?;
    }
    out.flush().map_err(io)
}

fn pages(range: Range) -> impl Iterator<Item = PhysicalAddress> {
    (range.base.0..range.end())
        .step_by(PAGE as usize)
        .map(PhysicalAddress)
}

fn readable(memory: &Memory, range: Range) -> Result<(), CoreError> {
    match pages(range).find(|page| memory.words(*page, PAGE as usize / 8).is_none()) {
        None => Ok(()),
        Some(base) => Err(CoreError::NotReadable(Range { base, bytes: PAGE })),
    }
}

fn write_words(out: &mut impl Write, words: &[u64]) -> io::Result<()> {
    let mut bytes = [0; PAGE as usize];
    for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
        target.copy_from_slice(&word.to_le_bytes());
    }
    out.write_all(&bytes)
}

pub(crate) fn elf_header(phoff: u64, headers: usize, extended: bool) -> FileHeader64<LittleEndian> {
    let half = |value| U16::new(LE, value);
    let shoff = if extended { EHDR_BYTES as u64 } else { 0 };
    FileHeader64 {
        e_ident: Ident {
            magic: object::elf::ELFMAG,
            class: object::elf::ELFCLASS64,
            data: object::elf::ELFDATA2LSB,
            version: object::elf::EV_CURRENT,
            os_abi: object::elf::ELFOSABI_SYSV,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: half(object::elf::ET_CORE),
        e_machine: half(object::elf::EM_AARCH64),
        e_version: U32::new(LE, u32::from(object::elf::EV_CURRENT)),
        e_entry: U64::new(LE, 0),
        e_phoff: U64::new(LE, phoff),
        e_shoff: U64::new(LE, shoff),
        e_flags: U32::new(LE, 0),
        e_ehsize: half(EHDR_BYTES as u16),
        e_phentsize: half(PHDR_BYTES as u16),
        e_phnum: half(if extended { PN_XNUM } else { headers as u16 }),
        e_shentsize: half(if extended { SHDR_BYTES as u16 } else { 0 }),
        e_shnum: half(u16::from(extended)),
        e_shstrndx: half(0),
    }
}

/// Returns a section header of type SHT_NULL whose sh_info counts the program headers.
fn section_zero(headers: u32) -> SectionHeader64<LittleEndian> {
    let (none, long) = (U32::new(LE, 0), U64::new(LE, 0));
    SectionHeader64 {
        sh_name: none,
        sh_type: U32::new(LE, object::elf::SHT_NULL),
        sh_flags: long,
        sh_addr: long,
        sh_offset: long,
        sh_size: long,
        sh_link: none,
        sh_info: U32::new(LE, headers),
        sh_addralign: long,
        sh_entsize: long,
    }
}

pub(crate) fn program_header(
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    bytes: u64,
    align: u64,
) -> ProgramHeader64<LittleEndian> {
    let long = |value| U64::new(LE, value);
    let memory_bytes = if kind == PT_LOAD { bytes } else { 0 };
    ProgramHeader64 {
        p_type: U32::new(LE, kind),
        p_flags: U32::new(LE, flags),
        p_offset: long(offset),
        // p_vaddr and p_paddr are equal: see the module `elf`.
        p_vaddr: long(address),
        p_paddr: long(address),
        p_filesz: long(bytes),
        p_memsz: long(memory_bytes),
        p_align: long(align),
    }
}

pub(crate) fn encode_notes(cpus: &[Cpu], ram: &[Range], notes: &Notes) -> Vec<u8> {
    let json =
        |value: Result<Vec<u8>, serde_json::Error>| value.expect("maps with string keys only");
    let mut out = Vec::new();
    for cpu in cpus {
        note(&mut out, elf::CORE, NT_PRSTATUS, &prstatus(cpu));
        let registers = json(serde_json::to_vec(&registers(cpu)));
        note(&mut out, elf::FOLIOSCOPE, elf::NT_REGISTERS, &registers);
    }
    let ram = RamNote {
        schema: elf::CORE_SCHEMA,
        ranges: ram
            .iter()
            .map(|range| RamRange {
                base: range.base.0,
                bytes: range.bytes,
            })
            .collect(),
    };
    let ram = json(serde_json::to_vec(&ram));
    note(&mut out, elf::FOLIOSCOPE, elf::NT_RAM, &ram);
    let notes = json(serde_json::to_vec(notes));
    note(&mut out, elf::FOLIOSCOPE, elf::NT_NOTES, &notes);
    out
}

fn registers(cpu: &Cpu) -> RegistersNote {
    let sp_el0 = cpu.general.sp_el0.map(|value| (elf::SP_EL0, value));
    RegistersNote {
        schema: elf::CORE_SCHEMA,
        cpu: cpu.index,
        registers: SYSTEM_REGISTERS
            .iter()
            .filter_map(|row| Some((row.name, (row.get)(&cpu.system)?)))
            .chain(sp_el0)
            .map(|(name, value)| (name.to_string(), format!("{value:#x}")))
            .collect(),
    }
}

fn prstatus(cpu: &Cpu) -> [u8; elf::PRSTATUS_BYTES] {
    let mut out = [0; elf::PRSTATUS_BYTES];
    // Debuggers make one thread of each pr_pid and want it above 0.
    let pid = (cpu.index as u32).wrapping_add(1);
    out[elf::PRSTATUS_PID..][..4].copy_from_slice(&pid.to_le_bytes());
    let general = &cpu.general;
    let registers = general
        .x
        .into_iter()
        .chain([general.sp, general.pc, general.pstate]);
    for (target, value) in out[elf::PRSTATUS_REG..].chunks_exact_mut(8).zip(registers) {
        target.copy_from_slice(&value.to_le_bytes());
    }
    out
}

pub(crate) fn note(out: &mut Vec<u8>, owner: &[u8], kind: u32, body: &[u8]) {
    let header = NoteHeader64 {
        n_namesz: U32::new(LE, owner.len() as u32 + 1),
        n_descsz: U32::new(LE, body.len() as u32),
        n_type: U32::new(LE, kind),
    };
    out.extend(bytes_of(&header));
    out.extend(owner);
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(body);
    out.resize(out.len().next_multiple_of(4), 0);
}
