//! The tour: fixed workloads, and what must be folded after each step.
//!
//! A step ends at a checkpoint, where the rules are applied and, beyond them, the expectations
//! that follow from the step: blocks that Linux folds right there, and blocks that it must not
//! fold. Sizes are in blocks (what one contiguous group maps: 16 pages at 4K, 128 at 16K, 32 at
//! 64K) and pages, so that one text serves every granule.

use protocol::{Advice, ProcessId};

use crate::ops::{advise, map};
use crate::stage::{Stage, StageResult};

mod advice;
mod collapse;
mod first;
mod huge;
mod merge;
mod moves;
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
    /// What it does, for people.
    pub title: &'static str,
    /// Runs it to its end.
    pub run: fn(&mut Stage<'_>) -> StageResult,
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The workloads in the order of the tour.
pub const WORKLOADS: [Workload; 26] = [
    Workload {
        name: "anon",
        title: "anonymous faults: forward, backward, sparse, across a VMA's ends",
        run: first::anon,
    },
    Workload {
        name: "neighbour",
        title: "a fault beside a page that is already there",
        run: first::neighbour,
    },
    Workload {
        name: "munmap",
        title: "munmap of a part of a block",
        run: first::munmap,
    },
    Workload {
        name: "mprotect",
        title: "mprotect of a part and of a whole block",
        run: first::mprotect,
    },
    Workload {
        name: "dontneed",
        title: "MADV_DONTNEED of one page",
        run: first::dontneed,
    },
    Workload {
        name: "fork",
        title: "fork, then a write in the child",
        run: first::fork,
    },
    Workload {
        name: "shmem",
        title: "anonymous shared memory",
        run: first::shmem,
    },
    Workload {
        name: "thp",
        title: "a PMD-sized huge page, then its split",
        run: huge::thp,
    },
    Workload {
        name: "allocfail",
        title: "allocation fails at the preferred order",
        run: first::allocfail,
    },
    Workload {
        name: "zeropage",
        title: "a zero page, then writes beside it and to it",
        run: first::zeropage,
    },
    Workload {
        name: "sizes",
        title: "only sizes below a block's are enabled",
        run: first::sizes,
    },
    Workload {
        name: "vma",
        title: "VMAs that start and end inside a block, their split and merge",
        run: vma::vma,
    },
    Workload {
        name: "mlock",
        title: "mlock of an area, munlock of half a block",
        run: vma::mlock,
    },
    Workload {
        name: "mremap",
        title: "mremap by blocks, by a page, within and across tables",
        run: moves::mremap,
    },
    Workload {
        name: "free",
        title: "MADV_FREE and MADV_COLD of a whole block and of one page",
        run: advice::free,
    },
    Workload {
        name: "populate",
        title: "MADV_POPULATE_READ and MADV_POPULATE_WRITE",
        run: advice::populate,
    },
    Workload {
        name: "swap",
        title: "swapped out to zram, and in again",
        run: swap::swap,
    },
    Workload {
        name: "migrate",
        title: "moved to another NUMA node and back",
        run: moves::migrate,
    },
    Workload {
        name: "compact",
        title: "compaction of all memory",
        run: moves::compact,
    },
    Workload {
        name: "collapse",
        title: "khugepaged makes blocks of single pages",
        run: collapse::collapse,
    },
    Workload {
        name: "ksm",
        title: "equal pages merged, and one of them written to",
        run: merge::ksm,
    },
    Workload {
        name: "hugetlb",
        title: "hugetlb pages of each size that fits",
        run: huge::hugetlb,
    },
    Workload {
        name: "uffd",
        title: "userfaultfd: write protection, and pages that are missing",
        run: uffd::uffd,
    },
    Workload {
        name: "hole",
        title: "a hole punched into shared memory",
        run: shared::hole,
    },
    Workload {
        name: "tmpfs",
        title: "a file on tmpfs, mapped by two processes at different offsets",
        run: shared::tmpfs,
    },
    Workload {
        name: "text",
        title: "executable memory of a file that is read ahead",
        run: text::text,
    },
];

/// A process and an area of `blocks` blocks in it that asks for huge pages, not touched yet.
fn hinted(stage: &mut Stage<'_>, blocks: u64) -> Result<(ProcessId, u64), crate::Error> {
    let process = stage.spawn()?;
    let area = hinted_in(stage, process, blocks * stage.block(), 0)?;
    Ok((process, area))
}

fn hinted_in(
    stage: &mut Stage<'_>,
    process: ProcessId,
    length: u64,
    offset: u64,
) -> Result<u64, crate::Error> {
    let area = stage.map(process, map(length, offset))?;
    stage.op(process, advise(area, length, Advice::Hugepage))?;
    Ok(area)
}

/// What the rules may know of a range that was just written page by page: a fault for a write makes every entry of its
/// folio dirty and young.
fn fresh_and_written(stage: &mut Stage<'_>, process: ProcessId, start: u64, length: u64) {
    stage.fresh(process, start, length);
    stage.written(process, start, length);
    stage.writable(process, start, length);
    carried(stage, process, start, length);
}

/// What was dirty and young is so still, in every raw entry: software carried it.
fn carried(stage: &mut Stage<'_>, process: ProcessId, start: u64, length: u64) {
    stage.dirty(process, start, length);
    stage.young(process, start, length);
}
