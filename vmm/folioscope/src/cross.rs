// SPDX-License-Identifier: GPL-2.0-only
//! The crossing: every state of memory under every operation, alone, in a parent and in a child.
//!
//! States and operations are two tables; what must be true afterwards comes from one model of memory and from the rules.
//! Areas of one batch share a process: a batch is one operation, in one of the three processes.

use std::ops::Range;

use verdict::crossing::{Acting, CrossingCell, CrossingRow};
use verdict::{RuleId, Severity};

use crate::stage::{block_size, Seen, Stage, THP};
use crate::Error;

mod admit;
mod beside;
mod build;
mod busy;
mod calls;
mod choice;
mod compare;
mod files;
mod ledger;
mod maps;
mod mirror;
mod mirrored;
mod model;
mod mounts;
mod operations;
mod pins;
mod play;
mod queue;
mod queued;
mod shown;
mod stated;
mod states;
mod steps;
mod uffd;

pub use choice::{chosen, name_of, Chosen, Sample};
pub use ledger::{Ledger, BOOT_WORD, FORCE_WORD};
pub use operations::{Operation, OPERATIONS};
pub use states::{State, STATES};

use admit::Here;
use maps::PMDS;
use play::{Batch, COMPACT};

/// Hundredths of a second between two of the kernel's own writebacks of old dirty pages; with 0 there are none.
const WRITEBACK: &str = "/proc/sys/vm/dirty_writeback_centisecs";
/// The most memory that a pool of hugetlb pages of one size takes, in bytes: at 16K and 64K those of a block alone.
const MOST_HUGETLB: u64 = 128 << 20;
/// hugetlb pages for three areas of two each, what `fork()` and migration copy of them, and what lies on either node.
const HUGETLB_PAGES: u64 = 20;
/// hugetlb pages of a block's size for an area in three tables, and what migration copies of them.
const HUGETLB_FAR: u64 = 80;
/// The same of the largest ones, of which there is one area of one page.
const HUGETLB_SPANS: u64 = 4;

/// Prepares a guest for all batches: a ramfs, and a tmpfs with large folios.
///
/// # Errors
/// Where the guest is lost.
pub fn prepare(guest: &mut crate::guest::Guest) -> Result<Ledger, Error> {
    let page = guest.hello().page_size;
    // What it makes clean and read-only in between is no operation's either. The guest ends with the crossing.
    if guest.read_file(WRITEBACK)?.is_some() {
        guest.write_file(WRITEBACK, "0", None)?;
    }
    mounts::mount(guest, 2 * block_size(page))?;
    // One that has fewer leaves these states out. The sizes are those of what a PMD, a group of level 3 and one of PMDs map.
    let pmd = page * page / 8;
    let sizes = [
        (pmd, HUGETLB_PAGES),
        (block_size(page), HUGETLB_PAGES + HUGETLB_FAR),
        (PMDS * pmd, HUGETLB_SPANS),
    ];
    for (size, pages) in sizes {
        let pool = format!("{}/nr_hugepages", ledger::pool(size));
        if size * pages <= MOST_HUGETLB && guest.read_file(&pool)?.is_some() {
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
    // Nor does a file's fault compact memory for a folio of a PMD's size, which rows before may have left none of.
    if stage.exists(COMPACT)? {
        stage.set(COMPACT, "1")?;
    }
    let swap = stage.has_zram()?;
    let here = Here {
        map: maps::Map::Hinted,
        view: 0,
        other: false,
        block: (stage.block() / stage.page()) as usize,
        guards: stage.since(linux::release::Release::new(6, 13, 0)),
        nodes: stage.nodes()? > 1,
        swap,
        swap_disk: match swap {
            true => mounts::swap(stage)?,
            false => None,
        },
        moves: stage.since(linux::release::Release::new(6, 8, 0)),
        cgroup: stage.exists(&format!("{}/memory.reclaim", ledger::CGROUP))?,
        ksm: stage.exists("/sys/kernel/mm/ksm/run")?,
        pins: stage.exists("/sys/kernel/debug/gup_test")?,
        splits: stage.exists("/sys/kernel/debug/split_huge_pages")?,
        hugetlb: stage.has_huge_pages_of(stage.pmd(), HUGETLB_PAGES)?,
        hugetlb_spans: stage.has_huge_pages_of(PMDS * stage.pmd(), HUGETLB_SPANS)?,
        hugetlb_blocks: stage.has_huge_pages_of(stage.block(), HUGETLB_PAGES)?,
        read_ahead: stage.exists(&mounts::read_ahead())?,
        disk: mounts::has_stored(stage)?,
        khugepaged: stage.exists(&format!("{THP}/khugepaged/full_scans"))?,
        clears: stage.exists("/proc/1/clear_refs")?,
        hints: stage.has_numa_balancing()?,
        clean_from_zram: !stage.since(linux::release::Release::new(7, 3, 0)),
        // Before, a hole split such a folio into single pages (`folio_split()`).
        maps_beyond: stage.since(linux::release::Release::new(6, 15, 0)),
        seals: stage.since(linux::release::Release::new(6, 10, 0)),
        poisons: stage.exists("/proc/sys/vm/memory_failure_recovery")?,
        parted: false,
        unit: 1,
        read_back: false,
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
    if let Some((last, before)) = operations.split_last() {
        batch.as_left_by(last.steps, before.is_empty());
        if before.is_empty() {
            batch.folded(last);
        }
    }
    batch.unheld()?;
    batch.exclusive(operations);
    batch.may_not_go(operations);
    batch.stage().check(actor, label)?;
    if let Some(other) = batch.other() {
        batch
            .stage()
            .check(other, &format!("{label}: the other process"))?;
    }
    batch.verify()?;
    batch.verify_files()?;
    batch.evict_and_verify()?;
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
    errors
        .map(|it| (it.rule, owners.cell_of(it.va.0..it.end.0)))
        .collect()
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

    /// The cell of a finding: that of its first address; if that is no area's, as that of an entry before, the next one's.
    fn cell_of(&self, found: Range<u64>) -> Option<usize> {
        let next = || {
            let behind = self
                .0
                .iter()
                .filter(|(range, _)| found.contains(&range.start));
            behind.min_by_key(|(range, _)| range.start)
        };
        let first = self.cell(found.start);
        first.or_else(|| next().map(|(_, at)| *at))
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
        let found = [12..22, 12..18, 5..25].map(|range| owners.cell_of(range));
        assert_eq!(found, [Some(1), None, Some(1)]);
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
