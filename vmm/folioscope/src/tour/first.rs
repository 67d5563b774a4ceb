// SPDX-License-Identifier: GPL-2.0-only
//! Anonymous faults and what unfolds a block, shared memory, failing allocations, zero pages.

use protocol::{Access, Advice, Order, ProcessId, Protection};

use super::{carried, fresh_and_written, hinted, hinted_in, Workload};
use crate::ops::{advise, map, map_shared, protect, touch, write, write_salted};
use crate::stage::{Stage, StageResult};

pub(super) const ANON: Workload = Workload {
    name: "anon",
    title: "anonymous faults: forward, backward, sparse, across a VMA's ends",
    run: anon,
    sequences: false,
};

fn anon(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let (process, forward) = hinted(stage, 4)?;
    stage.op(process, write(forward, 4 * block))?;
    stage.anon_folded(process, forward, 4 * block);
    fresh_and_written(stage, process, forward, 4 * block);
    stage.check(process, "forward")?;
    stage.holds(process, forward, 4 * block)?;

    let backward = hinted_in(stage, process, 4 * block, 0)?;
    stage.op(
        process,
        touch(backward, 4 * block, Access::Write, Order::Backward),
    )?;
    stage.anon_folded(process, backward, 4 * block);
    fresh_and_written(stage, process, backward, 4 * block);
    stage.check(process, "backward")?;
    stage.holds(process, backward, 4 * block)?;

    // One write in every other block brings in the whole of that block, and nothing between.
    let sparse = hinted_in(stage, process, 8 * block, 0)?;
    for index in (0..8).step_by(2) {
        stage.op(process, write(sparse + index * block + 3 * page, page))?;
        stage.anon_folded(process, sparse + index * block, block);
        stage.not_folded(process, sparse + (index + 1) * block, block);
        stage.written(process, sparse + index * block + 3 * page, page);
        carried(stage, process, sparse + index * block, block);
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
    stage.check(process, "ends")?;
    stage.holds(process, ends, 2 * block)
}

pub(super) const NEIGHBOUR: Workload = Workload {
    name: "neighbour",
    title: "a fault beside a page that is already there",
    run: neighbour,
    sequences: false,
};

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
    carried(stage, process, area, 2 * block);
    stage.check(process, "beside")?;

    // The rest of the block comes in smaller pieces: full, but not one folio.
    stage.op(process, write(area, block))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    stage.fresh(process, area, 2 * block);
    stage.written(process, area, block);
    carried(stage, process, area, 2 * block);
    stage.check(process, "filled")?;
    stage.holds(process, area, block + page)
}

pub(super) const MUNMAP: Workload = Workload {
    name: "munmap",
    title: "munmap of a part of a block",
    run: munmap,
    sequences: false,
};

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
    carried(stage, process, area, 2 * block);
    stage.check(process, "partial")?;
    stage.holds(process, area, 3 * block / 4)?;
    stage.holds(process, area + block, block)
}

pub(super) const MPROTECT: Workload = Workload {
    name: "mprotect",
    title: "mprotect of a part and of a whole block",
    run: mprotect,
    sequences: false,
};

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
    // PROT_NONE too: present, and not valid.
    carried(stage, process, area, 3 * block);
    stage.check(process, "protected")?;
    stage.holds(process, area, 2 * block)?;

    let both = [Protection::Read, Protection::Write];
    stage.op(process, protect(area + block, block, &both))?;
    stage.op(process, protect(area + 2 * block, block, &both))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, 2 * block);
    stage.written(process, area, 3 * block);
    carried(stage, process, area, 3 * block);
    stage.check(process, "restored")?;
    stage.holds(process, area, 3 * block)
}

pub(super) const DONTNEED: Workload = Workload {
    name: "dontneed",
    title: "MADV_DONTNEED of one page",
    run: dontneed,
    sequences: false,
};

fn dontneed(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let (process, area) = hinted(stage, 2)?;
    stage.op(process, write(area, 2 * block))?;
    stage.op(process, advise(area + 5 * page, page, Advice::Dontneed))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    stage.written(process, area, 5 * page);
    stage.written(process, area + 6 * page, 2 * block - 6 * page);
    carried(stage, process, area, 2 * block);
    stage.check(process, "hole")?;

    stage.op(process, write(area + 5 * page, page))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    stage.written(process, area, 2 * block);
    carried(stage, process, area, 2 * block);
    stage.check(process, "refilled")?;
    stage.holds(process, area, 2 * block)
}

pub(super) const FORK: Workload = Workload {
    name: "fork",
    title: "fork, then a write in the child",
    run: fork,
    sequences: false,
};

fn fork(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let (parent, area) = hinted(stage, 2)?;
    stage.op(parent, write(area, 2 * block))?;
    let child = stage.fork(parent)?;
    // Both are write-protected, and dirty still; the child's entries are old.
    stage.anon_folded(parent, area, 2 * block);
    carried(stage, parent, area, 2 * block);
    stage.check(parent, "parent")?;
    stage.anon_folded(child, area, 2 * block);
    stage.dirty(child, area, 2 * block);
    stage.old(child, area, 2 * block);
    stage.check(child, "child")?;

    stage.op(child, write_salted(area + 2 * page, page, 1))?;
    stage.not_folded(child, area, block);
    stage.anon_folded(child, area + block, block);
    stage.written(child, area + 2 * page, page);
    stage.writable(child, area + 2 * page, page);
    stage.dirty(child, area, 2 * block);
    stage.old(child, area + block, block);
    stage.check(child, "child-wrote")?;
    stage.anon_folded(parent, area, 2 * block);
    carried(stage, parent, area, 2 * block);
    stage.check(parent, "parent-after")?;
    stage.holds(parent, area, 2 * block)?;
    stage.holds(child, area, 2 * page)?;
    stage.holds_salted(child, area + 2 * page, page, area + 2 * page, 1)?;
    stage.holds(child, area + 3 * page, 2 * block - 3 * page)
}

/// A fault for a write makes every entry of a shmem folio dirty and young too.
fn fresh_shared(stage: &mut Stage<'_>, process: ProcessId, start: u64, length: u64) {
    stage.written(process, start, length);
    stage.writable(process, start, length);
    carried(stage, process, start, length);
}

pub(super) const SHMEM: Workload = Workload {
    name: "shmem",
    title: "anonymous shared memory",
    run: shmem,
    sequences: false,
};

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
    carried(stage, process, area, block);
    stage.check(process, "first")?;

    stage.op(process, write(area, 2 * block))?;
    stage.folded(process, area, 2 * block);
    fresh_shared(stage, process, area, 2 * block);
    stage.check(process, "both")?;
    stage.holds(process, area, 2 * block)
}

pub(super) const ALLOCFAIL: Workload = Workload {
    name: "allocfail",
    title: "allocation fails at the preferred order",
    run: allocfail,
    sequences: false,
};

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
    stage.holds(process, area, block)?;

    stage.op(process, write(area + block, block))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    fresh_and_written(stage, process, area, 2 * block);
    stage.check(process, "recovered")?;
    stage.holds(process, area, 2 * block)
}

pub(super) const ZEROPAGE: Workload = Workload {
    name: "zeropage",
    title: "a zero page, then writes beside it and to it",
    run: zeropage,
    sequences: false,
};

fn zeropage(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let (process, area) = hinted(stage, 2)?;
    let zero = area + block / 2 + 3 * page;
    stage.op(process, touch(zero, page, Access::Read, Order::Forward))?;
    stage.not_folded(process, area, block);
    stage.not_written(process, area, 2 * block);
    stage.clean(process, area, 2 * block);
    stage.readable(process, zero, page);
    stage.check(process, "read")?;
    stage.zero(process, zero, page)?;

    stage.op(process, write(area, page))?;
    stage.op(process, write(zero, page))?;
    stage.op(process, write(area + block, page))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    for address in [area, zero, area + block] {
        stage.written(process, address, page);
        stage.writable(process, address, page);
    }
    carried(stage, process, area, 2 * block);
    stage.check(process, "written")?;
    for address in [area, zero, area + block] {
        stage.holds(process, address, page)?;
    }
    Ok(())
}

pub(super) const SIZES: Workload = Workload {
    name: "sizes",
    title: "only sizes below a block's are enabled",
    run: sizes,
    sequences: false,
};

fn sizes(stage: &mut Stage<'_>) -> StageResult {
    let block = stage.block();
    if !stage.only_smaller_sizes()? {
        return stage
            .leave_out("the kernel lists no folio size below a block's (hugepages-*kB/enabled)");
    }
    let (process, small) = hinted(stage, 2)?;
    stage.op(process, write(small, 2 * block))?;
    stage.not_folded(process, small, 2 * block);
    fresh_and_written(stage, process, small, 2 * block);
    stage.check(process, "small")?;
    stage.holds(process, small, 2 * block)?;

    // Enabling the size later changes nothing that is there.
    stage.block_size("always")?;
    let later = hinted_in(stage, process, 2 * block, 0)?;
    stage.op(process, write(later, 2 * block))?;
    stage.not_folded(process, small, 2 * block);
    stage.folded(process, later, 2 * block);
    stage.written(process, small, 2 * block);
    fresh_and_written(stage, process, later, 2 * block);
    stage.check(process, "enabled")?;
    stage.holds(process, small, 2 * block)?;
    stage.holds(process, later, 2 * block)
}
