// SPDX-License-Identifier: GPL-2.0-only
//! The architecture's rules on descriptors, A1 to A8, and the walk that checks them.
//!
//! A reported violation is wrong on any kernel. A bit is not reported if its meaning depends on a feature or a state
//! that cannot be read from outside (NS, GP, nT, PBHA).

mod group;
mod judge;
mod scan;
mod violation;

use std::collections::HashSet;

use crate::{
    Descend, Level, PhysMemory, PhysicalAddress, Regime, Table, VirtualAddress, Visitor,
    WalkProblem, WalkSummary,
};
use judge::Judge;

pub use violation::{ArchRule, Violation};

/// Counts of one check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Tables visited.
    pub tables: u64,
    /// Descriptors of these tables that are in the range.
    pub descriptors: u64,
    /// Valid blocks and pages, by [`Level::index`].
    pub leaves: [u64; 5],
    /// Groups with at least one valid member that has the Contiguous bit, by [`Level::index`].
    pub groups: [u64; 5],
    /// Tables that were skipped with all that is below, because they were judged at a lower VA.
    pub shared: u64,
    /// Violations reported.
    pub violations: u64,
    /// Tables that could not be walked.
    pub problems: u64,
    /// The part of `problems` that is no finding against the guest: not saved, or over the budget.
    pub not_judged: u64,
    /// The first problems.
    pub first_problems: Vec<WalkProblem>,
    /// True if no table of the range was left out.
    pub complete: bool,
}

impl CheckSummary {
    /// Number of problems that are kept.
    pub const PROBLEMS_KEPT: usize = 32;
}

/// Checks the architecture's rules over the VAs from `first` to `last`, both inclusive.
///
/// Each violation goes to `sink`, table by table. A group that the range touches is judged whole. The part below a
/// table with several parents is judged once, at its lowest VA.
pub fn check<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    first: VirtualAddress,
    last: VirtualAddress,
    sink: &mut impl FnMut(Violation),
) -> CheckSummary {
    check_within(memory, regime, first, last, crate::DEFAULT_BUDGET, sink)
}

/// Checks as [`check`] does, but enters no table once it has read `budget` descriptors.
pub fn check_within<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    first: VirtualAddress,
    last: VirtualAddress,
    budget: u64,
    sink: &mut impl FnMut(Violation),
) -> CheckSummary {
    judge_each_once(
        memory,
        regime,
        [first, last],
        budget,
        Checker::new(regime, sink),
    )
}

/// Checks as [`check_within`] does, by the plain reading of the rules, one descriptor at a time. Tests compare the
/// quick path with it.
#[doc(hidden)]
pub fn check_plainly<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    first: VirtualAddress,
    last: VirtualAddress,
    budget: u64,
    sink: &mut impl FnMut(Violation),
) -> CheckSummary {
    let mut checker = Checker::new(regime, sink);
    checker.judge.quick = false;
    judge_each_once(memory, regime, [first, last], budget, checker)
}

fn judge_each_once<M: PhysMemory + ?Sized, F: FnMut(Violation)>(
    memory: &M,
    regime: &Regime,
    [first, last]: [VirtualAddress; 2],
    budget: u64,
    checker: Checker<'_, F>,
) -> CheckSummary {
    let mut once = Once {
        checker,
        seen: HashSet::new(),
    };
    let walked = crate::walk_within(memory, regime, first, last, budget, &mut once);
    once.checker.finish(walked)
}

/// A checker that judges a table above level 3 once. Its descriptors are the same at every VA.
///
/// A kernel with KASAN maps its shadow memory by one table of each level over and over: 2^33 descriptors of 4K pages
/// without this.
struct Once<'r, F> {
    checker: Checker<'r, F>,
    seen: HashSet<(PhysicalAddress, Level)>,
}

impl<'m, F: FnMut(Violation)> Visitor<'m> for Once<'_, F> {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let whole = table.range.len() == table.words.len();
        if whole && table.level < Level::L3 && !self.seen.insert((table.address, table.level)) {
            self.checker.summary.shared += 1;
            return Descend::Skip;
        }
        self.checker.table(table)
    }

    fn problem(&mut self, problem: &WalkProblem) {
        self.checker.problem(problem);
    }
}

/// The rules as a [`Visitor`], for a caller who does more on the same walk. It must pass on all three methods, then
/// call [`Checker::finish`].
#[derive(Debug)]
pub struct Checker<'r, F> {
    judge: Judge<'r>,
    sink: F,
    summary: CheckSummary,
}

impl<'r, F: FnMut(Violation)> Checker<'r, F> {
    /// Creates a checker with empty counts.
    pub fn new(regime: &'r Regime, sink: F) -> Self {
        Self {
            judge: Judge::new(regime),
            sink,
            summary: CheckSummary::default(),
        }
    }

    /// Returns the result, with the problems that the walk found.
    pub fn finish(self, walked: WalkSummary) -> CheckSummary {
        CheckSummary {
            tables: walked.tables,
            descriptors: walked.descriptors,
            problems: walked.problems,
            complete: walked.complete,
            ..self.summary
        }
    }
}

impl<'m, F: FnMut(Violation)> Visitor<'m> for Checker<'_, F> {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let tally = self.judge.table(table, &mut self.sink);
        let level = table.level.index();
        self.summary.leaves[level] += tally.leaves;
        self.summary.groups[level] += tally.groups;
        self.summary.violations += tally.violations;
        Descend::Into
    }

    fn problem(&mut self, problem: &WalkProblem) {
        self.summary.not_judged += u64::from(!problem.kind.is_finding());
        let kept = &mut self.summary.first_problems;
        if kept.len() < CheckSummary::PROBLEMS_KEPT {
            kept.push(*problem);
        }
    }
}
