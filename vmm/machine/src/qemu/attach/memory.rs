// SPDX-License-Identifier: GPL-2.0-only
//! The RAM of an external QEMU, read page by page while the guest is stopped.
//!
//! It is read, and not mapped, for two reasons:
//! - The owner of the file may truncate it, which would end us by SIGBUS with the guest stopped.
//! - Another client may resume the guest, which must not change memory behind a reference.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use snapshot::{data_of, Memory, MemoryError, Ram, Range, Region, PAGE};
use stage1::{PhysMemory, PhysicalAddress};

/// A part of a file, at its place in the guest's physical address space.
#[derive(Clone, Debug)]
pub(super) struct Bank {
    pub(super) range: Range,
    pub(super) file: Arc<File>,
    /// Its offset in the file.
    pub(super) offset: u64,
}

/// Number of bytes that [`FileMemory`] keeps together.
const SHELF: u64 = 2 << 20;

type Page = OnceCell<Option<Box<[u64]>>>;

/// Memory that is read on first use, and then kept.
#[derive(Debug)]
pub struct FileMemory {
    banks: Vec<Bank>,
    /// Number of bytes that are read at once: the largest table, so that each is in one piece.
    unit: u64,
    /// Pages by bank, shelf and place on the shelf.
    pages: Vec<Vec<OnceCell<Box<[Page]>>>>,
}

impl FileMemory {
    /// Creates the memory without reading; `unit` is a power of two from 4 KiB to 64 KiB.
    pub(super) fn new(banks: &[Bank], unit: u64) -> Self {
        let shelves = |bank: &Bank| {
            let count = bank.range.bytes.div_ceil(SHELF);
            (0..count).map(|_| OnceCell::new()).collect()
        };
        Self {
            pages: banks.iter().map(shelves).collect(),
            banks: banks.to_vec(),
            unit,
        }
    }

    fn page(&self, bank: usize, offset: u64) -> Option<&[u64]> {
        let shelf = self.pages[bank].get((offset / SHELF) as usize)?;
        let shelf = shelf.get_or_init(|| {
            let count = SHELF / self.unit;
            (0..count).map(|_| OnceCell::new()).collect()
        });
        let page = &shelf[(offset % SHELF / self.unit) as usize];
        page.get_or_init(|| self.read(bank, offset / self.unit * self.unit))
            .as_deref()
    }

    fn read(&self, bank: usize, offset: u64) -> Option<Box<[u64]>> {
        let bank = &self.banks[bank];
        let bytes = self.unit.min(bank.range.bytes - offset);
        let mut buffer = vec![0; bytes as usize];
        bank.file
            .read_exact_at(&mut buffer, bank.offset + offset)
            .ok()?;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Some(buffer.chunks_exact(8).map(word).collect())
    }

    /// Returns the pages that were read, as an owned memory.
    ///
    /// # Errors
    /// If the guest's RAM is not made of whole pages.
    pub fn into_memory(self) -> Result<Memory, MemoryError> {
        let mut regions = Vec::new();
        for (bank, shelves) in self.banks.iter().zip(self.pages) {
            for (shelf, pages) in (0..).zip(shelves) {
                let pages = pages.into_inner().into_iter().flatten();
                for (place, page) in (0..).zip(pages) {
                    let Some(Some(words)) = page.into_inner() else {
                        continue;
                    };
                    let base = bank.range.base.0 + shelf * SHELF + place * self.unit;
                    regions.push(Region::owned(PhysicalAddress(base), words.into_vec()));
                }
            }
        }
        let ram = self.banks.iter().map(|bank| bank.range).collect();
        Memory::new(regions, ram)
    }
}

/// All of the guest's RAM, read in place. Nothing is kept.
#[derive(Debug)]
pub struct AllRam<'a>(pub(super) &'a [Bank]);

impl AllRam<'_> {
    fn bank(&self, address: PhysicalAddress) -> io::Result<(&Bank, u64)> {
        let mut banks = self.0.iter();
        let bank = banks.find(|bank| bank.range.contains(address));
        let bank = bank.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((bank, bank.offset + (address.0 - bank.range.base.0)))
    }
}

impl Ram for AllRam<'_> {
    fn ranges(&self) -> Vec<Range> {
        self.0.iter().map(|bank| bank.range).collect()
    }

    fn data(&self, range: Range) -> Option<Range> {
        let Ok((bank, at)) = self.bank(range.base) else {
            return Some(range);
        };
        let (start, bytes) = data_of(&bank.file, at, range.bytes)?;
        let place = |in_file: u64| range.base.0 + (in_file - at);
        let base = place(start) & !(PAGE - 1);
        let end = place(start + bytes).next_multiple_of(PAGE).min(range.end());
        Range::new(PhysicalAddress(base), end - base)
    }

    fn read(&self, address: PhysicalAddress, buffer: &mut [u8]) -> io::Result<()> {
        let (bank, at) = self.bank(address)?;
        bank.file.read_exact_at(buffer, at)
    }
}

impl PhysMemory for FileMemory {
    fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        let bank = (self.banks.iter()).position(|bank| bank.range.contains(address))?;
        let offset = address.0 - self.banks[bank].range.base.0;
        let page = self.page(bank, offset)?;
        let first = (offset % self.unit / 8) as usize;
        if offset % 8 != 0 {
            return None;
        }
        page.get(first..first.checked_add(count)?)
    }

    fn is_ram(&self, address: PhysicalAddress) -> bool {
        self.banks.iter().any(|bank| bank.range.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(unit: u64) -> (FileMemory, Arc<File>) {
        let name = format!("folioscope-attach-{}-{unit}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, vec![0; 8 << 20]).unwrap();
        let open = std::fs::File::options().read(true).write(true).open(&path);
        std::fs::remove_file(path).unwrap();
        let file = Arc::new(open.unwrap());
        let bank = |base, bytes, offset| Bank {
            range: Range::new(PhysicalAddress(base), bytes).unwrap(),
            file: Arc::clone(&file),
            offset,
        };
        let banks = [
            bank(0x4000_0000, 4 << 20, 0),
            bank(0x8000_0000, 2 << 20, 4 << 20),
        ];
        (FileMemory::new(&banks, unit), file)
    }

    #[test]
    fn what_was_read_does_not_change() {
        let (memory, file) = memory(4096);
        let at = PhysicalAddress(0x8000_1008);
        file.write_all_at(&7u64.to_le_bytes(), (4 << 20) + 0x1008)
            .unwrap();
        assert_eq!(memory.words(at, 1), Some(&[7][..]));
        file.write_all_at(&8u64.to_le_bytes(), (4 << 20) + 0x1008)
            .unwrap();
        assert_eq!(memory.words(at, 1), Some(&[7][..]));
        let copy = memory.into_memory().unwrap();
        assert_eq!(copy.words(at, 1), Some(&[7][..]));
        assert_eq!(copy.words(PhysicalAddress(0x4000_0000), 1), None);
        assert!(copy.is_ram(PhysicalAddress(0x4000_0000)));
    }

    #[test]
    fn a_table_is_in_one_piece_and_nothing_lies_outside() {
        let (memory, file) = memory(64 << 10);
        assert_eq!(
            memory
                .words(PhysicalAddress(0x4001_0000), 8192)
                .map(<[u64]>::len),
            Some(8192)
        );
        assert_eq!(memory.words(PhysicalAddress(0x4001_0008), 8192), None);
        assert_eq!(memory.words(PhysicalAddress(0x4001_0004), 1), None);
        assert_eq!(memory.words(PhysicalAddress(0x4040_0000), 1), None);
        assert_eq!(memory.words(PhysicalAddress(!7), 1), None);
        // A truncated file is memory that cannot be read; there is no signal.
        file.set_len(4 << 20).unwrap();
        assert_eq!(memory.words(PhysicalAddress(0x8000_0000), 1), None);
    }
}
