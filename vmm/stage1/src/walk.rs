// SPDX-License-Identifier: GPL-2.0-only
//! Walks every table of a VA range, in VA order, on a stack of at most five.

use std::collections::HashSet;
use std::ops::Range;

use crate::geometry::TYPE;
use crate::{
    Inherited, Level, PhysMemory, PhysicalAddress, ProblemKind, Regime, VirtualAddress, WalkProblem,
};

/// Default maximum of descriptors that a walk reads: 2^27 in 1 GiB of tables, which map 512 GiB by 4K pages. Tables
/// that share their children can ask for 2^48.
pub const DEFAULT_BUDGET: u64 = 1 << 27;

/// A table as the walk meets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<'m> {
    /// Lookup level.
    pub level: Level,
    /// Its address.
    pub address: PhysicalAddress,
    /// The VA that descriptor 0 maps.
    pub va: VirtualAddress,
    /// All its descriptors.
    pub words: &'m [u64],
    /// The descriptors that the walk's range touches.
    pub range: Range<usize>,
    /// Attributes that the table descriptors above impose.
    pub inherited: Inherited,
}

impl Table<'_> {
    /// Returns the VA that descriptor `index` maps.
    #[must_use]
    pub const fn va_of(&self, index: usize, regime: &Regime) -> VirtualAddress {
        VirtualAddress(
            self.va
                .0
                .wrapping_add((index as u64) << regime.level(self.level).shift),
        )
    }
}

/// A visitor's decision whether the walk goes on below a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descend {
    /// Show the descriptors, and the tables below.
    Into,
    /// Leave this table.
    Skip,
}

/// The tables that were shown whole, each at its level. A table that occurs again adds nothing but addresses.
#[derive(Clone, Debug, Default)]
pub struct Shown(HashSet<(Level, PhysicalAddress)>);

impl Shown {
    /// Returns whether this table was shown before.
    pub fn again(&mut self, table: &Table<'_>) -> bool {
        let whole = table.range == (0..table.words.len());
        whole && !self.0.insert((table.level, table.address))
    }
}

/// An observer of a walk. Every default method does nothing.
pub trait Visitor<'m> {
    /// Shows a table, before its descriptors and the tables below it.
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let _ = table;
        Descend::Into
    }

    /// Shows descriptors of `table` that lead to no table: a longest run of blocks, pages, invalid and reserved ones.
    /// Runs and the tables between them come in the order of their VAs.
    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        let _ = (table, range);
    }

    /// Shows a table that could not be walked.
    fn problem(&mut self, problem: &WalkProblem) {
        let _ = problem;
    }
}

/// Counts of one walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkSummary {
    /// Tables visited.
    pub tables: u64,
    /// Descriptors of these tables that are in the range.
    pub descriptors: u64,
    /// Calls of [`Visitor::problem`].
    pub problems: u64,
    /// True if no table of the range was left out, apart from those that the visitor skipped.
    pub complete: bool,
}

/// Walks the tables of `regime` for the VAs from `first` to `last`, both inclusive.
///
/// VAs outside the half are left out. There is no walk if `regime.epd` is set, or if `first` is above `last`. At most
/// [`DEFAULT_BUDGET`] descriptors are read.
pub fn walk<'m, M: PhysMemory + ?Sized>(
    memory: &'m M,
    regime: &Regime,
    first: VirtualAddress,
    last: VirtualAddress,
    visitor: &mut impl Visitor<'m>,
) -> WalkSummary {
    walk_within(memory, regime, first, last, DEFAULT_BUDGET, visitor)
}

/// Walks as [`walk`] does, but enters no table once it has read `budget` descriptors.
pub fn walk_within<'m, M: PhysMemory + ?Sized>(
    memory: &'m M,
    regime: &Regime,
    first: VirtualAddress,
    last: VirtualAddress,
    budget: u64,
    visitor: &mut impl Visitor<'m>,
) -> WalkSummary {
    let (first, last) = (first.max(regime.first), last.min(regime.last));
    let mut walk = Walk {
        memory,
        regime,
        first,
        last,
        budget,
        stack: [const { None }; 5],
        depth: 0,
        summary: WalkSummary {
            complete: true,
            ..WalkSummary::default()
        },
    };
    if !regime.epd && first <= last {
        walk.run(visitor);
    }
    walk.summary
}

/// Returns the tables that the descriptors of one table lead to, in the order of their VAs. A walk goes there from
/// `words` at `level`, unless it meets a loop, missing memory or the end of its budget.
pub fn tables_below<'w>(
    regime: &'w Regime,
    level: Level,
    words: &'w [u64],
) -> impl Iterator<Item = PhysicalAddress> + 'w {
    let beyond = regime.level(level).table_beyond;
    let words = if level == Level::L3 { &[] } else { words };
    words
        .iter()
        .filter(move |word| **word & TYPE == 0b11 && **word & beyond == 0)
        .map(|word| regime.next_table(*word))
}

/// A table that the walk is in.
struct Frame<'m> {
    table: Table<'m>,
    /// The first descriptor not yet shown.
    next: usize,
}

struct Walk<'m, 'r, M: ?Sized> {
    memory: &'m M,
    regime: &'r Regime,
    first: VirtualAddress,
    last: VirtualAddress,
    budget: u64,
    /// The tables from the root to where the walk is: one per level at most.
    stack: [Option<Frame<'m>>; 5],
    depth: usize,
    summary: WalkSummary,
}

impl<'m, M: PhysMemory + ?Sized> Walk<'m, '_, M> {
    fn run(&mut self, visitor: &mut impl Visitor<'m>) {
        let regime = self.regime;
        let root = Step {
            level: regime.root_level,
            address: regime.root,
            va: regime.first,
            inherited: Inherited::default(),
            from: None,
        };
        self.enter(&root, visitor);
        while self.depth > 0 {
            let Some(frame) = &mut self.stack[self.depth - 1] else {
                return;
            };
            let table = &frame.table;
            let (start, end) = (frame.next, table.range.end);
            let rest = &table.words[start..end];
            let found = match table.level {
                Level::L3 => None,
                _ => rest.iter().position(|word| word & TYPE == 0b11),
            };
            let run = start..found.map_or(end, |at| start + at);
            if !run.is_empty() {
                visitor.entries(table, run.clone());
            }
            let (Some(_), Some(level)) = (found, table.level.next()) else {
                self.depth -= 1;
                continue;
            };
            let word = table.words[run.end];
            let step = Step {
                level,
                address: regime.next_table(word),
                va: table.va_of(run.end, regime),
                inherited: table.inherited.below(word, regime),
                from: Some((table.address, run.end, word)),
            };
            let beyond = word & regime.level(table.level).table_beyond != 0;
            frame.next = run.end + 1;
            if self.summary.descriptors >= self.budget {
                return self.refuse(&step, ProblemKind::Budget, visitor);
            }
            if beyond {
                self.refuse(&step, ProblemKind::BeyondOutputSize, visitor);
            } else {
                self.enter(&step, visitor);
            }
        }
    }

    /// Reads the table that `step` leads to, shows it and goes into it.
    fn enter(&mut self, step: &Step, visitor: &mut impl Visitor<'m>) {
        let regime = self.regime;
        let ancestors = self.stack[..self.depth].iter().flatten();
        if ancestors
            .into_iter()
            .any(|frame| frame.table.address == step.address)
        {
            return self.refuse(step, ProblemKind::Loop, visitor);
        }
        let entries = regime.entries(step.level);
        let Some(words) = self.memory.words(step.address, entries) else {
            let kind = if self.is_ram(step.address, entries) {
                ProblemKind::NotSaved
            } else {
                ProblemKind::OutsideRam
            };
            return self.refuse(step, kind, visitor);
        };
        // The range in this table: its ends are in it, or at its ends.
        let span = regime.level(step.level).shift;
        let last_va = VirtualAddress(step.va.0.wrapping_add(((entries as u64) << span) - 1));
        let start = regime.index(step.level, step.va, self.first.max(step.va));
        let end = regime.index(step.level, step.va, self.last.min(last_va)) + 1;
        let table = Table {
            level: step.level,
            address: step.address,
            va: step.va,
            words,
            range: start..end,
            inherited: step.inherited,
        };
        self.summary.tables += 1;
        self.summary.descriptors += (end - start) as u64;
        if visitor.table(&table) == Descend::Into {
            self.stack[self.depth] = Some(Frame { table, next: start });
            self.depth += 1;
        }
    }

    /// Returns whether the whole table is in RAM. Its two ends suffice, as regions are larger than tables.
    fn is_ram(&self, address: PhysicalAddress, entries: usize) -> bool {
        let last = PhysicalAddress(address.0.saturating_add(entries as u64 * 8 - 8));
        self.memory.is_ram(address) && self.memory.is_ram(last)
    }

    fn refuse(&mut self, step: &Step, kind: ProblemKind, visitor: &mut impl Visitor<'m>) {
        self.summary.problems += 1;
        self.summary.complete = false;
        visitor.problem(&WalkProblem {
            kind,
            level: step.level,
            va: step.va,
            address: step.address,
            from: step.from,
        });
    }
}

/// A step into a table.
struct Step {
    level: Level,
    address: PhysicalAddress,
    va: VirtualAddress,
    inherited: Inherited,
    /// Table, index and word of the descriptor that leads there; none at the root.
    from: Option<(PhysicalAddress, usize, u64)>,
}
