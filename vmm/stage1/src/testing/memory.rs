// SPDX-License-Identifier: GPL-2.0-only
//! Physical memory with holes.

use crate::{PhysMemory, PhysicalAddress};

/// Regions of physical memory, some of which were not saved.
#[derive(Clone, Debug, Default)]
pub struct SparseMemory {
    /// Base address and words.
    saved: Vec<(u64, Vec<u64>)>,
    /// Base address and length in bytes.
    unsaved: Vec<(u64, u64)>,
}

impl SparseMemory {
    /// Creates a memory without regions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a region that holds `words` from `base` on.
    pub fn add(&mut self, base: u64, words: Vec<u64>) {
        self.saved.push((base, words));
    }

    /// Adds RAM whose contents are absent, as of a snapshot that left it out.
    pub fn add_unsaved(&mut self, base: u64, bytes: u64) {
        self.unsaved.push((base, bytes));
    }

    /// Adds all regions of `other`.
    pub fn merge(&mut self, other: Self) {
        self.saved.extend(other.saved);
        self.unsaved.extend(other.unsaved);
    }

    /// Returns the word at `address`.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        self.words(PhysicalAddress(address), 1)
            .map(|words| words[0])
    }

    /// Writes the word at `address`; returns false if there is none.
    pub fn poke(&mut self, address: u64, word: u64) -> bool {
        for (base, words) in &mut self.saved {
            let Some(offset) = address.checked_sub(*base) else {
                continue;
            };
            if let Some(place) = words.get_mut(usize::try_from(offset / 8).unwrap_or(usize::MAX)) {
                *place = word;
                return true;
            }
        }
        false
    }

    /// Drops the region that begins at `base`.
    pub fn forget(&mut self, base: u64) {
        self.saved.retain(|(from, _)| *from != base);
    }

    /// Appends `count` words of 0 to the first region.
    pub(super) fn grow(&mut self, count: usize) {
        if let Some((_, words)) = self.saved.first_mut() {
            words.resize(words.len() + count, 0);
        }
    }
}

impl PhysMemory for SparseMemory {
    fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        self.saved.iter().find_map(|(base, words)| {
            let offset = address.0.checked_sub(*base)?;
            let start = usize::try_from(offset / 8)
                .ok()
                .filter(|_| offset % 8 == 0)?;
            words.get(start..start.checked_add(count)?)
        })
    }

    fn is_ram(&self, address: PhysicalAddress) -> bool {
        let inside = |base: u64, bytes: u64| address.0.checked_sub(base).is_some_and(|o| o < bytes);
        self.saved
            .iter()
            .any(|(base, words)| inside(*base, words.len() as u64 * 8))
            || self
                .unsaved
                .iter()
                .any(|(base, bytes)| inside(*base, *bytes))
    }
}
