// SPDX-License-Identifier: GPL-2.0-only
//! Saves all of a guest's RAM as an ELF core that readers of kernel dumps open (drgn, crash): it has the kernel's VMCOREINFO.
//!
//! RAM is read in place, piece by piece, and zeros become holes of the file. Nothing is kept.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use object::elf::{PF_R, PF_W, PT_LOAD, PT_NOTE};
use object::pod::bytes_of;
use stage1::PhysicalAddress;

use crate::elf;
use crate::write::{elf_header, encode_notes, note, program_header, EHDR_BYTES, PHDR_BYTES};
use crate::{CoreError, Cpu, Notes, Ram, Range, PAGE};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Writes the core of a guest to an empty file: its CPUs, all its RAM, and `notes`. `vmcoreinfo` is the kernel's
/// VMCOREINFO, by which a reader of kernel dumps recognises one. `progress` receives the number of bytes of RAM that
/// are done, holes included.
///
/// # Errors
/// If RAM cannot be read or the file cannot be written. The file's contents are useless then.
pub fn write_whole_core(
    file: &File,
    cpus: &[Cpu],
    ram: &dyn Ram,
    notes: &Notes,
    vmcoreinfo: Option<&str>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), CoreError> {
    let mut ranges = ram.ranges();
    ranges.sort();
    let mut all = encode_notes(cpus, &ranges, notes);
    if let Some(text) = vmcoreinfo {
        note(&mut all, elf::VMCOREINFO, 0, text.as_bytes());
    }
    let headers = ranges.len() + 1;
    let notes_offset = (EHDR_BYTES + headers * PHDR_BYTES) as u64;
    let mut offset = (notes_offset + all.len() as u64).next_multiple_of(PAGE);
    let mut head = bytes_of(&elf_header(EHDR_BYTES as u64, headers, false)).to_vec();
    let of_notes = program_header(PT_NOTE, PF_R, notes_offset, 0, all.len() as u64, 4);
    head.extend(bytes_of(&of_notes));
    let mut places = Vec::with_capacity(ranges.len());
    for range in &ranges {
        let flags = PF_R | PF_W;
        let header = program_header(PT_LOAD, flags, offset, range.base.0, range.bytes, PAGE);
        head.extend(bytes_of(&header));
        places.push((*range, offset));
        offset += range.bytes;
    }
    head.extend(all);
    let io = |what| move |source| CoreError::Io { what, source };
    file.set_len(offset).map_err(io("write"))?;
    file.write_all_at(&head, 0).map_err(io("write"))?;
    let mut buffer = vec![0; PIECE];
    let mut done = 0;
    for (range, place) in places {
        let mut at = range.base.0;
        while let Some(data) = rest(range, at).and_then(|rest| ram.data(rest)) {
            let bytes = data.bytes.min(PIECE as u64) as usize;
            let buffer = &mut buffer[..bytes];
            ram.read(data.base, buffer)
                .map_err(io("read guest memory for"))?;
            let to = place + (data.base.0 - range.base.0);
            write_runs(file, buffer, to).map_err(io("write"))?;
            at = data.base.0 + bytes as u64;
            progress(done + (at - range.base.0));
        }
        done += range.bytes;
        progress(done);
    }
    Ok(())
}

/// Returns what is left of a range from `at` on.
fn rest(range: Range, at: u64) -> Option<Range> {
    let bytes = range.end().checked_sub(at).filter(|bytes| *bytes > 0)?;
    Range::new(PhysicalAddress(at), bytes)
}

/// Writes the pages of `data` that are not zero, those behind each other at once.
fn write_runs(file: &File, data: &[u8], to: u64) -> io::Result<()> {
    let page = PAGE as usize;
    let is_zero = |at: usize| {
        let bytes = &data[at..data.len().min(at + page)];
        bytes.iter().all(|&byte| byte == 0)
    };
    let mut at = 0;
    while at < data.len() {
        let mut end = at;
        while end < data.len() && !is_zero(end) {
            end += page;
        }
        let end = end.min(data.len());
        if end > at {
            file.write_all_at(&data[at..end], to + at as u64)?;
        }
        // The page at `end` is one of zeros, if there is one.
        at = end + page;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::MetadataExt as _;

    use stage1::PhysMemory;

    use super::*;
    use crate::read_core;

    const MIB: u64 = 1 << 20;

    /// RAM of two banks, with some pages that are not zero, and a hole that is never read.
    #[derive(Debug)]
    struct Banks {
        pages: Vec<(u64, u8)>,
        hole: Range,
        read: RefCell<Vec<Range>>,
    }

    fn range(base: u64, bytes: u64) -> Range {
        Range::new(PhysicalAddress(base), bytes).unwrap()
    }

    impl Ram for Banks {
        fn ranges(&self) -> Vec<Range> {
            vec![
                range(0x8000_0000, 3 * MIB),
                range(0x4000_0000, 5 * MIB + PAGE),
            ]
        }

        fn data(&self, range: Range) -> Option<Range> {
            if self.hole.contains(range.base) {
                return rest(range, self.hole.end());
            }
            Some(range)
        }

        fn read(&self, address: PhysicalAddress, buffer: &mut [u8]) -> io::Result<()> {
            let all = range(address.0, buffer.len() as u64);
            self.read.borrow_mut().push(all);
            buffer.fill(0);
            for (page, byte) in &self.pages {
                if all.contains(PhysicalAddress(*page)) {
                    buffer[(page - address.0) as usize..][..PAGE as usize].fill(*byte);
                }
            }
            Ok(())
        }
    }

    #[test]
    fn all_ram_is_read_back_and_zeros_take_no_room() {
        let banks = Banks {
            pages: vec![
                (0x4000_0000, 1),
                (0x4010_0000 - PAGE, 2),
                (0x4010_0000, 3),
                (0x4050_0000, 4),
                (0x8020_0000, 5),
            ],
            hole: range(0x4020_0000, 2 * MIB),
            read: RefCell::default(),
        };
        let path = std::env::temp_dir().join(format!("whole-{}.core", std::process::id()));
        let file = File::create(&path).unwrap();
        let cpus = [Cpu::default(), Cpu::default()];
        let notes = Notes::now("a test's", String::new());
        let mut told = Vec::new();
        let mut tell = |bytes| told.push(bytes);
        write_whole_core(
            &file,
            &cpus,
            &banks,
            &notes,
            Some("OSRELEASE=1\n"),
            &mut tell,
        )
        .unwrap();
        let blocks = file.metadata().unwrap().blocks();
        let snapshot = read_core(&path);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let snapshot = snapshot.unwrap();
        for bank in banks.ranges() {
            for page in (bank.base.0..bank.end()).step_by(PAGE as usize) {
                let expected = banks.pages.iter().find(|(at, _)| *at == page);
                let expected = u64::from_le_bytes([expected.map_or(0, |(_, byte)| *byte); 8]);
                let words = snapshot.memory.words(PhysicalAddress(page), 512).unwrap();
                assert!(words.iter().all(|word| *word == expected), "{page:#x}");
            }
        }
        assert_eq!((snapshot.cpus.len(), &snapshot.notes), (2, &notes));
        assert_eq!(told.last(), Some(&(8 * MIB + PAGE)));
        assert!(told.is_sorted());
        let hole = |at: &Range| banks.hole.contains(at.base);
        assert!(!banks.read.borrow().iter().any(hole), "a hole is not read");
        // Some file systems have larger blocks; 8 MiB it must not be.
        assert!(blocks * 512 < MIB, "{blocks} blocks");
        let name = bytes
            .windows(23)
            .position(|at| at == b"VMCOREINFO\0\0OSRELEASE=1");
        assert!(name.is_some(), "the note's name, padded, and its text");
    }
}
