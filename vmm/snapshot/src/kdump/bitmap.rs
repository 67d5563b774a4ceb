// SPDX-License-Identifier: GPL-2.0-only
//! A bit for each page of a dump.

use std::ops::Range;

/// Number of bytes that are counted at once.
const CHUNK: usize = 64;

/// Bits, with the number of set bits before each.
#[derive(Debug)]
pub(super) struct Bitmap {
    bytes: Vec<u8>,
    /// Bits that are set before each chunk.
    before: Vec<u64>,
}

impl Bitmap {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let mut before = Vec::with_capacity(bytes.len().div_ceil(CHUNK));
        let mut sum = 0;
        for chunk in bytes.chunks(CHUNK) {
            before.push(sum);
            sum += count(chunk);
        }
        Self { bytes, before }
    }

    pub(super) fn holds(&self, bit: u64) -> bool {
        let byte = usize::try_from(bit / 8)
            .ok()
            .and_then(|at| self.bytes.get(at));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }

    /// Returns how many bits before this one are set; `None` where this one is not.
    pub(super) fn rank(&self, bit: u64) -> Option<u64> {
        let at = (bit / 8) as usize;
        let chunk = at / CHUNK;
        self.holds(bit).then(|| {
            let bytes = count(&self.bytes[chunk * CHUNK..at]);
            let below = self.bytes[at] & ((1u16 << (bit % 8)) - 1) as u8;
            self.before[chunk] + bytes + u64::from(below.count_ones())
        })
    }

    /// Returns the first run of bits that are set, from `bit` on.
    pub(super) fn run(&self, bit: u64) -> Option<Range<u64>> {
        let all = self.bytes.len() as u64 * 8;
        let start = self.next(bit, all, true)?;
        let end = self.next(start, all, false).unwrap_or(all);
        Some(start..end)
    }

    /// Returns the first bit from `bit` on that is set, or is not.
    fn next(&self, mut bit: u64, all: u64, set: bool) -> Option<u64> {
        let none = if set { 0 } else { 0xff };
        while bit < all {
            if bit % 8 == 0 && self.bytes[(bit / 8) as usize] == none {
                bit += 8;
            } else if self.holds(bit) == set {
                return Some(bit);
            } else {
                bit += 1;
            }
        }
        None
    }

    /// Returns whether all of its bits are set in another one too.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        let mut pairs = self.bytes.iter().zip(&other.bytes);
        pairs.all(|(one, other)| one & !other == 0)
    }
}

fn count(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(byte.count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_and_run() {
        let mut bytes = vec![0; 200];
        (bytes[0], bytes[1], bytes[70], bytes[199]) = (0b1110_0000, 0b1, 0b101, 0x80);
        let bits = Bitmap::new(bytes);
        assert_eq!(
            [5, 8, 560, 562, 1599].map(|bit| bits.rank(bit)),
            [0, 3, 4, 5, 6].map(Some)
        );
        assert_eq!(
            [0, 9, 561, 1600, u64::MAX].map(|bit| bits.rank(bit)),
            [None; 5]
        );
        assert_eq!(bits.run(0), Some(5..9));
        assert_eq!(bits.run(6), Some(6..9));
        assert_eq!(bits.run(9), Some(560..561));
        assert_eq!(bits.run(563), Some(1599..1600));
        assert_eq!(bits.run(1600), None);
    }
}
