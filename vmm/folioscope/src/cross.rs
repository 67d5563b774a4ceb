// SPDX-License-Identifier: GPL-2.0-only
//! The crossing: every state of memory under every operation, alone, in a parent and in a child.
//!
//! States and operations are two tables; what must be true afterwards comes from one model of memory and from the rules.
//! Areas of one batch share a process: a batch is one operation, in one of the three processes.

use std::collections::BTreeSet;
use std::ops::Range;

use verdict::crossing::{Acting, CrossingCell, CrossingRow};
use verdict::{RuleId, Severity};

use crate::stage::{block_size, Seen, Stage, THP};
use crate::Error;

mod admit;
mod build;
mod calls;
mod compare;
mod ledger;
mod mirror;
mod mirrored;
mod model;
mod mounts;
mod operations;
mod play;
mod queue;
mod queued;
mod shown;
mod states;
mod steps;

pub use ledger::{Ledger, BOOT_WORD, FORCE_WORD};
pub use operations::{Operation, OPERATIONS};
pub use states::{State, STATES};

use admit::Here;
use play::Batch;
use states::PMDS;

/// The largest range of a PMD with which hugetlb pages are crossed, in bytes.
const MOST_HUGETLB: u64 = 2 << 20;
/// hugetlb pages for three areas of two each, what `fork()` and migration copy of them, and what lies on either node.
const HUGETLB_PAGES: u64 = 20;
/// The same of the largest ones, of which there is one area of one page.
const HUGETLB_SPANS: u64 = 4;

/// States and operations to play.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// The states.
    pub states: Vec<&'static State>,
    /// Sequences of operations.
    pub operations: Vec<Vec<&'static Operation>>,
}

/// A random choice of sequences of operations.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Number of sequences.
    pub count: usize,
    /// The seed: the same one chooses the same sequences.
    pub seed: u64,
}

/// The longest sequences that are played whole.
const WHOLE_DEPTH: usize = 2;

/// Chooses by names; each may name a state or an operation, and a kind of which none is named is played whole. The first
/// operation of each sequence is one of those, the others are any.
///
/// # Errors
/// Where a name is neither, and where there are too many sequences to play all.
pub fn chosen(only: &[String], depth: usize, sample: Option<Sample>) -> Result<Chosen, Error> {
    for name in only {
        let known =
            STATES.iter().any(|it| it.name == name) || OPERATIONS.iter().any(|it| it.name == name);
        if !known {
            let all = STATES.iter().map(|it| it.name);
            let all: Vec<&str> = all.chain(OPERATIONS.iter().map(|it| it.name)).collect();
            return Err(Error::Input(format!(
                "expected a state or an operation of the crossing and found {name:?}; it has {}",
                all.join(", ")
            )));
        }
    }
    if depth > WHOLE_DEPTH && sample.is_none() {
        return Err(Error::Input(format!(
            "expected --sample with --depth {depth}, as there are too many sequences of more than {WHOLE_DEPTH} operations to play all"
        )));
    }
    let named = |name: &str| only.iter().any(|it| it == name);
    let mut states: Vec<&State> = STATES.iter().filter(|it| named(it.name)).collect();
    if states.is_empty() {
        states = STATES.iter().collect();
    }
    let mut first: Vec<&Operation> = OPERATIONS.iter().filter(|it| named(it.name)).collect();
    if first.is_empty() {
        first = OPERATIONS.iter().collect();
    }
    let operations = match sample {
        Some(sample) => sampled(&first, depth, sample),
        None => all_of(&first, depth),
    };
    Ok(Chosen { states, operations })
}

/// All sequences of so many operations. Nothing is no second one.
fn all_of(first: &[&'static Operation], depth: usize) -> Vec<Vec<&'static Operation>> {
    let mut operations: Vec<Vec<&Operation>> = first.iter().map(|it| vec![*it]).collect();
    for _ in 1..depth {
        let longer = operations.iter().flat_map(|before| {
            let next = OPERATIONS.iter().skip(1);
            next.map(|next| before.iter().copied().chain([next]).collect())
        });
        operations = longer.collect();
    }
    operations
}

/// Some of them, in the order in which they were drawn; fewer if there are no more.
fn sampled(
    first: &[&'static Operation],
    depth: usize,
    Sample { count, seed }: Sample,
) -> Vec<Vec<&'static Operation>> {
    let others = OPERATIONS.len() - 1;
    let all = (1..depth).fold(first.len(), |all, _| all.saturating_mul(others));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut drawn, mut known) = (Vec::new(), BTreeSet::new());
    while drawn.len() < count.min(all) {
        let mut sequence = vec![first[random.usize(..first.len())]];
        sequence.extend((1..depth).map(|_| &OPERATIONS[1 + random.usize(..others)]));
        if known.insert(name_of(&sequence)) {
            drawn.push(sequence);
        }
    }
    drawn
}

/// The name of a sequence of operations.
pub fn name_of(operations: &[&Operation]) -> String {
    let names: Vec<&str> = operations.iter().map(|it| it.name).collect();
    names.join("+")
}

/// Prepares a guest for all batches: a ramfs, and a tmpfs with large folios.
///
/// # Errors
/// Where the guest is lost.
pub fn prepare(guest: &mut crate::guest::Guest) -> Result<Ledger, Error> {
    let page = guest.hello().page_size;
    mounts::mount(guest, 2 * block_size(page))?;
    // One that has fewer leaves these states out. The sizes are those of what a PMD, a group of level 3 and one of PMDs map.
    let pmd = page * page / 8;
    let sizes = [
        (pmd, HUGETLB_PAGES),
        (block_size(page), HUGETLB_PAGES),
        (PMDS * pmd, HUGETLB_SPANS),
    ];
    for (size, pages) in sizes {
        let pool = format!("{}/nr_hugepages", ledger::pool(size));
        if pmd <= MOST_HUGETLB && guest.read_file(&pool)?.is_some() {
            guest.write_file(&pool, &pages.to_string(), None)?;
        }
    }
    Ledger::open(guest, sizes.map(|(size, _)| size))
}

/// Undoes what [`prepare`] did.
///
/// # Errors
/// Where the guest is lost.
pub fn tidy(guest: &mut crate::guest::Guest) -> Result<(), Error> {
    mounts::unmount(guest)
}

/// Result of one batch.
#[derive(Debug)]
pub struct Played {
    /// Its checkpoint in each process.
    pub seen: Vec<Seen>,
    /// For each of these its errors: the rule, and the state in whose area it lies.
    pub errors: Vec<Vec<(RuleId, Option<usize>)>>,
    /// The cells, in the order of the states.
    pub row: CrossingRow,
    /// Error that ended it early.
    pub failed: Option<Error>,
    owners: Owners,
}

impl Played {
    /// Notes an error in the cell that has its address.
    pub fn found(&mut self, va: u64) {
        self.row.found(self.owners.cell(va));
    }
}

/// Plays one batch.
pub fn play(
    mut stage: Stage<'_>,
    states: &[&'static State],
    operations: &[&'static Operation],
    acting: Acting,
) -> Played {
    let mut row = CrossingRow {
        operation: name_of(operations),
        acting,
        cells: Vec::new(),
        elsewhere: 0,
        notified: None,
    };
    let mut owners = Owners::default();
    let outcome = batch(
        &mut stage,
        states,
        operations,
        acting,
        (&mut row, &mut owners),
    );
    let played = stage.end_with(outcome);
    let seen = played.seen.iter();
    let errors: Vec<_> = seen.map(|seen| errors_of(seen, &owners)).collect();
    if let Some(error) = &played.failed {
        let reason = error.to_string();
        row.cells = vec![CrossingCell::NotJudged { reason }; states.len()];
    }
    for (_, cell) in errors.iter().flatten() {
        row.found(*cell);
    }
    Played {
        seen: played.seen,
        errors,
        row,
        failed: played.failed,
        owners,
    }
}

fn batch(
    stage: &mut Stage<'_>,
    states: &[&'static State],
    operations: &[&'static Operation],
    acting: Acting,
    (row, owners): (&mut CrossingRow, &mut Owners),
) -> Result<(), Error> {
    // What it makes of a state in between is no operation's.
    stage.rest_khugepaged()?;
    let swap = stage.swap_on_zram()?;
    let here = Here {
        map: states::Map::Hinted,
        view: 0,
        other: false,
        block: (stage.block() / stage.page()) as usize,
        guards: stage.since(linux::release::Release::new(6, 13, 0)),
        nodes: stage.nodes()? > 1,
        swap,
        moves: stage.since(linux::release::Release::new(6, 8, 0)),
        cgroup: stage.exists(&format!("{}/memory.reclaim", ledger::CGROUP))?,
        ksm: stage.exists("/sys/kernel/mm/ksm/run")?,
        pins: stage.exists("/sys/kernel/debug/gup_test")?,
        splits: stage.exists("/sys/kernel/debug/split_huge_pages")?,
        hugetlb: stage.pmd() <= MOST_HUGETLB
            && stage.has_huge_pages_of(stage.pmd(), HUGETLB_PAGES)?,
        hugetlb_spans: stage.pmd() <= MOST_HUGETLB
            && stage.has_huge_pages_of(PMDS * stage.pmd(), HUGETLB_SPANS)?,
        hugetlb_blocks: stage.has_huge_pages_of(stage.block(), HUGETLB_PAGES)?,
        read_ahead: stage.exists(&mounts::read_ahead())?,
        khugepaged: stage.exists(&format!("{THP}/khugepaged/full_scans"))?,
        clears: stage.exists("/proc/1/clear_refs")?,
        hints: stage.balances()?,
        seals: stage.since(linux::release::Release::new(6, 10, 0)),
        poisons: stage.exists("/proc/sys/vm/memory_failure_recovery")?,
        swapped: false,
        unit: 1,
        uffd: stage.exists("/proc/sys/vm/unprivileged_userfaultfd")?,
    };
    let label = row.name();
    let mut batch = Batch::build(stage, states, here, &format!("{label}: the states"))?;
    // If the batch fails on the way, these are known.
    *owners = Owners::of(&batch.cells);
    if acting != Acting::Alone {
        batch.fork(acting == Acting::Child)?;
    }
    let outcome = operate(&mut batch, operations, &label);
    // A batch that failed has what it found until then.
    let added = batch.add_differences();
    let stale = batch.add_stale();
    *owners = Owners::of(&batch.cells);
    outcome?;
    added?;
    row.notified = stale?;
    row.cells = batch.cells.iter().map(outcome_of).collect();
    Ok(())
}

/// Plays the operations in the states, looks at each process, and has each compare its memory with the model.
fn operate(
    batch: &mut Batch<'_, '_>,
    operations: &[&'static Operation],
    label: &str,
) -> Result<(), Error> {
    batch.mirror()?;
    for operation in operations {
        batch.operation(operation.steps)?;
    }
    let actor = batch.actor();
    if let Some(last) = operations.last() {
        batch.as_left_by(last.steps);
    }
    batch.unheld()?;
    batch.stage().check(actor, label)?;
    if let Some(other) = batch.other() {
        batch
            .stage()
            .check(other, &format!("{label}: the other process"))?;
    }
    batch.verify()?;
    batch.verify_files()?;
    batch.last_stores()?;
    batch.verify_pins()?;
    // A process that is alone reads back what it has just stored.
    if batch.other().is_some() {
        batch.verify()?;
    }
    batch.compare_mirrors()
}

/// The errors of a look, with the cell in whose area each lies.
fn errors_of(seen: &Seen, owners: &Owners) -> Vec<(RuleId, Option<usize>)> {
    let verdicts = seen.look.judged.processes.iter();
    let findings = verdicts.flat_map(|verdict| &verdict.findings);
    let errors = findings.filter(|it| it.severity == Severity::Error);
    errors.map(|it| (it.rule, owners.cell(it.va.0))).collect()
}

fn outcome_of(cell: &play::Cell) -> CrossingCell {
    let not_judged = cell.refused.as_ref().or(cell.unseen.as_ref());
    match (cell.left_out, not_judged) {
        (Some(why), _) => CrossingCell::LeftOut { reason: why.into() },
        (_, Some(why)) => CrossingCell::NotJudged {
            reason: why.clone(),
        },
        _ => CrossingCell::Green,
    }
}

/// Which cell a range of addresses belongs to.
#[derive(Clone, Debug, Default)]
struct Owners(Vec<(Range<u64>, usize)>);

impl Owners {
    fn of(cells: &[play::Cell]) -> Self {
        let ranges = cells.iter().enumerate();
        Self(
            ranges
                .flat_map(|(at, cell)| cell.ranges.iter().map(move |range| (range.clone(), at)))
                .collect(),
        )
    }

    /// The cell of an address; the newest of its areas, where one took an old one's place.
    fn cell(&self, va: u64) -> Option<usize> {
        let found = self.0.iter().rev().find(|(range, _)| range.contains(&va));
        found.map(|(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_newest_area_there() {
        let owners = Owners(vec![(0..10, 0), (20..30, 1), (0..10, 1)]);
        assert_eq!(
            [5, 25, 15].map(|va| owners.cell(va)),
            [Some(1), Some(1), None]
        );
    }

    #[test]
    fn names_choose_states_and_operations() {
        let all = chosen(&[], 1, None).unwrap();
        assert_eq!(all.states.len(), STATES.len());
        assert_eq!(all.operations.len(), OPERATIONS.len());
        let some = chosen(&["swapped".into(), "move".into()], 1, None).unwrap();
        assert_eq!((some.states.len(), some.operations.len()), (1, 1));
        let two = chosen(&["move".into()], 2, None).unwrap();
        // Nothing is no second one.
        assert_eq!(two.operations.len(), OPERATIONS.len() - 1);
        assert_eq!(name_of(&two.operations[0]), "move+read");
        let error = chosen(&["frozen".into()], 1, None).unwrap_err().to_string();
        assert!(error.contains("frozen") && error.contains("swapped-in-part"));
    }

    #[test]
    fn a_seed_draws_the_same_sequences_and_each_once() {
        let names = |depth, count, seed| {
            let only = ["move".into(), "read".into()];
            let chosen = chosen(&only, depth, Some(Sample { count, seed })).unwrap();
            let names = chosen.operations.iter().map(|it| name_of(it));
            names.collect::<Vec<String>>()
        };
        let drawn = names(3, 40, 7);
        assert_eq!((drawn.len(), &drawn), (40, &names(3, 40, 7)));
        assert_ne!(drawn, names(3, 40, 8));
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 40);
        let of_three = |name: &&String| name.split('+').count() == 3 && !name.contains("+nothing");
        assert_eq!(drawn.iter().filter(of_three).count(), 40);
        let begins = |name: &&String| name.starts_with("move+") || name.starts_with("read+");
        assert_eq!(drawn.iter().filter(begins).count(), 40);
        // There are no more of them.
        assert_eq!(names(1, 40, 7).len(), 2);
        let error = chosen(&[], 3, None).unwrap_err().to_string();
        assert!(error.contains("--sample"), "{error}");
    }

    #[test]
    fn each_state_is_to_be_seen() {
        let unseen = STATES.iter().filter(|state| state.sights.is_empty());
        assert_eq!(unseen.map(|state| state.name).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn names_are_unique() {
        let names = STATES.iter().map(|it| it.name);
        let mut names: Vec<&str> = names.chain(OPERATIONS.iter().map(|it| it.name)).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
