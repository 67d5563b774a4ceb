// SPDX-License-Identifier: GPL-2.0-only
//! The pages that hold tables: a bit each, read at every store.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each page of 4K of the guest's memory.
pub struct Watched {
    base: u64,
    bits: Vec<AtomicU64>,
}

impl Watched {
    pub fn new(base: u64, size: u64) -> Self {
        let words = (size >> 12).div_ceil(64) as usize;
        let bits = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { base, bits }
    }

    fn place(&self, address: u64) -> Option<(&AtomicU64, u64)> {
        let page = address.checked_sub(self.base)? >> 12;
        let word = self.bits.get((page / 64) as usize)?;
        Some((word, 1 << (page % 64)))
    }

    pub fn has(&self, address: u64) -> bool {
        self.place(address)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    pub fn set(&self, address: u64, on: bool) {
        if let Some((word, bit)) = self.place(address) {
            if on {
                word.fetch_or(bit, Ordering::Relaxed);
            } else {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }
}
