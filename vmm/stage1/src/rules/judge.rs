// SPDX-License-Identifier: GPL-2.0-only
//! Judges a whole table. The quick path passes clean windows; a window (a possible group of the Contiguous bit) that it
//! does not pass is judged by the plain reading.

use std::ops::Range;

use super::group;
use super::scan::{Pattern, Tally};
use super::violation::{ArchRule, Violation};
use crate::geometry::{CONTIGUOUS, TYPE, VALID};
use crate::{Descriptor, Kind, Level, Regime, Table};

/// Size of a window at levels that have no groups.
const WINDOW: usize = 16;

/// The rules for one regime.
#[derive(Debug)]
pub(super) struct Judge<'r> {
    pub regime: &'r Regime,
    /// True if the quick path is used.
    pub quick: bool,
    pages: Pattern,
}

impl<'r> Judge<'r> {
    pub fn new(regime: &'r Regime) -> Self {
        Self {
            regime,
            quick: true,
            pages: Pattern::pages(regime),
        }
    }

    /// Judges all descriptors of `table` that are in the walk's range, and the groups they are in.
    pub fn table(&self, table: &Table<'_>, sink: &mut impl FnMut(Violation)) -> Tally {
        if !self.quick {
            return self.windows(table, table.range.clone(), sink);
        }
        if table.level == Level::L3 {
            self.pages(table, sink)
        } else {
            self.upper(table, sink)
        }
    }

    /// Judges a table of pages at once, else window by window.
    fn pages(&self, table: &Table<'_>, sink: &mut impl FnMut(Violation)) -> Tally {
        let group = self.pages.group();
        let (start, end) = (table.range.start, table.range.end);
        let inner = start.next_multiple_of(group)..end / group * group;
        if inner.start >= inner.end {
            return self.windows(table, start..end, sink);
        }
        let mut tally = self.windows(table, start..inner.start, sink);
        match self.pages.clean(&table.words[inner.clone()]) {
            Some(clean) => tally += clean,
            None => {
                for window in inner.clone().step_by(group) {
                    let window = window..window + group;
                    tally += match self.pages.clean(&table.words[window.clone()]) {
                        Some(clean) => clean,
                        None => self.windows(table, window, sink),
                    };
                }
            }
        }
        tally += self.windows(table, inner.end..end, sink);
        tally
    }

    /// Judges a table above level 3. A window of nothing but invalid and faultless table descriptors needs no plain
    /// reading. The whole window counts, also the part outside the range: a group that the range touches is judged
    /// whole.
    fn upper(&self, table: &Table<'_>, sink: &mut impl FnMut(Violation)) -> Tally {
        let zero = self.regime.level(table.level).table_zero;
        let plain = |word: &u64| word & VALID == 0 || (word & TYPE == TYPE && word & zero == 0);
        let mut tally = Tally::default();
        let mut at = table.range.start;
        while at < table.range.end {
            let whole = self.window_of(table, at);
            let next = whole.end.min(table.range.end);
            if !table.words[whole].iter().all(plain) {
                tally += self.windows(table, at..next, sink);
            }
            at = next;
        }
        tally
    }

    /// Returns the possible group that descriptor `index` is in, cut to the table.
    fn window_of(&self, table: &Table<'_>, index: usize) -> Range<usize> {
        let window = self
            .regime
            .contiguous_entries(table.level)
            .unwrap_or(WINDOW);
        let start = index / window * window;
        start..(start + window).min(table.words.len())
    }

    /// Judges by the plain reading the descriptors in `range` and the groups they are in.
    fn windows(
        &self,
        table: &Table<'_>,
        range: Range<usize>,
        sink: &mut impl FnMut(Violation),
    ) -> Tally {
        let mut tally = Tally::default();
        let mut report = |violation: Option<Violation>| {
            if let Some(violation) = violation {
                tally.violations += 1;
                sink(violation);
            }
        };
        let grouped = self.regime.contiguous_entries(table.level).is_some();
        let mut at = range.start;
        while at < range.end {
            let whole = self.window_of(table, at);
            let next = whole.end.min(range.end);
            for index in at..next {
                let descriptor = Descriptor::new(table.words[index], table.level, self.regime);
                tally.leaves += u64::from(descriptor.kind().is_leaf());
                report(self.alone(table, index, &descriptor));
            }
            if grouped && group::is_contiguous(self.regime, table, &whole) {
                tally.groups += 1;
                group::judge(self.regime, table, whole, &mut report);
            }
            at = next;
        }
        tally
    }

    /// Judges a descriptor by itself: A6, A7 and A8.
    fn alone(
        &self,
        table: &Table<'_>,
        index: usize,
        descriptor: &Descriptor<'_>,
    ) -> Option<Violation> {
        let level = table.level;
        let granule = self.regime.granule;
        let geometry = self.regime.level(level);
        let word = descriptor.word;
        let violation = |rule, sentence| {
            Some(Violation {
                rule,
                level,
                va: table.va_of(index, self.regime),
                table: table.address,
                index,
                words: vec![word],
                sentence,
            })
        };
        match descriptor.kind() {
            Kind::Invalid => None,
            Kind::Reserved if level == Level::L3 => violation(
                ArchRule::A7,
                format!("descriptor {word:#018x} has the reserved type 0b01, expected 0b11 (a page) or bit 0 to be 0"),
            ),
            Kind::Reserved => violation(
                ArchRule::A8,
                format!("descriptor {word:#018x} is a block, expected a table: the {granule} granule has no block at level {level} here"),
            ),
            kind => {
                let wrong = descriptor.nonzero_res0();
                let beyond = if kind == Kind::Table { geometry.table_beyond } else { geometry.leaf_beyond };
                if wrong & beyond != 0 {
                    let pa_bits = self.regime.pa_bits;
                    let address = if kind == Kind::Table { descriptor.next_table() } else { descriptor.output_address() };
                    violation(
                        ArchRule::A7,
                        format!("descriptor {word:#018x} holds the address {address}, expected one of at most {pa_bits} bits"),
                    )
                } else if wrong != 0 {
                    violation(
                        ArchRule::A7,
                        format!("descriptor {word:#018x} has RES0 bits {wrong:#x} set, expected 0"),
                    )
                } else if kind.is_leaf() && geometry.group == 0 && word & CONTIGUOUS != 0 {
                    violation(
                        ArchRule::A6,
                        format!("descriptor {word:#018x} has the Contiguous bit, expected 0: it is RES0 in a level {level} block of the {granule} granule"),
                    )
                } else {
                    None
                }
            }
        }
    }
}
