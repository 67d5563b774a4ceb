// SPDX-License-Identifier: GPL-2.0-only
//! How often each page frame is mapped, by the entries of all address spaces.

use std::cell::Cell;
use std::ops::Range;

use linux::pte::{Kind, Pte, SwapKind};
use stage1::{
    walk, Descend, Level, PhysMemory, PhysicalAddress, Regime, Table, Visitor, WalkProblem,
};

use crate::group::Group;

/// Entries that lead to one slot: the number of its area, the slot, and how many.
pub type Swapped = (u8, u64, u64);

/// All entries that map folios, by page frame number.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub pages: Cover,
    pub blocks: Cover,
    /// Each block: its first page frame number.
    starts: Vec<u64>,
    /// Entries that lead to swap, by area and slot, in order.
    pub swapped: Vec<Swapped>,
    pub problem: Option<String>,
}

/// How often each page frame is covered.
#[derive(Debug, Default)]
pub(crate) struct Cover {
    /// Ranges that do not overlap, with their count and the sum of all before them.
    ranges: Vec<(Range<u64>, u64, u64)>,
    /// The place that was asked for last: pages are asked for in rising order.
    last: Cell<usize>,
}

impl Cover {
    pub fn new(mut runs: Vec<Range<u64>>) -> Cover {
        // Many processes have the same runs, by fork or of a library: each is one with a count. By one number, which is
        // compared without a branch.
        runs.sort_unstable_by_key(|run| u128::from(run.start) << 64 | u128::from(run.end));
        let mut edges: Vec<(u64, i64)> = Vec::new();
        for same in runs.chunk_by(PartialEq::eq) {
            edges.push((same[0].start, same.len() as i64));
            edges.push((same[0].end, -(same.len() as i64)));
        }
        edges.sort_unstable();
        let (mut depth, mut from, mut sum) = (0i64, 0, 0);
        let mut cover = Vec::new();
        for (at, step) in edges {
            if at > from && depth > 0 {
                cover.push((from..at, depth as u64, sum));
                sum += (at - from) * depth as u64;
            }
            from = at;
            depth += step;
        }
        Cover {
            ranges: cover,
            last: Cell::new(0),
        }
    }

    /// How many page frames are covered at all.
    pub fn covered(&self) -> u64 {
        let pages = self
            .ranges
            .iter()
            .map(|(range, ..)| range.end - range.start);
        pages.sum()
    }

    /// Entries on the pages below `pfn`.
    fn below(&self, pfn: u64) -> u64 {
        let starts_below = |at: usize| self.ranges.get(at).is_some_and(|it| it.0.start < pfn);
        let mut at = self.last.get();
        if !starts_below(at) || starts_below(at + 1) {
            at = match self.ranges.partition_point(|(range, ..)| range.start < pfn) {
                0 => return 0,
                next => next - 1,
            };
            self.last.set(at);
        }
        let (range, count, before) = &self.ranges[at];
        before + (pfn.min(range.end) - range.start) * count
    }

    /// The parts of these ranges that are covered once, in order.
    pub fn once_within(&self, mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut once, mut next) = (Vec::new(), 0);
        let covered = self.ranges.iter().filter(|(_, count, _)| *count == 1);
        let mut covered = covered.map(|(range, ..)| range.clone()).peekable();
        for range in ranges {
            while let Some(cover) = covered.peek() {
                let start = range.start.max(cover.start).max(next);
                let end = range.end.min(cover.end);
                if start < end {
                    once.push(start..end);
                    next = end;
                }
                if cover.end > range.end {
                    break;
                }
                covered.next();
            }
        }
        once
    }

    /// The first page frame behind `pfn` that may be covered more often, or less, than it is.
    pub fn changes_behind(&self, pfn: u64) -> u64 {
        let next = self.ranges.partition_point(|(range, ..)| range.end <= pfn);
        let edge = |(range, ..): &(Range<u64>, u64, u64)| match range.start <= pfn {
            true => range.end,
            false => range.start,
        };
        self.ranges.get(next).map_or(u64::MAX, edge)
    }

    /// Entries on the pages of a range.
    pub fn within(&self, range: &Range<u64>) -> u64 {
        self.below(range.end) - self.below(range.start)
    }
}

impl Entries {
    pub fn of<M: PhysMemory + ?Sized>(memory: &M, regime: &Regime, tables: &[u64]) -> Entries {
        let mut collect = Collect {
            regime: *regime,
            pages: Vec::new(),
            blocks: Vec::new(),
            swapped: Vec::new(),
            problem: None,
        };
        for &table in tables {
            let regime = Regime {
                root: PhysicalAddress(table),
                ..*regime
            };
            collect.regime = regime;
            walk(memory, &regime, regime.first, regime.last, &mut collect);
        }
        let mut starts: Vec<u64> = collect.blocks.iter().map(|range| range.start).collect();
        starts.sort_unstable();
        collect.swapped.sort_unstable();
        let swapped = collect.swapped.chunk_by(PartialEq::eq);
        let swapped = swapped.map(|all| (all[0].0, all[0].1, all.len() as u64));
        Entries {
            swapped: swapped.collect(),
            pages: Cover::new(collect.pages),
            blocks: Cover::new(collect.blocks),
            starts,
            problem: collect.problem,
        }
    }

    /// Entries that lead to this slot in swap.
    pub fn swapped(&self, slot: (u8, u64)) -> u64 {
        let found = self
            .swapped
            .binary_search_by_key(&slot, |(area, slot, _)| (*area, *slot));
        found.map_or(0, |at| self.swapped[at].2)
    }

    /// Blocks that begin in a folio.
    pub fn block_maps(&self, folio: &Range<u64>) -> u64 {
        let below = |pfn| self.starts.partition_point(|start| *start < pfn);
        (below(folio.end) - below(folio.start)) as u64
    }
}

struct Collect {
    regime: Regime,
    pages: Vec<Range<u64>>,
    blocks: Vec<Range<u64>>,
    swapped: Vec<(u8, u64)>,
    problem: Option<String>,
}

impl<'m> Visitor<'m> for Collect {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let regime = &{ self.regime };
        let group = Group::new(
            (regime, table.level),
            table.va_of(0, regime).0,
            (table.address.0, 0),
            table.words,
        );
        let size = regime.granule.bytes();
        let (last, pages) = (table.level == Level::L3, group.step() / size);
        let mut next = 0;
        while next < group.words.len() {
            let (pte, run) = (Pte(group.words[next]), group.run(next, group.words.len()));
            next += run;
            if !group.is_present(pte) {
                self.swapped(pte, last);
                continue;
            }
            if !counted(pte) {
                continue;
            }
            let pfn = group.output(pte.0) / size;
            let pages = pages * run as u64;
            let list = if last {
                &mut self.pages
            } else {
                &mut self.blocks
            };
            match list.last_mut().filter(|range| last && range.end == pfn) {
                Some(range) => range.end += pages,
                None => list.push(pfn..pfn + pages),
            }
        }
        Descend::Into
    }

    fn problem(&mut self, problem: &WalkProblem) {
        self.problem.get_or_insert_with(|| problem.to_string());
    }
}

impl Collect {
    /// Above level 3 no entry leads to swap (`ARCH_ENABLE_THP_MIGRATION` is of migration alone).
    fn swapped(&mut self, pte: Pte, last: bool) {
        match pte.kind() {
            Kind::Swap(entry) if last && entry.kind() == SwapKind::Swapped => {
                self.swapped.push((entry.swap_type, entry.offset));
            }
            _ => {}
        }
    }
}

/// Returns whether the kernel counts an entry.
fn counted(pte: Pte) -> bool {
    !pte.special() && !pte.devmap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cover() -> Cover {
        // 4 to 6 once, 6 to 8 twice, 8 to 9 once, 12 to 13 three times.
        Cover::new(vec![4..8, 6..9, 12..13, 12..13, 12..13])
    }

    #[test]
    fn entries_within_a_range_in_any_order_of_asking() {
        let asked = [
            (0..4, 0),
            (4..5, 1),
            (5..7, 3),
            (7..13, 2 + 1 + 3),
            (12..13, 3),
            (13..20, 0),
        ];
        for order in [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 4, 2]] {
            let cover = cover();
            for at in order {
                let (range, entries) = &asked[at];
                assert_eq!(cover.within(range), *entries, "{range:?} in {order:?}");
            }
        }
    }

    #[test]
    fn how_much_is_covered() {
        assert_eq!((cover().covered(), Cover::default().covered()), (6, 0));
    }

    #[test]
    fn what_is_covered_once() {
        let once = |ranges: &[Range<u64>]| cover().once_within(ranges.to_vec());
        assert_eq!(once(&[0..5, 5..20]), [4..5, 5..6, 8..9]);
        assert_eq!(once(&[5..8, 8..9]), [5..6, 8..9]);
        assert_eq!(once(&[8..9, 4..5]), [4..5, 8..9]);
        // Two processes have the same page.
        assert_eq!(once(&[4..5, 4..6]), [4..5, 5..6]);
        assert!(once(&[6..8, 9..20]).is_empty());
    }
}
