// SPDX-License-Identifier: GPL-2.0-only
//! The tour: fixed workloads, and the blocks that must be folded after each step.
//!
//! A step ends at a checkpoint. There the rules are applied and also the expectations that follow from the step: blocks
//! that Linux folds right there, and blocks that it must not fold. Sizes are in blocks (the span of one contiguous
//! group: 16 pages at 4K, 128 at 16K, 32 at 64K) and pages, so that one text serves every granule.

use protocol::{Advice, ProcessId};

use crate::ops::{advise, map};
use crate::stage::{Stage, StageResult};
use crate::Error;

mod advice;
mod collapse;
mod first;
mod huge;
mod merge;
mod moves;
mod sequences;
mod shared;
mod swap;
mod text;
mod uffd;
mod vma;

/// One workload of the tour.
#[derive(Clone, Copy)]
pub struct Workload {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// Its description, for people.
    pub title: &'static str,
    /// Runs it to its end.
    pub run: fn(&mut Stage<'_>) -> StageResult,
    /// True if it is about sequences: then it is played if they are recorded, or if it is named.
    pub sequences: bool,
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The workloads in the order of the tour. Those about sequences come first: they need memory in large pieces.
pub const WORKLOADS: &[Workload] = &[
    sequences::UNFOLDED,
    sequences::HUGECOW,
    sequences::REUSE,
    first::ANON,
    first::NEIGHBOUR,
    first::MUNMAP,
    first::MPROTECT,
    first::DONTNEED,
    first::FORK,
    first::SHMEM,
    huge::THP,
    first::ALLOCFAIL,
    first::ZEROPAGE,
    first::SIZES,
    vma::VMA,
    vma::MLOCK,
    moves::MREMAP,
    advice::FREE,
    advice::POPULATE,
    swap::SWAP,
    moves::MIGRATE,
    moves::COMPACT,
    collapse::COLLAPSE,
    merge::KSM,
    huge::HUGETLB,
    uffd::UFFD,
    shared::HOLE,
    shared::TMPFS,
    text::TEXT,
];

/// Returns the workloads of these names; if there are none all of the tour, with those about sequences if they are
/// `recorded`.
///
/// # Errors
/// If there is no workload of a name.
pub fn chosen(only: &[String], recorded: bool) -> Result<Vec<Workload>, Error> {
    let named = |name: &str| WORKLOADS.iter().any(|workload| workload.name == name);
    if let Some(unknown) = only.iter().find(|name| !named(name)) {
        // Those of every tour first.
        let (more, all): (Vec<&Workload>, Vec<&Workload>) =
            WORKLOADS.iter().partition(|workload| workload.sequences);
        let names: Vec<&str> = all
            .iter()
            .chain(&more)
            .map(|workload| workload.name)
            .collect();
        return Err(Error::Input(format!(
            "there is no workload {unknown:?} in the tour; it has {}",
            names.join(", ")
        )));
    }
    let chosen = |workload: &Workload| match only {
        [] => recorded || !workload.sequences,
        _ => only.iter().any(|name| name == workload.name),
    };
    Ok(WORKLOADS.iter().copied().filter(chosen).collect())
}

/// Creates a process and an area of `blocks` blocks in it with MADV_HUGEPAGE, not touched yet.
fn hinted(stage: &mut Stage<'_>, blocks: u64) -> Result<(ProcessId, u64), Error> {
    let process = stage.spawn()?;
    let area = hinted_in(stage, process, blocks * stage.block(), 0)?;
    Ok((process, area))
}

fn hinted_in(
    stage: &mut Stage<'_>,
    process: ProcessId,
    length: u64,
    offset: u64,
) -> Result<u64, Error> {
    let area = stage.map(process, map(length, offset))?;
    stage.op(process, advise(area, length, Advice::Hugepage))?;
    Ok(area)
}

/// States what the rules may assume of a range that was just written page by page: a write fault makes every entry of
/// its folio dirty and young.
fn fresh_and_written(stage: &mut Stage<'_>, process: ProcessId, start: u64, length: u64) {
    stage.fresh(process, start, length);
    stage.written(process, start, length);
    stage.writable(process, start, length);
    carried(stage, process, start, length);
}

/// States that entries that were dirty and young still are, in every raw entry: software carried it over.
fn carried(stage: &mut Stage<'_>, process: ProcessId, start: u64, length: u64) {
    stage.dirty(process, start, length);
    stage.young(process, start, length);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str], recorded: bool) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
        let chosen = chosen(&only, recorded).expect("all of them are there");
        chosen.iter().map(|workload| workload.name).collect()
    }

    #[test]
    fn one_list_with_and_without_the_recorder() {
        let (plain, recorded) = (names(&[], false), names(&[], true));
        assert_eq!(recorded.len(), WORKLOADS.len());
        let more: Vec<_> = recorded
            .iter()
            .filter(|name| !plain.contains(name))
            .collect();
        assert_eq!(more, [&"unfolded", &"hugecow", &"reuse"]);
        // By its name each is played either way.
        for recorded in [false, true] {
            assert_eq!(names(&["anon", "reuse"], recorded), ["reuse", "anon"]);
        }
        assert!(chosen(&["none".into()], true).is_err());
    }
}
