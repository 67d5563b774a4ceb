// SPDX-License-Identifier: GPL-2.0-only
//! Where rules are broken: ranges by rule, and the rows of blocks that they touch.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::blocks::{push, BlockRow, BlockState};
use crate::ranges::Ranges;
use crate::RuleId;

/// The broken ranges, by rule.
#[derive(Debug, Default)]
pub(crate) struct Marks(BTreeMap<RuleId, Ranges>);

impl Marks {
    pub fn new(broken: impl IntoIterator<Item = (RuleId, Range<u64>)>) -> Marks {
        let mut by_rule: BTreeMap<RuleId, Vec<Range<u64>>> = BTreeMap::new();
        for (rule, range) in broken {
            by_rule.entry(rule).or_default().push(range);
        }
        let union = |(rule, ranges)| (rule, Ranges::new(ranges));
        Marks(by_rule.into_iter().map(union).collect())
    }

    /// Marks what is broken of the rows of one VMA, `within`; rows are cut where they are only in part. Blocks are
    /// of `size` bytes. Tells whether there was anything.
    pub fn mark(&self, rows: &mut Vec<BlockRow>, within: Range<u64>, size: u64) -> bool {
        // Where a rule begins to be broken, and where it ends, in order.
        let mut edges = Vec::new();
        for (&rule, ranges) in &self.0 {
            for range in ranges.touching(&within) {
                edges.push((range.start / size * size, true, rule));
                edges.push((range.end.div_ceil(size).saturating_mul(size), false, rule));
            }
        }
        if edges.is_empty() {
            return false;
        }
        edges.sort_unstable();
        let mut edges = edges.into_iter().peekable();
        let mut here: BTreeMap<RuleId, u32> = BTreeMap::new();
        for row in std::mem::take(rows) {
            let mut at = row.va.0;
            while at < row.end.0 {
                while let Some((_, begins, rule)) = edges.next_if(|(edge, ..)| *edge <= at) {
                    let count = here.entry(rule).or_default();
                    *count = if begins {
                        *count + 1
                    } else {
                        count.saturating_sub(1)
                    };
                }
                here.retain(|_, count| *count > 0);
                let next = edges
                    .peek()
                    .map_or(row.end.0, |(edge, ..)| row.end.0.min(*edge));
                push(rows, piece(&row, at..next, size, &here));
                at = next;
            }
        }
        true
    }
}

fn piece(row: &BlockRow, part: Range<u64>, size: u64, broken: &BTreeMap<RuleId, u32>) -> BlockRow {
    let mut piece = BlockRow {
        blocks: (part.end - part.start) / size,
        va: crate::Hex(part.start),
        end: crate::Hex(part.end),
        ..row.clone()
    };
    if !broken.is_empty() {
        piece.state = BlockState::Broken;
        piece.rules.extend(broken.keys());
        piece.rules.sort_unstable();
        piece.rules.dedup();
    }
    piece
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::id;
    use crate::Hex;

    const SIZE: u64 = 0x1_0000;

    fn row(va: u64, end: u64) -> BlockRow {
        BlockRow {
            va: Hex(va),
            end: Hex(end),
            blocks: (end - va) / SIZE,
            state: BlockState::Folded,
            reason: None,
            pages: String::new(),
            absent: Vec::new(),
            rules: Vec::new(),
        }
    }

    #[test]
    fn a_break_cuts_its_row() {
        let mut rows = vec![row(0x1_0000, 0x5_0000), row(0x6_0000, 0x9_0000)];
        let marks = Marks::new([
            (id("L1"), 0x3_4000..0x3_5000),
            (id("A3"), 0x3_0000..0x4_0000),
            // One that goes on in the next row, and two that do not touch and yet share a block.
            (id("L8"), 0x4_8000..0x7_0000),
            (id("C1"), 0x8_1000..0x8_2000),
            (id("C1"), 0x8_3000..0x8_4000),
            // Of another VMA.
            (id("C1"), 0xa_0000..0xb_0000),
        ]);
        assert!(marks.mark(&mut rows, 0x1_0000..0x9_0000, SIZE));
        let seen: Vec<_> = rows
            .iter()
            .map(|r| (r.va.0 >> 16, r.blocks, r.state, r.rules.as_slice()))
            .collect();
        use BlockState::{Broken, Folded};
        assert_eq!(
            seen,
            [
                (1, 2, Folded, &[][..]),
                (3, 1, Broken, &[id("A3"), id("L1")]),
                (4, 1, Broken, &[id("L8")]),
                (6, 1, Broken, &[id("L8")]),
                (7, 1, Folded, &[]),
                (8, 1, Broken, &[id("C1")]),
            ]
        );
        // Marked again: what was there stays.
        let again = Marks::new([(id("L8"), 0x3_0000..0x3_1000)]);
        assert!(again.mark(&mut rows, 0x1_0000..0x9_0000, SIZE));
        assert_eq!(rows[1].rules, [id("A3"), id("L1"), id("L8")]);
        assert!(!again.mark(&mut rows, 0x6_0000..0x9_0000, SIZE));
    }
}
