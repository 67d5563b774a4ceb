// SPDX-License-Identifier: GPL-2.0-only
//! The tour's workloads for the recorder, whose sequences matter more than their states.

use protocol::{Advice, Protection};

use super::Workload;
use crate::ops::{advise, map, map_hugetlb, map_shared, protect, unmap, write};
use crate::stage::{Stage, StageResult};

pub(super) const UNFOLDED: Workload = Workload {
    name: "unfolded",
    title: "mprotect of a whole block that is present and not folded",
    run: unfolded,
    sequences: true,
};

/// Removes one page's write permission and gives it back, so that the block is unfolded; then does the same with the
/// block. Nowhere else does the tour have a block of which every page is mapped and that is not folded.
fn unfolded(stage: &mut Stage<'_>) -> StageResult {
    const BOTH: &[Protection] = &[Protection::Read, Protection::Write];
    const READ: &[Protection] = &[Protection::Read];
    let (block, page) = (stage.block(), stage.page());
    let process = stage.spawn_as("unfolded")?;
    let address = stage.map(process, map(2 * block, 0))?;
    let one = address + 5 * page;
    for operation in [
        advise(address, 2 * block, Advice::Hugepage),
        write(address, 2 * block),
        protect(one, page, READ),
        protect(one, page, BOTH),
        protect(address, block, READ),
        protect(address, block, BOTH),
        write(address, 2 * block),
    ] {
        stage.op(process, operation)?;
    }
    stage.anon_folded(process, address + block, block);
    stage.written(process, address, 2 * block);
    stage.check(process, "rights of a whole block")
}

/// Blocks of `reuse`: more page frames than a CPU's lists of free pages hold back.
const BLOCKS: u64 = 16;

pub(super) const REUSE: Workload = Workload {
    name: "reuse",
    title: "memory that is given back and taken again, at its own address and by another process",
    run: given_back,
    sequences: true,
};

/// Unmaps pages and their tables three times: the same VA gets others, another process gets the page frames, and a
/// file's stay with the file.
fn given_back(stage: &mut Stage<'_>) -> StageResult {
    let length = BLOCKS * stage.block();
    let (one, other) = (stage.spawn()?, stage.spawn()?);
    let area = stage.map(one, map(length, 0))?;
    for operation in [
        write(area, length),
        advise(area, length, Advice::Dontneed),
        write(area, length),
        unmap(area, length),
    ] {
        stage.op(one, operation)?;
    }
    let area = stage.map(other, map(length, 0))?;
    stage.op(other, write(area, length))?;
    let shared = stage.map(other, map_shared(length))?;
    for operation in [
        write(shared, length),
        advise(shared, length, Advice::Dontneed),
        write(shared, length),
        unmap(shared, length),
        unmap(area, length),
    ] {
        stage.op(other, operation)?;
    }
    stage.check(other, "given back")
}

/// Largest hugetlb size that is tried: a guest has too few larger pages in one piece.
const LARGEST: u64 = 64 << 20;

pub(super) const HUGECOW: Workload = Workload {
    name: "hugecow",
    title: "a hugetlb page of a contiguous group, copied on write after fork",
    run: hugetlb_copied,
    sequences: true,
};

/// Copies hugetlb pages of a size above the PMD's, which a child gets in every kernel: see `hugetlb` of the tour.
fn hugetlb_copied(stage: &mut Stage<'_>) -> StageResult {
    let pmd = stage.pmd();
    let sizes = stage.hugetlb_sizes();
    let Some(size) = sizes
        .into_iter()
        .find(|size| (pmd + 1..=LARGEST).contains(size))
    else {
        return stage
            .leave_out("the kernel has no hugetlb size of several PMDs that a guest has room for");
    };
    if !stage.hugetlb_pages(size, 3)? {
        return stage.leave_out("three hugetlb pages of several PMDs could not be had");
    }
    let process = stage.spawn()?;
    let area = stage.map(process, map_hugetlb(size, size))?;
    stage.op(process, write(area, stage.page()))?;
    stage.fork(process)?;
    stage.op(process, write(area, stage.page()))?;
    stage.written(process, area, stage.page());
    stage.check(process, "copied")
}
