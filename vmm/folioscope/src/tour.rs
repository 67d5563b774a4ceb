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
pub const WORKLOADS: [Workload; 29] = [
    Workload {
        name: "unfolded",
        title: "mprotect of a whole block that is present and not folded",
        run: sequences::unfolded,
        sequences: true,
    },
    Workload {
        name: "hugecow",
        title: "a hugetlb page of a contiguous group, copied on write after fork",
        run: sequences::hugetlb_copied,
        sequences: true,
    },
    Workload {
        name: "reuse",
        title:
            "memory that is given back and taken again, at its own address and by another process",
        run: sequences::given_back,
        sequences: true,
    },
    Workload {
        name: "anon",
        title: "anonymous faults: forward, backward, sparse, across a VMA's ends",
        run: first::anon,
        sequences: false,
    },
    Workload {
        name: "neighbour",
        title: "a fault beside a page that is already there",
        run: first::neighbour,
        sequences: false,
    },
    Workload {
        name: "munmap",
        title: "munmap of a part of a block",
        run: first::munmap,
        sequences: false,
    },
    Workload {
        name: "mprotect",
        title: "mprotect of a part and of a whole block",
        run: first::mprotect,
        sequences: false,
    },
    Workload {
        name: "dontneed",
        title: "MADV_DONTNEED of one page",
        run: first::dontneed,
        sequences: false,
    },
    Workload {
        name: "fork",
        title: "fork, then a write in the child",
        run: first::fork,
        sequences: false,
    },
    Workload {
        name: "shmem",
        title: "anonymous shared memory",
        run: first::shmem,
        sequences: false,
    },
    Workload {
        name: "thp",
        title: "a PMD-sized huge page, then its split",
        run: huge::thp,
        sequences: false,
    },
    Workload {
        name: "allocfail",
        title: "allocation fails at the preferred order",
        run: first::allocfail,
        sequences: false,
    },
    Workload {
        name: "zeropage",
        title: "a zero page, then writes beside it and to it",
        run: first::zeropage,
        sequences: false,
    },
    Workload {
        name: "sizes",
        title: "only sizes below a block's are enabled",
        run: first::sizes,
        sequences: false,
    },
    Workload {
        name: "vma",
        title: "VMAs that start and end inside a block, their split and merge",
        run: vma::vma,
        sequences: false,
    },
    Workload {
        name: "mlock",
        title: "mlock of an area, munlock of half a block",
        run: vma::mlock,
        sequences: false,
    },
    Workload {
        name: "mremap",
        title: "mremap by blocks, by a page, within and across tables",
        run: moves::mremap,
        sequences: false,
    },
    Workload {
        name: "free",
        title: "MADV_FREE and MADV_COLD of a whole block and of one page",
        run: advice::free,
        sequences: false,
    },
    Workload {
        name: "populate",
        title: "MADV_POPULATE_READ and MADV_POPULATE_WRITE",
        run: advice::populate,
        sequences: false,
    },
    Workload {
        name: "swap",
        title: "swapped out to zram, and in again",
        run: swap::swap,
        sequences: false,
    },
    Workload {
        name: "migrate",
        title: "moved to another NUMA node and back",
        run: moves::migrate,
        sequences: false,
    },
    Workload {
        name: "compact",
        title: "compaction of all memory",
        run: moves::compact,
        sequences: false,
    },
    Workload {
        name: "collapse",
        title: "khugepaged makes blocks of single pages",
        run: collapse::collapse,
        sequences: false,
    },
    Workload {
        name: "ksm",
        title: "equal pages merged, and one of them written to",
        run: merge::ksm,
        sequences: false,
    },
    Workload {
        name: "hugetlb",
        title: "hugetlb pages of each size that fits",
        run: huge::hugetlb,
        sequences: false,
    },
    Workload {
        name: "uffd",
        title: "userfaultfd: write protection, and pages that are missing",
        run: uffd::uffd,
        sequences: false,
    },
    Workload {
        name: "hole",
        title: "a hole punched into shared memory",
        run: shared::hole,
        sequences: false,
    },
    Workload {
        name: "tmpfs",
        title: "a file on tmpfs, mapped by two processes at different offsets",
        run: shared::tmpfs,
        sequences: false,
    },
    Workload {
        name: "text",
        title: "executable memory of a file that is read ahead",
        run: text::text,
        sequences: false,
    },
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
        let (more, all): (Vec<Workload>, Vec<Workload>) = WORKLOADS
            .into_iter()
            .partition(|workload| workload.sequences);
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
    Ok(WORKLOADS.into_iter().filter(chosen).collect())
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
