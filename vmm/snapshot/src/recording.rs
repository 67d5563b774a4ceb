// SPDX-License-Identifier: GPL-2.0-only
//! Memory that notes which pages of it were read.

use std::cell::RefCell;

use stage1::{PhysMemory, PhysicalAddress};

use crate::{Range, RangeSet};

/// Passes reads on to `memory` and notes their pages.
///
/// So a snapshot is saved by asking the question that it shall answer later: walk through the
/// recording, then give [`Recording::into_ranges`] to [`crate::write_core`].
#[derive(Debug)]
pub struct Recording<'a, M: ?Sized> {
    memory: &'a M,
    read: RefCell<RangeSet>,
}

impl<'a, M: PhysMemory + ?Sized> Recording<'a, M> {
    /// Creates a recording of reads from `memory`, which is empty at first.
    pub fn new(memory: &'a M) -> Self {
        Self {
            memory,
            read: RefCell::default(),
        }
    }

    /// Returns the pages that were read.
    pub fn into_ranges(self) -> RangeSet {
        self.read.into_inner()
    }
}

impl<M: PhysMemory + ?Sized> PhysMemory for Recording<'_, M> {
    fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        let words = self.memory.words(address, count)?;
        if let Some(range) = Range::new(address, count as u64 * 8) {
            self.read.borrow_mut().insert(range);
        }
        Some(words)
    }

    fn passing(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        self.memory.passing(address, count)
    }

    fn is_ram(&self, address: PhysicalAddress) -> bool {
        self.memory.is_ram(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, Region};

    #[test]
    fn only_what_was_there_and_was_read_is_noted() {
        let base = PhysicalAddress(0x4000_0000);
        let ram = Range::new(base, 0x10000).unwrap();
        let memory = Memory::new(vec![Region::owned(base, vec![0; 0x8000 / 8])], vec![ram]);
        let memory = memory.unwrap();
        let recording = Recording::new(&memory);
        assert!(recording
            .words(PhysicalAddress(0x4000_1ff8), 2)
            .is_none_or(|w| w.len() == 2));
        assert!(recording.words(PhysicalAddress(0x4000_9000), 1).is_none());
        assert!(recording.is_ram(PhysicalAddress(0x4000_9000)));
        assert!(recording.passing(PhysicalAddress(0x4000_4000), 1).is_some());
        let read: Vec<Range> = recording.into_ranges().iter().collect();
        assert_eq!(
            read,
            [Range::new(PhysicalAddress(0x4000_1000), 0x2000).unwrap()]
        );
    }
}
