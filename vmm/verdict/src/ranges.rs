// SPDX-License-Identifier: GPL-2.0-only
//! Ranges of which something is known, so that each is looked up in the time of its logarithm.

use std::ops::Range;

/// Ranges that neither overlap nor touch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// The union of `ranges`; empty ones do not count.
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Ranges {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|r| r.start < r.end).collect();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut union: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match union.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => union.push(range),
            }
        }
        Ranges(union)
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + use<'_> {
        self.0.iter().cloned()
    }

    /// Those that have an address of `range`.
    pub fn touching(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'_> {
        let (start, end) = (range.start, range.end);
        let first = self.0.partition_point(|known| known.end <= start);
        self.0[first..]
            .iter()
            .take_while(move |known| known.start < end)
            .cloned()
    }

    /// Returns whether all of `range` lies in one of them.
    pub fn contain(&self, range: &Range<u64>) -> bool {
        let behind = self.0.partition_point(|known| known.start <= range.start);
        behind > 0 && range.end <= self.0[behind - 1].end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_of_ranges() {
        let ranges = Ranges::new([7..9, 1..3, 3..5, 20..20, 8..12, 2..4, 30..31]);
        assert_eq!(ranges.0, [1..5, 7..12, 30..31]);
        for (range, inside) in [
            (1..5, true),
            (2..4, true),
            (0..2, false),
            (4..8, false),
            (11..12, true),
            (11..13, false),
            (40..41, false),
        ] {
            assert_eq!(ranges.contain(&range), inside, "{range:?}");
        }
        assert!(!Ranges::default().contain(&(0..1)));
        let touching = |range| ranges.touching(&range).map(|r| r.start).collect::<Vec<_>>();
        assert_eq!(touching(4..8), [1, 7]);
        assert_eq!(touching(5..7), [0; 0]);
        assert_eq!(touching(11..31), [7, 30]);
    }
}
