//! The architecture's rules on descriptors, A1 to A8, and the walk that checks them.
//!
//! What is reported is wrong on any kernel. Where a bit's meaning hangs on a feature or a state
//! that cannot be seen from outside (NS, GP, nT, PBHA), it is not reported.

mod group;
mod judge;
mod scan;

use std::collections::HashSet;
use std::fmt;

use crate::{
    Descend, Level, PhysMemory, PhysicalAddress, Regime, Table, VirtualAddress, Visitor,
    WalkProblem, WalkSummary,
};
use judge::Judge;

/// A rule of the architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArchRule {
    /// A group of the Contiguous bit is naturally aligned in its table.
    A1,
    /// Its output range is aligned to the group's size.
    A2,
    /// Its output addresses are consecutive.
    A3,
    /// All its valid members have the Contiguous bit.
    A4,
    /// Its members' attributes and permissions are equal.
    A5,
    /// The Contiguous bit is not set where it is RES0.
    A6,
    /// No reserved descriptor type, RES0 bit, or address above the output size.
    A7,
    /// No block at a level where the granule has none.
    A8,
}

impl ArchRule {
    /// All rules in order.
    pub const ALL: [Self; 8] = [
        Self::A1,
        Self::A2,
        Self::A3,
        Self::A4,
        Self::A5,
        Self::A6,
        Self::A7,
        Self::A8,
    ];

    /// "A1" to "A8".
    #[must_use]
    pub const fn id(self) -> &'static str {
        ["A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8"][self as usize]
    }

    /// What the rule asks for, as a phrase.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::A1 => "a contiguous group is naturally aligned in its table",
            Self::A2 => "a contiguous group's output range is aligned to its size",
            Self::A3 => "a contiguous group's output addresses are consecutive",
            Self::A4 => "all valid members of a group agree on the Contiguous bit",
            Self::A5 => "a contiguous group's attributes and permissions are equal",
            Self::A6 => "the Contiguous bit is 0 where it is RES0",
            Self::A7 => "no reserved type, RES0 bit or address above the output size",
            Self::A8 => "no block at a level where the granule has none",
        }
    }

    /// Where the Arm ARM says so (DDI 0487).
    #[must_use]
    pub const fn reference(self) -> &'static str {
        match self {
            Self::A1 | Self::A2 => "Arm ARM D8.7.1, R_CBXXM and table D8-104; R_WMNPV",
            Self::A3 => "Arm ARM D8.7.1, R_SKQHL",
            Self::A4 => "Arm ARM D8.7.1.1, R_QTRPM and I_PGVGZ",
            Self::A5 => "Arm ARM D8.7.1, R_SKQHL and I_CQTNL",
            Self::A6 => "Arm ARM D8.7.1, R_HMQXG",
            Self::A7 => "Arm ARM D8.3, VMSAv8-64 descriptor formats",
            Self::A8 => "Arm ARM D8.3, VMSAv8-64 Block descriptors",
        }
    }
}

impl fmt::Display for ArchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// One breach of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: ArchRule,
    /// Level of the table.
    pub level: Level,
    /// The VA that the first of `words` maps.
    pub va: VirtualAddress,
    /// The table.
    pub table: PhysicalAddress,
    /// Place of the first of `words` in it.
    pub index: usize,
    /// The raw words: of the whole group under A1 to A5, else of the one descriptor.
    pub words: Vec<u64>,
    /// What was found and what is expected.
    pub sentence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule,
            level,
            va,
            sentence,
            ..
        } = self;
        write!(f, "{rule} VA {va} level {level}: {sentence}")
    }
}

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
