// SPDX-License-Identifier: GPL-2.0-only
//! The interface by which the walker reads guest memory.

use crate::PhysicalAddress;

/// Guest physical memory that does not change while it is borrowed.
///
/// A paused machine and a snapshot file both implement it. The walker treats them alike.
pub trait PhysMemory {
    /// Returns the `count` 64-bit little-endian words that start at `address` (8-byte aligned).
    ///
    /// Returns `None` if any byte of them is not guest RAM (or was not saved in the snapshot), or if they span two
    /// regions.
    fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]>;

    /// Returns the same words, read in passing: a copy that is made of the words read need not contain them.
    fn passing(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        self.words(address, count)
    }

    /// Returns whether `address` lies in the machine's memory, saved or not.
    ///
    /// A snapshot may hold fewer bytes than the machine had. A table outside RAM is a finding; a table that was not
    /// saved is *not judged*.
    fn is_ram(&self, address: PhysicalAddress) -> bool;
}

impl<M: PhysMemory + ?Sized> PhysMemory for &M {
    fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        (**self).words(address, count)
    }

    fn passing(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        (**self).passing(address, count)
    }

    fn is_ram(&self, address: PhysicalAddress) -> bool {
        (**self).is_ram(address)
    }
}
