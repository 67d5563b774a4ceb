// SPDX-License-Identifier: GPL-2.0-only
//! Ranges of guest physical addresses, and sets of pages.

use std::collections::BTreeMap;
use std::fmt;

use stage1::PhysicalAddress;

/// The unit of a snapshot, in bytes: the smallest granule, of which all others are multiples.
pub const PAGE: u64 = 4096;

/// A range of guest physical addresses, never past the end of the 64-bit space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// The first address.
    pub base: PhysicalAddress,
    /// The length in bytes.
    pub bytes: u64,
}

impl Range {
    /// Returns the range of `bytes` bytes from `base`; `None` where it would wrap around.
    pub fn new(base: PhysicalAddress, bytes: u64) -> Option<Self> {
        base.0.checked_add(bytes)?;
        Some(Self { base, bytes })
    }

    /// Returns the first address behind the range.
    pub fn end(&self) -> u64 {
        self.base.0 + self.bytes
    }

    /// Returns whether `address` lies in the range.
    pub fn contains(&self, address: PhysicalAddress) -> bool {
        address.0 >= self.base.0 && address.0 < self.end()
    }

    /// Returns whether all of `other` lies in the range.
    pub fn covers(&self, other: &Range) -> bool {
        other.base.0 >= self.base.0 && other.end() <= self.end()
    }

    /// Returns whether base and length are multiples of [`PAGE`].
    pub fn is_page_aligned(&self) -> bool {
        self.base.0 % PAGE == 0 && self.bytes % PAGE == 0
    }
}

/// Writes `first..end`, in hex.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.base, PhysicalAddress(self.end()))
    }
}

/// A set of pages of [`PAGE`] bytes, kept sorted and merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// First address to first address behind; no two touch.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the pages whose bit is set. Bit 0 of the first word is the page of `page` bytes at `base`, as KVM and
    /// others log writes. Both are multiples of [`PAGE`]. Bits beyond the 64-bit address space are left out.
    pub fn from_bitmap(base: PhysicalAddress, page: u64, bitmap: &[u64]) -> Self {
        let address = |bit: u64| base.0.checked_add(bit.checked_mul(page)?);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        // Most words are 0, and set bits are in runs.
        for (index, &word) in bitmap.iter().enumerate().filter(|(_, word)| **word != 0) {
            let (mut rest, mut at) = (word, index as u64 * 64);
            while rest != 0 {
                let gap = rest.trailing_zeros();
                let run = (rest >> gap).trailing_ones();
                rest = rest.checked_shr(gap + run).unwrap_or(0);
                let first = at + u64::from(gap);
                at = first + u64::from(run);
                match (runs.last_mut(), address(first).zip(address(at))) {
                    (Some(last), Some((start, end))) if last.1 == start => last.1 = end,
                    (_, Some(run)) => runs.push(run),
                    (_, None) => {}
                }
            }
        }
        let ranges = runs.into_iter().collect();
        Self { ranges }
    }

    /// Adds every page that `range` touches.
    ///
    /// The last page of the 64-bit space cannot be in a set, since its end has no address. No machine has memory there.
    pub fn insert(&mut self, range: Range) {
        if range.bytes == 0 {
            return;
        }
        let mut first = range.base.0 - range.base.0 % PAGE;
        let Some(mut end) = range.end().checked_next_multiple_of(PAGE) else {
            return;
        };
        // At most one range begins before `first` and reaches it.
        if let Some((&before, &before_end)) = self.ranges.range(..=first).next_back() {
            if before_end >= end {
                return;
            }
            if before_end >= first {
                first = before;
            }
        }
        // All that begin inside or right behind are swallowed; the last may reach further.
        while let Some((&inner, &inner_end)) = self.ranges.range(first..=end).next() {
            self.ranges.remove(&inner);
            end = end.max(inner_end);
        }
        self.ranges.insert(first, end);
    }

    /// Returns whether any byte of `range` lies in a page of the set.
    pub fn touches(&self, range: &Range) -> bool {
        let before = self.ranges.range(..range.end()).next_back();
        range.bytes > 0 && before.is_some_and(|(_, &end)| end > range.base.0)
    }

    /// Places of those of `items` that have a byte in a page of the set. Their ranges rise and do not overlap.
    ///
    /// Takes as many steps as the shorter of the two has members, and finds its way in the longer.
    pub(crate) fn touched<T>(&self, items: &[T], range: impl Fn(&T) -> Range) -> Vec<usize> {
        if items.len() < self.ranges.len() {
            let touches = |at: &usize| self.touches(&range(&items[*at]));
            return (0..items.len()).filter(touches).collect();
        }
        let mut found = Vec::new();
        let mut from = 0;
        for set in self.iter() {
            from += items[from..].partition_point(|item| range(item).end() <= set.base.0);
            let reaches = |item: &&T| range(item).base.0 < set.end();
            let to = from + items[from..].iter().take_while(reaches).count();
            found.extend(from..to);
            // The last may reach into the next range as well, and counts once.
            from = to;
        }
        found
    }

    /// Returns the ranges in rising order; no two of them touch.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.ranges.iter().map(|(&first, &end)| Range {
            base: PhysicalAddress(first),
            bytes: end - first,
        })
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the bytes of all ranges together.
    pub fn bytes(&self) -> u64 {
        self.iter().map(|range| range.bytes).sum()
    }
}

impl Extend<Range> for RangeSet {
    fn extend<T: IntoIterator<Item = Range>>(&mut self, ranges: T) {
        for range in ranges {
            self.insert(range);
        }
    }
}

impl FromIterator<Range> for RangeSet {
    fn from_iter<T: IntoIterator<Item = Range>>(ranges: T) -> Self {
        let mut set = Self::new();
        set.extend(ranges);
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn range(base: u64, bytes: u64) -> Range {
        Range::new(PhysicalAddress(base), bytes).unwrap()
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let set: RangeSet = [range(0x3000, 8), range(0x1000, 0x1000), range(0x2ff8, 8)]
            .into_iter()
            .collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [range(0x1000, 0x3000)]);
    }

    #[test]
    fn the_end_of_the_address_space_does_not_overflow() {
        assert_eq!(Range::new(PhysicalAddress(u64::MAX), 2), None);
        let mut set = RangeSet::new();
        set.insert(range(u64::MAX - 8, 8));
        assert!(set.is_empty());
    }

    #[test]
    fn a_byte_of_a_page_in_the_set_is_enough() {
        let set: RangeSet = [range(0x3000, 8), range(0x1000, 0x1000)]
            .into_iter()
            .collect();
        for (base, bytes, expected) in [
            (0, 0x1000, false),
            (0, 0x1001, true),
            (0x1ff8, 8, true),
            (0x2000, 0x1000, false),
            (0x3ff8, 0x2000, true),
            (0x3008, 0, false),
            (0x4000, 8, false),
            (0, u64::MAX, true),
        ] {
            assert_eq!(set.touches(&range(base, bytes)), expected, "{base:#x}");
        }
    }

    #[test]
    fn a_bitmap_may_be_all_ones() {
        let set = RangeSet::from_bitmap(PhysicalAddress(0x4000_0000), 0x1_0000, &[!0, !0, 1]);
        let all: Vec<Range> = set.iter().collect();
        assert_eq!(all, [range(0x4000_0000, 129 * 0x1_0000)]);
        assert!(RangeSet::from_bitmap(PhysicalAddress(0), 1 << 63, &[0, 1]).is_empty());
    }

    proptest! {
        #[test]
        fn a_bitmap_is_read_bit_by_bit(bitmap in prop::collection::vec(any::<u64>(), 0..4)) {
            let base = 0x4000_0000;
            let bits = (0..bitmap.len() as u64 * 64)
                .filter(|bit| bitmap[(bit / 64) as usize] >> (bit % 64) & 1 != 0);
            let expected: RangeSet = bits.map(|bit| range(base + bit * PAGE, PAGE)).collect();
            prop_assert_eq!(RangeSet::from_bitmap(PhysicalAddress(base), PAGE, &bitmap), expected);
        }

        #[test]
        fn what_a_set_touches_is_found_from_either_side(
            set in prop::collection::vec((0u64..64 * PAGE, 1u64..3 * PAGE), 0..20),
            cuts in prop::collection::btree_set(0u64..64 * PAGE, 0..40),
        ) {
            let set: RangeSet = set.into_iter().map(|(base, bytes)| range(base, bytes)).collect();
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let items: Vec<Range> = cuts
                .chunks_exact(2)
                .map(|pair| range(pair[0], pair[1] - pair[0]))
                .collect();
            let expected: Vec<usize> = (0..items.len()).filter(|at| set.touches(&items[*at])).collect();
            prop_assert_eq!(set.touched(&items, |item| *item), expected);
        }

        #[test]
        fn a_set_holds_just_the_pages_that_were_touched(
            inputs in prop::collection::vec((0u64..64 * PAGE, 0u64..6 * PAGE), 0..40)
        ) {
            let mut pages = BTreeSet::new();
            let mut set = RangeSet::new();
            for (base, bytes) in inputs {
                set.insert(range(base, bytes));
                if bytes > 0 {
                    pages.extend(base / PAGE..=(base + bytes - 1) / PAGE);
                }
            }
            let held: BTreeSet<u64> =
                set.iter().flat_map(|r| r.base.0 / PAGE..r.end() / PAGE).collect();
            prop_assert_eq!(held, pages);
            let all: Vec<Range> = set.iter().collect();
            for pair in all.windows(2) {
                prop_assert!(pair[0].end() < pair[1].base.0, "{} and {} touch", pair[0], pair[1]);
            }
        }
    }
}
