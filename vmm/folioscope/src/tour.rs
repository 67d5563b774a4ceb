//! The tour: ten fixed workloads, and what must be folded after each step.
//!
//! A step ends at a checkpoint, where the rules are applied and, beyond them, the expectations
//! that follow from the step: blocks that Linux folds right there, and blocks that it must not
//! fold. Sizes are in blocks (what one contiguous group maps: 16 pages at 4K, 128 at 16K, 32 at
//! 64K) and pages, so that one text serves every granule.

use protocol::{Access, Advice, Order, ProcessId, Protection};

use crate::ops::{advise, map, map_shared, protect, touch, write};
use crate::stage::{Stage, StageResult};

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
pub const WORKLOADS: [Workload; 10] = [
    Workload {
        name: "anon",
        title: "anonymous faults: forward, backward, sparse, across a VMA's ends",
        run: anon,
    },
    Workload {
        name: "neighbour",
        title: "a fault beside a page that is already there",
        run: neighbour,
    },
    Workload {
        name: "munmap",
        title: "munmap of a part of a block",
        run: munmap,
    },
    Workload {
        name: "mprotect",
        title: "mprotect of a part and of a whole block",
        run: mprotect,
    },
    Workload {
        name: "dontneed",
        title: "MADV_DONTNEED of one page",
        run: dontneed,
    },
    Workload {
        name: "fork",
        title: "fork, then a write in the child",
        run: fork,
    },
    Workload {
        name: "shmem",
        title: "anonymous shared memory",
        run: shmem,
    },
    Workload {
        name: "thp",
        title: "a PMD-sized huge page, then its split",
        run: thp,
    },
    Workload {
        name: "allocfail",
        title: "allocation fails at the preferred order",
        run: allocfail,
    },
    Workload {
        name: "zeropage",
        title: "a zero page, then writes beside it and to it",
        run: zeropage,
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

/// What the rules may know of a range that was just written page by page.
fn fresh_and_written(stage: &mut Stage<'_>, process: ProcessId, start: u64, length: u64) {
    stage.fresh(process, start, length);
    stage.written(process, start, length);
}

fn anon(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let (process, forward) = hinted(stage, 4)?;
    stage.op(process, write(forward, 4 * block))?;
    stage.anon_folded(process, forward, 4 * block);
    fresh_and_written(stage, process, forward, 4 * block);
    stage.check(process, "forward")?;

    let backward = hinted_in(stage, process, 4 * block, 0)?;
    stage.op(
        process,
        touch(backward, 4 * block, Access::Write, Order::Backward),
    )?;
    stage.anon_folded(process, backward, 4 * block);
    fresh_and_written(stage, process, backward, 4 * block);
    stage.check(process, "backward")?;

    // One write in every other block brings in the whole of that block, and nothing between.
    let sparse = hinted_in(stage, process, 8 * block, 0)?;
    for index in (0..8).step_by(2) {
        stage.op(process, write(sparse + index * block + 3 * page, page))?;
        stage.anon_folded(process, sparse + index * block, block);
        stage.not_folded(process, sparse + (index + 1) * block, block);
        stage.written(process, sparse + index * block + 3 * page, page);
    }
    stage.fresh(process, sparse, 8 * block);
    stage.check(process, "sparse")?;

    // Half a block, a whole one, half a block: only the middle one fits.
    let ends = hinted_in(stage, process, 2 * block, block / 2)?;
    stage.op(process, write(ends, 2 * block))?;
    stage.anon_folded(process, ends + block / 2, block);
    stage.not_folded(process, ends, block / 2);
    stage.not_folded(process, ends + 3 * block / 2, block / 2);
    fresh_and_written(stage, process, ends, 2 * block);
    stage.check(process, "ends")
}

fn neighbour(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let process = stage.spawn()?;
    let area = stage.map(process, map(2 * block, 0))?;
    stage.op(process, advise(area, 2 * block, Advice::Nohugepage))?;
    stage.op(process, write(area + block / 2 + page, page))?;
    stage.op(process, advise(area, 2 * block, Advice::Hugepage))?;
    stage.op(process, write(area, page))?;
    stage.op(process, write(area + block, page))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    stage.fresh(process, area, 2 * block);
    for address in [area, area + block / 2 + page, area + block] {
        stage.written(process, address, page);
    }
    stage.check(process, "beside")?;

    // The rest of the block comes in smaller pieces: full, but not one folio.
    stage.op(process, write(area, block))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    stage.fresh(process, area, 2 * block);
    stage.written(process, area, block);
    stage.check(process, "filled")
}

fn munmap(stage: &mut Stage<'_>) -> StageResult {
    let block = stage.block();
    let (process, area) = hinted(stage, 2)?;
    stage.op(process, write(area, 2 * block))?;
    stage.anon_folded(process, area, 2 * block);
    fresh_and_written(stage, process, area, 2 * block);
    stage.check(process, "populated")?;

    stage.op(
        process,
        protocol::Operation::Munmap {
            address: area + 3 * block / 4,
            length: block / 4,
        },
    )?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    stage.written(process, area, 3 * block / 4);
    stage.written(process, area + block, block);
    stage.check(process, "partial")
}

fn mprotect(stage: &mut Stage<'_>) -> StageResult {
    let block = stage.block();
    let (process, area) = hinted(stage, 3)?;
    stage.op(process, write(area, 3 * block))?;
    stage.anon_folded(process, area, 3 * block);
    fresh_and_written(stage, process, area, 3 * block);
    stage.check(process, "populated")?;

    stage.op(process, protect(area, block / 2, &[Protection::Read]))?;
    stage.op(process, protect(area + block, block, &[Protection::Read]))?;
    stage.op(process, protect(area + 2 * block, block, &[]))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    stage.not_folded(process, area + 2 * block, block);
    stage.written(process, area, 2 * block);
    stage.check(process, "protected")?;

    let both = [Protection::Read, Protection::Write];
    stage.op(process, protect(area + block, block, &both))?;
    stage.op(process, protect(area + 2 * block, block, &both))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, 2 * block);
    stage.written(process, area, 3 * block);
    stage.check(process, "restored")
}

fn dontneed(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let (process, area) = hinted(stage, 2)?;
    stage.op(process, write(area, 2 * block))?;
    stage.op(process, advise(area + 5 * page, page, Advice::Dontneed))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    stage.written(process, area, 5 * page);
    stage.written(process, area + 6 * page, 2 * block - 6 * page);
    stage.check(process, "hole")?;

    stage.op(process, write(area + 5 * page, page))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    stage.written(process, area, 2 * block);
    stage.check(process, "refilled")
}

fn fork(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let (parent, area) = hinted(stage, 2)?;
    stage.op(parent, write(area, 2 * block))?;
    let child = stage.fork(parent)?;
    stage.anon_folded(parent, area, 2 * block);
    stage.check(parent, "parent")?;
    stage.anon_folded(child, area, 2 * block);
    stage.check(child, "child")?;

    stage.op(child, write(area + 2 * page, page))?;
    stage.not_folded(child, area, block);
    stage.anon_folded(child, area + block, block);
    stage.written(child, area + 2 * page, page);
    stage.check(child, "child-wrote")?;
    stage.anon_folded(parent, area, 2 * block);
    stage.check(parent, "parent-after")
}

fn shmem(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    if !stage.shmem_blocks() {
        return stage.leave_out(
            "the kernel has no shmem folios of the contiguous size (hugepages-*kB/shmem_enabled)",
        );
    }
    let process = stage.spawn()?;
    let area = stage.map(process, map_shared(2 * block))?;
    stage.op(process, write(area + 2 * page, page))?;
    stage.folded(process, area, block);
    stage.not_folded(process, area + block, block);
    stage.check(process, "first")?;

    stage.op(process, write(area, 2 * block))?;
    stage.folded(process, area, 2 * block);
    stage.check(process, "both")
}

fn thp(stage: &mut Stage<'_>) -> StageResult {
    let (block, page, pmd) = (stage.block(), stage.page(), stage.pmd());
    if stage.page() == 65536 {
        return stage.leave_out(
            "a 64K granule's PMD page is 512 MiB, more than a guest of this size has in one piece",
        );
    }
    if !stage.pmd_pages() {
        return stage.leave_out(
            "transparent huge pages are off in this guest (it needs 512 MiB of memory for them)",
        );
    }
    let process = stage.spawn()?;
    let area = hinted_in(stage, process, pmd, 0)?;
    stage.op(process, write(area, page))?;
    stage.not_folded(process, area, pmd);
    stage.check(process, "huge")?;

    // Splitting the PMD maps the same folio by pages: every block that nothing else touched is folded.
    stage.op(
        process,
        protect(area + block + page, page, &[Protection::Read]),
    )?;
    stage.folded(process, area, block);
    stage.not_folded(process, area + block, block);
    stage.folded(process, area + 2 * block, pmd - 2 * block);
    stage.check(process, "split")
}

fn allocfail(stage: &mut Stage<'_>) -> StageResult {
    let block = stage.block();
    if !stage.can_fail_allocations() {
        return stage.leave_out("the kernel has no CONFIG_FAIL_PAGE_ALLOC with debugfs, so allocations cannot be made to fail");
    }
    let (process, area) = hinted(stage, 2)?;
    stage.fail_allocations(process, stage.block_order())?;
    let wrote = stage.op(process, write(area, block));
    stage.allow_allocations(process)?;
    wrote?;
    stage.not_folded(process, area, block);
    fresh_and_written(stage, process, area, block);
    stage.check(process, "failing")?;

    stage.op(process, write(area + block, block))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    fresh_and_written(stage, process, area, 2 * block);
    stage.check(process, "recovered")
}

fn zeropage(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let (process, area) = hinted(stage, 2)?;
    let zero = area + block / 2 + 3 * page;
    stage.op(process, touch(zero, page, Access::Read, Order::Forward))?;
    stage.not_folded(process, area, block);
    stage.not_written(process, area, 2 * block);
    stage.check(process, "read")?;

    stage.op(process, write(area, page))?;
    stage.op(process, write(zero, page))?;
    stage.op(process, write(area + block, page))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    for address in [area, zero, area + block] {
        stage.written(process, address, page);
    }
    stage.check(process, "written")
}
