// SPDX-License-Identifier: GPL-2.0-only
//! The guest pages that a device has written.
//!
//! KVM logs only the writes of CPUs. A complete record needs those of the devices as well.

use std::collections::BTreeMap;

/// The smallest page, in bytes: any larger one is whole pages of it.
const PAGE: u64 = 4096;

/// Ranges of whole pages, by guest physical address. There are at most as many as RAM has pages.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// The end of each range, by its start. No two overlap or touch.
    ranges: BTreeMap<u64, u64>,
}

impl Written {
    /// Adds the pages of `bytes` at `address`.
    pub(super) fn add(&mut self, address: u64, bytes: u64) {
        let mut start = address & !(PAGE - 1);
        let mut end = address.saturating_add(bytes).saturating_add(PAGE - 1) & !(PAGE - 1);
        if bytes == 0 {
            return;
        }
        while let Some((&other, &other_end)) = self.ranges.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.ranges.remove(&other);
            start = start.min(other);
            end = end.max(other_end);
        }
        self.ranges.insert(start, end);
    }

    /// Returns all ranges, as start and bytes; none are left.
    pub(super) fn take(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.ranges)
            .into_iter()
            .map(|(start, end)| (start, end - start))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_into_pages() {
        let mut written = Written::default();
        for (address, bytes) in [
            (0x1fff, 1),
            (0x5000, 0),
            (0x4000, 0x1001),
            (0x2ffe, 4),
            (0x9000, 1),
        ] {
            written.add(address, bytes);
        }
        assert_eq!(written.take(), [(0x1000, 0x5000), (0x9000, 0x1000)]);
        assert_eq!(written.take(), []);
    }

    #[test]
    fn the_end_of_the_address_space_is_no_trap() {
        let mut written = Written::default();
        written.add(u64::MAX, u64::MAX);
        written.add(u64::MAX - 0x1000, 1);
        assert_eq!(written.take().len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn exactly_the_pages_that_were_added(adds in proptest::collection::vec((0..0x4_0000_u64, 1..0x3000_u64), 0..40)) {
            let mut written = Written::default();
            let mut pages = std::collections::BTreeSet::new();
            for (address, bytes) in adds {
                written.add(address, bytes);
                pages.extend(address / PAGE..=(address + bytes - 1) / PAGE);
            }
            let ranges = written.take();
            let told: Vec<u64> = ranges
                .iter()
                .flat_map(|(start, bytes)| start / PAGE..(start + bytes) / PAGE)
                .collect();
            proptest::prop_assert_eq!(told, pages.into_iter().collect::<Vec<_>>());
            proptest::prop_assert!(ranges.windows(2).all(|two| two[0].0 + two[0].1 < two[1].0));
        }
    }
}
