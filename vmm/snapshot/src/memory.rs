// SPDX-License-Identifier: GPL-2.0-only
//! Guest physical memory: the readable part, and all that the machine has.

use std::io;
use std::sync::Arc;

use stage1::{PhysMemory, PhysicalAddress};

use crate::fetched::Fetched;
use crate::{Mapping, Ram, Range, RangeSet, PAGE};

/// Memory that a snapshot can read, as regions of guest physical addresses.
///
/// A machine with several NUMA nodes has several regions, and a saved snapshot has one for each run of saved pages. The
/// type is not `Clone`: the words of a live region may be read only while the machine is paused.
#[derive(Debug)]
pub struct Memory {
    /// Sorted by address; none overlap. Shared only if all of them are [`Region::shared`].
    regions: Arc<Vec<Region>>,
    /// The machine's RAM, saved or not. Sorted and merged, so two NUMA nodes that touch are one range.
    ram: Vec<Range>,
    /// True if pages were left out by a program that keeps the kernel's own.
    pages_left_out: bool,
}

/// A run of guest physical memory that can be read.
#[derive(Debug)]
pub struct Region {
    range: Range,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    /// From byte `offset` of a mapping that is not written while the region lives.
    Mapped {
        mapping: Arc<Mapping>,
        offset: usize,
    },
    Owned(Vec<u64>),
    /// Words that several copies have in common.
    Shared(Arc<[u64]>),
    /// Pages that are read on demand.
    Fetched(Fetched),
}

/// The reason why regions make no memory, or a write did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// A region or RAM range that is not made of whole pages.
    #[error("memory {0} is not made of whole pages of 4096 bytes")]
    NotPages(Range),
    /// Two regions that share addresses.
    #[error("memory {0} and memory {1} overlap")]
    Overlap(Range, Range),
    /// A region for which the machine has no RAM.
    #[error("memory {0} lies outside of the machine's RAM")]
    OutsideRam(Range),
    /// A write to memory that does not exist.
    #[error("{bytes} bytes at {address} do not lie in one region of readable memory")]
    NotMapped {
        /// Where the write starts.
        address: PhysicalAddress,
        /// Its length.
        bytes: usize,
    },
    /// A write to a core file.
    #[error("memory at {0} comes from a file and cannot be written")]
    ReadOnly(PhysicalAddress),
}

impl Region {
    /// Creates a region of words that the snapshot owns.
    ///
    /// # Panics
    /// If it would reach beyond the address space.
    pub fn owned(base: PhysicalAddress, words: Vec<u64>) -> Self {
        let range = Range::new(base, words.len() as u64 * 8).expect("a region that fits");
        Self {
            range,
            backing: Backing::Owned(words),
        }
    }

    /// Creates a region of words that other copies of the same memory also hold. They are never changed in place.
    ///
    /// # Panics
    /// If it would reach beyond the address space.
    pub fn shared(base: PhysicalAddress, words: Arc<[u64]>) -> Self {
        let range = Range::new(base, words.len() as u64 * 8).expect("a region that fits");
        Self {
            range,
            backing: Backing::Shared(words),
        }
    }

    /// Creates a region that is read in place from byte `offset` of `mapping`.
    ///
    /// # Panics
    /// If it does not lie in the mapping, or is not word aligned there.
    ///
    /// # Safety
    /// While the region lives, only [`Memory::write`] may write these bytes of the file, in any process, and no task
    /// may truncate the file. A machine keeps this promise: it stops all its CPUs and devices, and ends the region
    /// before it resumes them.
    pub unsafe fn live(range: Range, mapping: Arc<Mapping>, offset: usize) -> Self {
        assert!(
            offset % 8 == 0
                && (offset as u64)
                    .checked_add(range.bytes)
                    .is_some_and(|end| end <= mapping.bytes() as u64),
            "memory {range} does not lie at {offset} of a mapping of {} bytes",
            mapping.bytes()
        );
        Self {
            range,
            backing: Backing::Mapped { mapping, offset },
        }
    }

    /// Creates a region whose pages are read on demand.
    pub(crate) fn fetched(pages: Fetched) -> Self {
        Self {
            range: pages.range(),
            backing: Backing::Fetched(pages),
        }
    }

    /// Returns the guest physical addresses of the region.
    pub fn range(&self) -> Range {
        self.range
    }

    /// Returns the same words at the same place, if they are shared.
    fn again(&self) -> Option<Self> {
        match &self.backing {
            Backing::Shared(words) => Some(Self::shared(self.range.base, words.clone())),
            Backing::Owned(_) | Backing::Mapped { .. } | Backing::Fetched(_) => None,
        }
    }

    /// Replaces the words of a shared region by as many others. Other owners keep the old ones.
    pub(crate) fn overwrite(&mut self, now: &[u64]) {
        if let Backing::Shared(words) = &mut self.backing {
            match Arc::get_mut(words) {
                Some(words) => words.copy_from_slice(now),
                None => *words = now.into(),
            }
        }
    }

    /// Returns the words at `offset` bytes into the region, if they can be read. The caller has checked that they are
    /// in it.
    fn words(&self, offset: u64, count: usize) -> Option<&[u64]> {
        Some(match &self.backing {
            Backing::Owned(words) => &words[(offset / 8) as usize..][..count],
            Backing::Shared(words) => &words[(offset / 8) as usize..][..count],
            Backing::Fetched(pages) => return pages.words(offset, count),
            Backing::Mapped {
                mapping,
                offset: start,
            } => {
                // SAFETY: the caller of `live` promised that no task writes there while the region lives, and the
                // slice borrows the region. `Memory::write` needs the memory exclusively, so no slice is alive then.
                unsafe { mapping.words(start + offset as usize, count) }
            }
        })
    }

    /// Returns the first word of a page at `offset` bytes into the region, which is not brought to stay.
    fn peek(&self, offset: u64) -> Option<u64> {
        let Backing::Fetched(pages) = &self.backing else {
            return self.words(offset, 1).map(|words| words[0]);
        };
        let mut word = [0; 8];
        let address = PhysicalAddress(self.range.base.0 + offset);
        pages
            .peek(address, &mut word)
            .then(|| u64::from_le_bytes(word))
    }
}

impl Memory {
    /// Creates the memory of `regions` in a machine whose RAM is `ram`, in any order.
    pub fn new(mut regions: Vec<Region>, mut ram: Vec<Range>) -> Result<Self, MemoryError> {
        regions.sort_by_key(|region| region.range);
        ram.sort();
        let ranges: Vec<Range> = regions.iter().map(Region::range).collect();
        for list in [&ranges, &ram] {
            if let Some(odd) = list.iter().find(|range| !range.is_page_aligned()) {
                return Err(MemoryError::NotPages(*odd));
            }
            if let Some(pair) = list.windows(2).find(|pair| pair[0].end() > pair[1].base.0) {
                return Err(MemoryError::Overlap(pair[0], pair[1]));
            }
        }
        let ram = ram.into_iter().collect::<RangeSet>().iter().collect();
        let regions = Arc::new(regions);
        let memory = Self {
            regions,
            ram,
            pages_left_out: false,
        };
        match ranges
            .iter()
            .find(|range| !memory.ram.iter().any(|ram| ram.covers(range)))
        {
            Some(range) => Err(MemoryError::OutsideRam(*range)),
            None => Ok(memory),
        }
    }

    /// Creates a memory of shared regions in rising order, which lie in the RAM of `like`.
    pub(crate) fn part_of(like: &Memory, regions: Arc<Vec<Region>>) -> Self {
        Self {
            regions,
            ram: like.ram.clone(),
            pages_left_out: like.pages_left_out,
        }
    }

    /// Sets whether the writer has left pages out, as makedumpfile does, which keeps the kernel's own pages.
    pub(crate) fn with_pages_left_out(self, pages_left_out: bool) -> Self {
        Self {
            pages_left_out,
            ..self
        }
    }

    /// Returns whether pages were left out by a program that keeps the kernel's own.
    pub fn has_pages_left_out(&self) -> bool {
        self.pages_left_out
    }

    /// Returns the pages whose first word is `word`, in rising order: at most `most`. The pages read for it are not
    /// kept.
    pub fn pages_that_begin_with(&self, word: u64, most: usize) -> Vec<PhysicalAddress> {
        let mut found = Vec::new();
        for region in self.regions.iter() {
            let mut at = region.range.base.0;
            while found.len() < most {
                let rest = region.range.end().checked_sub(at).filter(|rest| *rest > 0);
                let rest = rest.and_then(|rest| Range::new(PhysicalAddress(at), rest));
                // A page in a hole of the file begins with zeros.
                let Some(data) = rest.and_then(|rest| self.data(rest)) else {
                    break;
                };
                let pages = (data.base.0..data.end()).step_by(PAGE as usize);
                let begins = |page: &u64| region.peek(page - region.range.base.0) == Some(word);
                found.extend(
                    pages
                        .filter(begins)
                        .map(PhysicalAddress)
                        .take(most - found.len()),
                );
                at = data.end();
            }
        }
        found
    }

    /// Returns what can be read, in rising order.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Returns the machine's RAM, in rising order and merged, readable or not.
    pub fn ram(&self) -> &[Range] {
        &self.ram
    }

    /// Writes `data` to guest memory: how a test corrupts a table from outside.
    pub fn write(&mut self, address: PhysicalAddress, data: &[u8]) -> Result<(), MemoryError> {
        let (index, offset) =
            self.find(address, data.len() as u64)
                .ok_or(MemoryError::NotMapped {
                    address,
                    bytes: data.len(),
                })?;
        match &mut own(&mut self.regions)[index].backing {
            Backing::Owned(words) => patch(words, offset, data),
            // The others keep theirs.
            Backing::Shared(words) => patch(Arc::make_mut(words), offset, data),
            Backing::Fetched(_) => return Err(MemoryError::ReadOnly(address)),
            Backing::Mapped { mapping, .. } if !mapping.is_writable() => {
                return Err(MemoryError::ReadOnly(address));
            }
            Backing::Mapped {
                mapping,
                offset: start,
            } => {
                // SAFETY: `&mut self` means that no slice of this memory is alive, and the caller of `Region::live`
                // promised that no other task touches it.
                unsafe { mapping.write(*start + offset as usize, data) }
            }
        }
        Ok(())
    }

    /// Returns the region that holds all of `bytes` bytes from `address`, and their offset in it.
    fn find(&self, address: PhysicalAddress, bytes: u64) -> Option<(usize, u64)> {
        let after = self
            .regions
            .partition_point(|region| region.range.base <= address);
        let index = after.checked_sub(1)?;
        let range = self.regions[index].range;
        let offset = address.0 - range.base.0;
        (offset.checked_add(bytes)? <= range.bytes).then_some((index, offset))
    }
}

/// Returns regions that can be changed: the list is copied if it has another owner.
pub(crate) fn own(regions: &mut Arc<Vec<Region>>) -> &mut Vec<Region> {
    if Arc::get_mut(regions).is_none() {
        // If the list has another owner, each region in it is shared.
        *regions = Arc::new(regions.iter().filter_map(Region::again).collect());
    }
    Arc::get_mut(regions).expect("nobody else has had it yet")
}

/// Writes bytes from byte `offset` of `words` on.
fn patch(words: &mut [u64], offset: u64, data: &[u8]) {
    for (at, byte) in (offset..).zip(data) {
        let word = &mut words[(at / 8) as usize];
        let mut bytes = word.to_le_bytes();
        bytes[(at % 8) as usize] = *byte;
        *word = u64::from_le_bytes(bytes);
    }
}

impl PhysMemory for Memory {
    fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        if address.0 % 8 != 0 {
            return None;
        }
        let (index, offset) = self.find(address, (count as u64).checked_mul(8)?)?;
        self.regions[index].words(offset, count)
    }

    fn is_ram(&self, address: PhysicalAddress) -> bool {
        self.ram.iter().any(|range| range.contains(address))
    }
}

/// All of its regions, which of a live machine are all of its RAM.
impl Ram for Memory {
    fn ranges(&self) -> Vec<Range> {
        self.regions.iter().map(Region::range).collect()
    }

    fn data(&self, range: Range) -> Option<Range> {
        let (index, at) = self.find(range.base, range.bytes)?;
        let (mapping, offset) = match &self.regions[index].backing {
            Backing::Mapped { mapping, offset } => (mapping, offset),
            Backing::Fetched(pages) => return pages.data(range),
            Backing::Owned(_) | Backing::Shared(_) => return Some(range),
        };
        let offset = *offset as u64;
        let (start, bytes) = mapping.data(offset + at, range.bytes)?;
        // A hole consists of pages of the host, which may be larger than ours.
        let place = |in_file: u64| range.base.0 + (in_file - offset - at);
        let base = place(start) & !(PAGE - 1);
        let end = place(start + bytes).next_multiple_of(PAGE).min(range.end());
        Range::new(PhysicalAddress(base), end - base)
    }

    fn read(&self, address: PhysicalAddress, buffer: &mut [u8]) -> io::Result<()> {
        let words = self.words(address, buffer.len() / 8);
        let words = words.ok_or(io::ErrorKind::UnexpectedEof)?;
        for (to, word) in buffer.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }
}

const _: () = assert!(PAGE % 8 == 0, "a page holds whole words");

#[cfg(test)]
mod tests;
