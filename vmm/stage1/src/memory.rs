//! The one thing the walker asks of whoever holds the guest's memory.

use crate::PhysicalAddress;

/// Guest physical memory that does not change while it is borrowed.
///
/// Implemented by a paused machine and by a snapshot file alike; nothing downstream can tell
/// which one it reads.
pub trait PhysMemory {
    /// The `count` 64-bit little-endian words that start at `address` (8-byte aligned).
    ///
    /// `None` where any byte of them is not guest RAM (or, in a snapshot, was not saved), or
    /// where they do not lie in one region.
    fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]>;

    /// The same, of what is looked at in passing: a copy that is made of what was read need not have it.
    fn passing(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        self.words(address, count)
    }

    /// Whether `address` lies in memory that the machine has, saved or not.
    ///
    /// A snapshot may hold fewer bytes than the machine had; a table that lies outside RAM is a
    /// finding, one that merely was not saved is *not judged*.
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
