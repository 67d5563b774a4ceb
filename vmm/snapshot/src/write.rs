//! Saves a snapshot as an ELF core; the layout is drawn in the module `elf`.

use std::io::{self, Write};

use stage1::{PhysMemory, PhysicalAddress};

use crate::elf::{self, RamNote, RamRange, RegistersNote};
use crate::{CoreError, Cpu, Memory, Notes, Range, RangeSet, PAGE, SYSTEM_REGISTERS};

/// Writes the core of a guest: its CPUs, the `ranges` of its `memory`, and `notes`.
///
/// Needs little memory of its own, whatever the ranges hold. Give it a [`crate::SparseFile`] or a
/// `BufWriter`: it writes page by page.
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
    // Found out before the first byte is written, so that no half of a file stays behind.
    for range in ranges.iter() {
        readable(memory, range)?;
    }
    let notes = encode_notes(cpus, memory, notes);
    let extended = headers >= usize::from(elf::PN_XNUM);
    let phoff = elf::EHDR_BYTES + if extended { elf::SHDR_BYTES } else { 0 };
    let notes_offset = (phoff + headers * elf::PHDR_BYTES) as u64;
    let notes_end = notes_offset + notes.len() as u64;
    let mut head = elf_header(phoff as u64, headers, extended);
    if extended {
        head.extend(section_zero(headers as u32));
    }
    head.extend(program_header(
        elf::PT_NOTE,
        elf::PF_R,
        notes_offset,
        0,
        notes.len() as u64,
        4,
    ));
    let mut offset = notes_end.next_multiple_of(PAGE);
    let padding = (offset - notes_end) as usize;
    let io = |source| CoreError::Io {
        what: "write",
        source,
    };
    out.write_all(&head).map_err(io)?;
    for range in ranges.iter() {
        let header = program_header(
            elf::PT_LOAD,
            elf::PF_R | elf::PF_W,
            offset,
            range.base.0,
            range.bytes,
            PAGE,
        );
        out.write_all(&header).map_err(io)?;
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

fn elf_header(phoff: u64, headers: usize, extended: bool) -> Vec<u8> {
    let mut out = elf::IDENT.to_vec();
    out.extend(elf::ET_CORE.to_le_bytes());
    out.extend(elf::EM_AARCH64.to_le_bytes());
    out.extend(elf::EV_CURRENT.to_le_bytes());
    out.extend(0u64.to_le_bytes()); // e_entry
    out.extend(phoff.to_le_bytes());
    let shoff = if extended { elf::EHDR_BYTES as u64 } else { 0 };
    out.extend(shoff.to_le_bytes());
    out.extend(0u32.to_le_bytes()); // e_flags
    out.extend((elf::EHDR_BYTES as u16).to_le_bytes());
    out.extend((elf::PHDR_BYTES as u16).to_le_bytes());
    let phnum = if extended {
        elf::PN_XNUM
    } else {
        headers as u16
    };
    out.extend(phnum.to_le_bytes());
    let shentsize = if extended { elf::SHDR_BYTES as u16 } else { 0 };
    out.extend(shentsize.to_le_bytes());
    out.extend(u16::from(extended).to_le_bytes()); // e_shnum
    out.extend(0u16.to_le_bytes()); // e_shstrndx
    out
}

/// A section header of type SHT_NULL whose sh_info counts the program headers.
fn section_zero(headers: u32) -> [u8; elf::SHDR_BYTES] {
    let mut out = [0; elf::SHDR_BYTES];
    out[44..48].copy_from_slice(&headers.to_le_bytes());
    out
}

fn program_header(
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    bytes: u64,
    align: u64,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(elf::PHDR_BYTES);
    out.extend(kind.to_le_bytes());
    out.extend(flags.to_le_bytes());
    let memory_bytes = if kind == elf::PT_LOAD { bytes } else { 0 };
    // p_vaddr and p_paddr are alike: see the module `elf`.
    for field in [offset, address, address, bytes, memory_bytes, align] {
        out.extend(field.to_le_bytes());
    }
    out
}

fn encode_notes(cpus: &[Cpu], memory: &Memory, notes: &Notes) -> Vec<u8> {
    let json =
        |value: Result<Vec<u8>, serde_json::Error>| value.expect("maps with string keys only");
    let mut out = Vec::new();
    for cpu in cpus {
        note(&mut out, elf::CORE, elf::NT_PRSTATUS, &prstatus(cpu));
        let registers = json(serde_json::to_vec(&registers(cpu)));
        note(&mut out, elf::FOLIOSCOPE, elf::NT_REGISTERS, &registers);
    }
    let ram = RamNote {
        schema: elf::CORE_SCHEMA,
        ranges: memory
            .ram()
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

fn note(out: &mut Vec<u8>, owner: &str, kind: u32, body: &[u8]) {
    out.extend((owner.len() as u32 + 1).to_le_bytes());
    out.extend((body.len() as u32).to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend(owner.as_bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(body);
    out.resize(out.len().next_multiple_of(4), 0);
}
