// SPDX-License-Identifier: GPL-2.0-only
//! VMAs that do not end at a block's end. Their split and merge change nothing if the bits stay equal.

use linux::release::Release;
use protocol::{Advice, Operation, Protection};

use super::{carried, fresh_and_written, hinted, hinted_in, Workload};
use crate::ops::{advise, map, protect, write};
use crate::stage::{Stage, StageResult};

pub(super) const VMA: Workload = Workload {
    name: "vma",
    title: "VMAs that start and end inside a block, their split and merge",
    run: vma,
    sequences: false,
};

fn vma(stage: &mut Stage<'_>) -> StageResult {
    let block = stage.block();
    let half = block / 2;
    let process = stage.spawn()?;
    // One that starts in the middle of a block, one that ends there.
    let starts = hinted_in(stage, process, half + block, half)?;
    let ends = hinted_in(stage, process, block + half, 0)?;
    stage.op(process, write(starts, half + block))?;
    stage.op(process, write(ends, block + half))?;
    stage.not_folded(process, starts, half);
    stage.anon_folded(process, starts + half, block);
    stage.anon_folded(process, ends, block);
    stage.not_folded(process, ends + block, half);
    fresh_and_written(stage, process, starts, half + block);
    fresh_and_written(stage, process, ends, block + half);
    stage.check(process, "ends")?;
    stage.holds(process, starts, half + block)?;
    stage.holds(process, ends, block + half)?;

    // Two VMAs that meet in the middle of a block: neither may fill it.
    let meet = stage.map(process, map(2 * block, 0))?;
    stage.op(process, advise(meet, half, Advice::Hugepage))?;
    stage.op(process, advise(meet + half, half, Advice::Nohugepage))?;
    stage.op(process, advise(meet + block, block, Advice::Hugepage))?;
    stage.op(process, write(meet, 2 * block))?;
    stage.not_folded(process, meet, block);
    stage.anon_folded(process, meet + block, block);
    fresh_and_written(stage, process, meet, 2 * block);
    stage.check(process, "meet")?;
    stage.holds(process, meet, 2 * block)?;

    // A protection that differs splits the VMA in the middle of a block, and takes the block's bits with it.
    let split = hinted_in(stage, process, 2 * block, 0)?;
    stage.op(process, write(split, 2 * block))?;
    stage.op(process, protect(split + half, half, &[Protection::Read]))?;
    stage.not_folded(process, split, block);
    stage.anon_folded(process, split + block, block);
    stage.written(process, split, 2 * block);
    carried(stage, process, split, 2 * block);
    stage.check(process, "split")?;
    // The change back touches the block's last entry last, when all of them agree again: that is where Linux folds, as
    // long as it changes entry by entry. From 6.17 on it changes them in batches, and half a block is no block.
    let both = [Protection::Read, Protection::Write];
    stage.op(process, protect(split + half, half, &both))?;
    if !stage.since(Release::new(6, 17, 0)) {
        stage.anon_folded(process, split, block);
    }
    stage.anon_folded(process, split + block, block);
    stage.written(process, split, 2 * block);
    carried(stage, process, split, 2 * block);
    stage.check(process, "merged")?;
    stage.holds(process, split, 2 * block)
}

pub(super) const MLOCK: Workload = Workload {
    name: "mlock",
    title: "mlock of an area, munlock of half a block",
    run: mlock,
    sequences: false,
};

fn mlock(stage: &mut Stage<'_>) -> StageResult {
    let block = stage.block();
    let (process, area) = hinted(stage, 2)?;
    // mlock faults in missing pages, for writing.
    stage.op(
        process,
        Operation::Mlock {
            address: area,
            length: 2 * block,
            flags: vec![],
        },
    )?;
    stage.anon_folded(process, area, 2 * block);
    fresh_and_written(stage, process, area, 2 * block);
    stage.check(process, "locked")?;
    stage.zero(process, area, 2 * block)?;

    // VM_LOCKED splits and merges the VMA within a block; entries do not depend on it.
    let unlock = |length| Operation::Munlock {
        address: area,
        length,
    };
    for (length, label) in [(block / 2, "half"), (2 * block, "unlocked")] {
        stage.op(process, unlock(length))?;
        stage.anon_folded(process, area, 2 * block);
        stage.written(process, area, 2 * block);
        carried(stage, process, area, 2 * block);
        stage.check(process, label)?;
    }
    stage.zero(process, area, 2 * block)
}
