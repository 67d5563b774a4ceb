// SPDX-License-Identifier: GPL-2.0-only
//! Copied pages that one copy hands on to the next.

use std::sync::Arc;

use stage1::{PhysMemory, PhysicalAddress};

use crate::memory::own;
use crate::{MemoryError, Range, RangeSet, Region, PAGE};

/// The pages of the last copy. The next one shares those without a write.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Shared regions in rising order; none overlap.
    regions: Arc<Vec<Region>>,
}

impl Copies {
    /// Returns regions of exactly the pages that `wanted` touches. Pages that the last copy has and `written` does not
    /// are shared with it, and all others are copied from `memory`. Without `written` all are copied.
    ///
    /// No region crosses a multiple of `unit` bytes, which bounds the cost of one written page. Words that are read at
    /// once must therefore lie between two such multiples.
    pub fn copy_again<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
        wanted: Vec<Range>,
        unit: u64,
        written: Option<&RangeSet>,
    ) -> Result<Arc<Vec<Region>>, MemoryError> {
        let mut last = std::mem::take(own(&mut self.regions))
            .into_iter()
            .peekable();
        let mut regions = Vec::with_capacity(last.len());
        for range in split(wanted, unit) {
            while last
                .next_if(|region| region.range().base < range.base)
                .is_some()
            {}
            let same = last.next_if(|region| {
                region.range() == range && !written.is_none_or(|written| written.touches(&range))
            });
            regions.push(match same {
                Some(region) => region,
                None => Region::shared(range.base, words(memory, range)?.into()),
            });
        }
        self.regions = Arc::new(regions);
        Ok(self.regions.clone())
    }

    /// Copies again the pages of the last copy. If no other owner holds that copy, only the written pages are touched.
    pub fn patch<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
        written: &RangeSet,
    ) -> Result<Arc<Vec<Region>>, MemoryError> {
        let touched = written.touched(&self.regions, Region::range);
        if !touched.is_empty() {
            let regions = own(&mut self.regions);
            for at in touched {
                let region = &mut regions[at];
                region.overwrite(words(memory, region.range())?);
            }
        }
        Ok(self.regions.clone())
    }
}

fn words<M: PhysMemory + ?Sized>(memory: &M, range: Range) -> Result<&[u64], MemoryError> {
    let bytes = usize::try_from(range.bytes).unwrap_or(usize::MAX);
    let words = memory.words(range.base, bytes / 8);
    words.ok_or(MemoryError::NotMapped {
        address: range.base,
        bytes,
    })
}

/// Returns the pages that `ranges` touch as runs that are as long as can be within `unit` bytes, in rising order.
fn split(mut ranges: Vec<Range>, unit: u64) -> Vec<Range> {
    let unit = unit.max(PAGE);
    ranges.sort_unstable();
    let mut runs: Vec<Range> = Vec::with_capacity(ranges.len());
    let mut done = 0;
    for range in ranges {
        let Some(end) = range.end().checked_next_multiple_of(PAGE) else {
            continue;
        };
        let mut start = done.max(range.base.0 - range.base.0 % PAGE);
        while start < end {
            let stop = end.min((start - start % unit).saturating_add(unit));
            let bytes = stop - start;
            match runs.last_mut() {
                Some(run) if run.end() == start && start % unit != 0 => run.bytes += bytes,
                _ => runs.push(Range {
                    base: PhysicalAddress(start),
                    bytes,
                }),
            }
            start = stop;
        }
        done = done.max(end);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    fn range(base: u64, bytes: u64) -> Range {
        Range::new(PhysicalAddress(base), bytes).unwrap()
    }

    #[test]
    fn runs_end_at_a_multiple_of_the_unit() {
        let ranges = vec![
            range(0x1_3000, 8),
            range(0x1000, 0x1000),
            range(0x2000, 0x1000),
            range(0x2800, 0x2000),
            range(0x1_0000, 0x3000),
            range(0x2_0000, 0),
        ];
        assert_eq!(
            split(ranges.clone(), 0x4000),
            [
                range(0x1000, 0x3000),
                range(0x4000, 0x1000),
                range(0x1_0000, 0x4000)
            ]
        );
        assert_eq!(split(ranges, PAGE).len(), 8);
    }

    #[test]
    fn only_what_was_not_written_to_is_shared() {
        let base = PhysicalAddress(0);
        let ram = vec![range(0, 0x4000)];
        let memory = |first| {
            let words: Vec<u64> = (first..first + 2048).collect();
            Memory::new(vec![Region::owned(base, words)], ram.clone()).unwrap()
        };
        let mut copies = Copies::default();
        let wanted = || vec![range(0, 0x3000)];
        let words = |regions| {
            let copy = Memory::part_of(&memory(0), regions);
            [0, 1, 2].map(|page| copy.words(PhysicalAddress(page * PAGE), 1).unwrap()[0])
        };
        let written = [range(0x1008, 8)].into_iter().collect();
        let before = copies.copy_again(&memory(0), wanted(), PAGE, None).unwrap();
        let copied_again = copies.copy_again(&memory(7), wanted(), PAGE, Some(&written));
        let patched = copies.patch(&memory(9), &written).unwrap();
        assert_eq!(words(before), [0, 512, 1024]);
        assert_eq!(words(copied_again.unwrap()), [0, 512 + 7, 1024]);
        assert_eq!(words(patched), [0, 512 + 9, 1024]);
    }
}
