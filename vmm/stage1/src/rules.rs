//! The architecture's rules on descriptors, A1 to A8, and the walk that checks them.
//!
//! What is reported is wrong on any kernel. Where a bit's meaning hangs on a feature or a state
//! that cannot be seen from outside (NS, GP, nT, PBHA), it is not reported.

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

/// What a check saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Tables visited.
    pub tables: u64,
    /// Descriptors in the range that they hold.
    pub descriptors: u64,
    /// Valid blocks and pages, by [`Level::index`].
    pub leaves: [u64; 5],
    /// Groups with at least one valid member that has the Contiguous bit, by [`Level::index`].
    pub groups: [u64; 5],
    /// Tables not judged, nor what is below them: they were, at a lower VA.
    pub shared: u64,
    /// Violations reported.
    pub violations: u64,
    /// Tables that could not be walked.
    pub problems: u64,
    /// Those of them that are no finding against the guest: not saved, or over the budget.
    pub not_judged: u64,
    /// The first problems.
    pub first_problems: Vec<WalkProblem>,
    /// No table of the range was left out.
    pub complete: bool,
}

impl CheckSummary {
    /// How many problems are kept.
    pub const PROBLEMS_KEPT: usize = 32;
}

/// Checks the architecture's rules over the VAs from `first` to `last`, both inclusive.
///
/// Each violation goes to `sink`, table by table. A group that the range touches is judged whole.
/// What is below a table that several descriptors lead to is judged once, at its lowest VA.
pub fn check<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    first: VirtualAddress,
    last: VirtualAddress,
    sink: &mut impl FnMut(Violation),
) -> CheckSummary {
    check_within(memory, regime, first, last, crate::DEFAULT_BUDGET, sink)
}

/// [`check`], but no table is entered once `budget` descriptors were read.
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

/// [`check_within`] by the plain reading of the rules, one descriptor at a time: what the quick
/// path finds is held against this.
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

/// A checker that judges no table above level 3 twice: what is below is the same at every VA.
///
/// Without this the shadow memory of a kernel with KASAN, which one table of each level maps over
/// and over, would be 2^33 descriptors of 4K pages.
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

/// The rules as a [`Visitor`], for a caller who does more on the same walk: pass on all three of
/// its methods, then call [`Checker::finish`].
#[derive(Debug)]
pub struct Checker<'r, F> {
    judge: Judge<'r>,
    sink: F,
    summary: CheckSummary,
}

impl<'r, F: FnMut(Violation)> Checker<'r, F> {
    /// A checker that has seen nothing.
    pub fn new(regime: &'r Regime, sink: F) -> Self {
        Self {
            judge: Judge::new(regime),
            sink,
            summary: CheckSummary::default(),
        }
    }

    /// The result, with what the walk itself found.
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
