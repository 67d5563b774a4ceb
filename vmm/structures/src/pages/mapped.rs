// SPDX-License-Identifier: GPL-2.0-only
//! Which page frames of all memory are mapped: one bit each.

use std::ops::Range;

/// More page frames than are looked through: 256 GiB of 4K pages.
const MOST: u64 = 1 << 26;

/// Page frames, each of which is in it or not.
#[derive(Clone, Debug)]
pub struct Frames {
    first: u64,
    count: u64,
    bits: Vec<u64>,
}

impl Frames {
    /// Room for all of these, and none of them in it; `None` where they are too many.
    #[must_use]
    pub fn within(spans: &[Range<u64>]) -> Option<Frames> {
        let first = spans.iter().map(|span| span.start).min()?;
        let end = spans.iter().map(|span| span.end).max()?;
        let count = end.saturating_sub(first);
        (count <= MOST).then(|| Frames {
            first,
            count,
            bits: vec![0; count.div_ceil(64) as usize],
        })
    }

    /// Adds so many from `pfn` on, as far as there is room for them.
    pub fn add(&mut self, pfn: u64, count: u64) {
        let Range { start, end } = self.clip(pfn, count);
        let mut at = start;
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            self.bits[(at / 64) as usize] |= u64::MAX >> (64 - bits) << (at % 64);
            at += bits;
        }
    }

    /// How many of the page frames from `pfn` on are in it before the first that is not.
    #[must_use]
    pub fn run(&self, pfn: u64) -> u64 {
        let Range { start, end } = self.clip(pfn, u64::MAX);
        let mut at = start;
        while at < end {
            let clear = !(self.bits[(at / 64) as usize] >> (at % 64));
            let set = u64::from(clear.trailing_zeros()).min(64 - at % 64);
            at += set;
            if at % 64 != 0 || set == 0 {
                break;
            }
        }
        at.min(end) - start
    }

    /// Returns whether any of these is in it.
    #[must_use]
    pub fn any(&self, pfn: u64, count: u64) -> bool {
        let Range { start, end } = self.clip(pfn, count);
        (start..end).any(|at| self.bits[(at / 64) as usize] >> (at % 64) & 1 == 1)
    }

    /// The places of their bits.
    fn clip(&self, pfn: u64, count: u64) -> Range<u64> {
        let end = pfn.saturating_add(count).saturating_sub(self.first);
        let end = end.min(self.count);
        pfn.saturating_sub(self.first).min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::Frames;

    #[test]
    fn what_was_added_and_nothing_else() {
        for (pfn, count) in [
            (100, 1),
            (100, 64),
            (130, 300),
            (163, 1),
            (90, 20),
            (400, 900),
        ] {
            let mut frames = Frames::within(&[300..500, 100..228]).unwrap();
            frames.add(pfn, count);
            for at in 100..500 {
                let inside = (pfn..pfn + count).contains(&at);
                assert_eq!(frames.any(at, 1), inside, "{at} of {count} from {pfn}");
                let run = if inside {
                    (pfn + count).min(500) - at
                } else {
                    0
                };
                assert_eq!(frames.run(at), run, "{at} of {count} from {pfn}");
            }
            assert!(!frames.any(0, 100) && !frames.any(500, u64::MAX));
            assert_eq!((frames.run(0), frames.run(500)), (frames.run(100), 0));
        }
        assert!(
            Frames::within(&[0..1, 1 << 40..1 << 41]).is_none() && Frames::within(&[]).is_none()
        );
    }
}
