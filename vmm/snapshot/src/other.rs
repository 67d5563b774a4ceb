// SPDX-License-Identifier: GPL-2.0-only
//! Opens an ELF core that another program wrote: QEMU's `dump-guest-memory`, the kernel's own `/proc/vmcore`, or the
//! output of makedumpfile or crash.
//!
//! Such a core has the general registers of each CPU (NT_PRSTATUS) and memory, but no register that controls
//! translation. It may leave pages out (p_filesz below p_memsz). Its memory may begin anywhere in the file. Two program
//! headers may name the same memory: /proc/vmcore has the kernel's image twice.

use std::sync::Arc;

use object::elf::{FileHeader64, NT_PRSTATUS, PT_LOAD};
use object::read::elf::{NoteIterator, ProgramHeader as _};
use object::LittleEndian;
use stage1::PhysicalAddress;

use crate::elf;
use crate::elf_file::{cut_short, header_error, notes_header, raw_notes, ProgramHeader, LE};
use crate::fetched::{Fetched, Pages};
use crate::read::note::Note;
use crate::saved::Saved;
use crate::{CoreError, Cpu, Memory, Range, RangeSet, Region, PAGE};

/// A core of another program, before it is known how the CPUs translate.
#[derive(Debug)]
pub struct OtherCore {
    /// The CPUs in the order of their notes, with their general registers; [`Cpu::system`] is that of [`Cpu::default`].
    pub cpus: Vec<Cpu>,
    /// Guest physical memory.
    pub memory: Memory,
    /// The text of the VMCOREINFO note, where the core has one.
    pub vmcoreinfo: Option<String>,
}

/// Maximum length of VMCOREINFO. The kernel's is a page of its own.
pub(crate) const LONGEST_INFO: usize = 64 << 10;

/// Reads it from the bytes of the file.
pub(crate) fn read(core: &Saved, headers: &[ProgramHeader]) -> Result<OtherCore, CoreError> {
    let (cpus, vmcoreinfo) = notes(core, headers)?;
    let mut loads = Vec::new();
    let mut ram = RangeSet::default();
    for (index, header) in headers.iter().enumerate() {
        if header.p_type(LE) != PT_LOAD {
            continue;
        }
        let load = Load::new(core, index, header)?;
        ram.extend(load.ram);
        loads.push(load);
    }
    let (regions, left_out) = regions(loads, core)?;
    let memory = Memory::new(regions, ram.iter().collect())?;
    Ok(OtherCore {
        cpus,
        memory: memory.with_pages_left_out(left_out),
        vmcoreinfo,
    })
}

/// Returns the CPUs, and the kernel's VMCOREINFO.
fn notes(core: &[u8], headers: &[ProgramHeader]) -> Result<(Vec<Cpu>, Option<String>), CoreError> {
    match notes_header(core, headers)? {
        Some(header) => notes_of(core, raw_notes(core, header)?),
        None => Ok((Vec::new(), None)),
    }
}

/// Returns the CPUs and VMCOREINFO from notes by themselves, which lie in `core`.
pub(crate) fn notes_of(
    core: &[u8],
    mut notes: NoteIterator<'_, FileHeader64<LittleEndian>>,
) -> Result<(Vec<Cpu>, Option<String>), CoreError> {
    let mut cpus = Vec::new();
    let mut vmcoreinfo = None;
    let elf = |problem| CoreError::Elf { problem };
    while let Some(raw) = notes.next().map_err(elf)? {
        match (raw.name(), raw.n_type(LE)) {
            (elf::CORE, NT_PRSTATUS) => {
                let note = Note::new(core, raw.name(), NT_PRSTATUS, raw.desc());
                let cpu = note.prstatus()?;
                let index = cpus.len();
                cpus.push(Cpu { index, ..cpu });
            }
            (elf::VMCOREINFO, _) => {
                vmcoreinfo = Some(info(raw.desc()));
            }
            _ => (),
        }
    }
    Ok((cpus, vmcoreinfo))
}

/// Returns the text of a VMCOREINFO.
pub(crate) fn info(text: &[u8]) -> String {
    // A copy, which no task changes: it is checked once.
    let text = text[..text.len().min(LONGEST_INFO)].to_vec();
    let text = String::from_utf8_lossy(&text);
    text.trim_end_matches('\0').to_owned()
}

/// A program header's memory: its whole pages, and the file offset of the first.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// The machine's memory there.
    ram: Option<Range>,
    /// The part that the file holds.
    held: Option<Range>,
    /// Offset of `held` in the file.
    offset: u64,
}

impl Load {
    fn new(core: &[u8], index: usize, header: &ProgramHeader) -> Result<Self, CoreError> {
        let (offset, held) = header.file_range(LE);
        let (address, all) = (header.p_paddr(LE), header.p_memsz(LE));
        let whole = |bytes: u64| {
            let end = address.checked_add(bytes);
            let end = end.ok_or_else(|| {
                let problem = format!(
                    "p_paddr {address:#x} and {bytes:#x} bytes reach beyond the address space"
                );
                header_error(core, index, header, problem)
            })?;
            // A page that the file holds in part is left out.
            let (start, end) = (address.next_multiple_of(PAGE), end & !(PAGE - 1));
            let bytes = end.checked_sub(start).filter(|bytes| *bytes > 0);
            Ok::<_, CoreError>(bytes.and_then(|bytes| Range::new(PhysicalAddress(start), bytes)))
        };
        if address > u64::MAX - PAGE {
            let problem = format!("p_paddr {address:#x} is beyond the address space");
            return Err(header_error(core, index, header, problem));
        }
        if header.data(LE, core).is_err() {
            let what = format!("the memory of program header {index}");
            return Err(cut_short(core, what, offset, held));
        }
        let (ram, held) = (whole(all.max(held))?, whole(held)?);
        let skipped = held.map_or(0, |held| held.base.0 - address);
        Ok(Self {
            ram,
            held,
            offset: offset + skipped,
        })
    }
}

/// Returns the memory by address, each page once; and whether the file leaves any out.
fn regions(mut loads: Vec<Load>, file: &Saved) -> Result<(Vec<Region>, bool), CoreError> {
    let bytes_of = |range: Option<Range>| range.map_or(0, |range| range.bytes);
    let left_out = loads
        .iter()
        .any(|load| bytes_of(load.held) < bytes_of(load.ram));
    loads.sort_by_key(|load| load.held);
    let mut regions = Vec::new();
    let mut end = 0;
    for load in loads {
        let Some(held) = load.held else { continue };
        let start = held.base.0.max(end);
        let Some(bytes) = held.end().checked_sub(start).filter(|bytes| *bytes > 0) else {
            continue;
        };
        end = held.end();
        let range = Range::new(PhysicalAddress(start), bytes).expect("a part of a range");
        let offset = load.offset + (start - held.base.0);
        regions.push(match offset % 8 {
            0 => file.region(range, offset as usize),
            _ => {
                let pages = InFile {
                    file: file.clone(),
                    range,
                    offset,
                };
                let io = |source| CoreError::Io {
                    what: "make room for memory of",
                    source,
                };
                Region::fetched(Fetched::new(range, Arc::new(pages)).map_err(io)?)
            }
        });
    }
    Ok((regions, left_out))
}

/// Memory that begins at no word's boundary of the file: QEMU puts it right behind notes of any length.
#[derive(Debug)]
struct InFile {
    file: Saved,
    range: Range,
    offset: u64,
}

impl Pages for InFile {
    fn read(&self, page: PhysicalAddress, to: &mut [u8]) -> bool {
        let offset = self.offset + (page.0 - self.range.base.0);
        // That it is so long was checked.
        to.copy_from_slice(&self.file[offset as usize..][..to.len()]);
        true
    }

    fn data(&self, range: Range) -> Option<Range> {
        let offset = self.offset + (range.base.0 - self.range.base.0);
        let (start, bytes) = self.file.data(offset, range.bytes)?;
        // A page of memory spans two pages of the file.
        let skipped = (start - offset) & !(PAGE - 1);
        let end = (start - offset + bytes).next_multiple_of(PAGE);
        let bytes = end.min(range.bytes) - skipped;
        Range::new(PhysicalAddress(range.base.0 + skipped), bytes)
    }
}
