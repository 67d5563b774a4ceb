// SPDX-License-Identifier: GPL-2.0-only
//! Shared memory with holes, and files in it.

use linux::release::Release;
use protocol::{Access, Advice, Backing, MapFlag, Operation, Order, Placement, Protection};

use super::{carried, Workload};
use crate::ops::{advise, map_shared, touch, write, write_salted};
use crate::stage::{Stage, StageResult};

pub(super) const HOLE: Workload = Workload {
    name: "hole",
    title: "a hole punched into shared memory",
    run: hole,
    sequences: false,
};

fn hole(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    if !stage.shmem_blocks() {
        return stage.leave_out(
            "the kernel has no shmem folios of the contiguous size (hugepages-*kB/shmem_enabled)",
        );
    }
    let process = stage.spawn()?;
    let area = stage.map(process, map_shared(2 * block))?;
    stage.op(process, write(area, 2 * block))?;
    // A second word in the page that will be removed, so that its loss is visible.
    let poke = Operation::Poke {
        address: area + 5 * page + 8,
        words: vec![1],
    };
    stage.op(process, poke)?;
    stage.folded(process, area, 2 * block);
    stage.written(process, area, 2 * block);
    carried(stage, process, area, 2 * block);
    stage.check(process, "full")?;
    stage.holds(process, area, 2 * block)?;

    // MADV_REMOVE punches a hole. The folio is split, and a file's folio loses all its entries by that.
    stage.op(process, advise(area + 5 * page, page, Advice::Remove))?;
    stage.not_folded(process, area, block);
    stage.folded(process, area + block, block);
    stage.written(process, area + block, block);
    carried(stage, process, area + block, block);
    stage.check(process, "punched")?;

    // The pages come back one by one, the hole as a fresh page.
    stage.op(process, write(area, page))?;
    stage.op(process, write(area + 5 * page, page))?;
    stage.not_folded(process, area, block);
    stage.folded(process, area + block, block);
    for address in [area, area + 5 * page] {
        stage.written(process, address, page);
        stage.writable(process, address, page);
    }
    carried(stage, process, area, 2 * block);
    stage.check(process, "filled")?;
    stage.word(process, area + 5 * page + 8, 0)?;
    stage.holds(process, area, 2 * block)
}

/// The file.
const PATH: &str = "/tmp/folioscope-tour";

pub(super) const TMPFS: Workload = Workload {
    name: "tmpfs",
    title: "a file on tmpfs, mapped by two processes at different offsets",
    run: tmpfs,
    sequences: false,
};

fn tmpfs(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    // Folios of a PMD's size, if there may be any: only then has a file of tmpfs anything to fold.
    let large = page < 65536 && stage.pmd_pages() && stage.remount_tmp("huge=always")?;
    let one = stage.spawn()?;
    let two = stage.spawn()?;
    let length = 4 * block;
    stage.op(
        one,
        Operation::FileCreate {
            path: PATH.into(),
            length: length + block,
        },
    )?;
    stage.after(Operation::FileUnlink { path: PATH.into() })?;
    stage.op(
        one,
        Operation::FileWrite {
            path: PATH.into(),
            offset: 0,
            length: length + block,
            salt: 0,
            chunk: None,
        },
    )?;
    let map = |offset| Operation::Mmap {
        length,
        backing: Backing::File {
            path: PATH.into(),
            offset,
        },
        prot: vec![Protection::Read, Protection::Write],
        flags: vec![MapFlag::Shared],
        place: Placement::default(),
    };
    let straight = stage.map(one, map(0))?;
    let askew = stage.map(two, map(page))?;
    // A read maps the surrounding 64 KiB: at 4K a block, elsewhere less than one.
    for (process, area) in [(one, straight), (two, askew)] {
        stage.op(
            process,
            touch(area + block, page, Access::Read, Order::Forward),
        )?;
        stage.not_folded(process, area, block);
        if large && page == 4096 && process == one {
            stage.folded(process, area + block, block);
        } else {
            stage.not_folded(process, area + block, block);
        }
        stage.not_folded(process, area + 2 * block, 2 * block);
        // Later kernels map a page of a dirty folio dirty if it may be written (set_pte_range()): write(2) made them
        // so.
        if !stage.since(Release::new(6, 13, 0)) {
            stage.not_written(process, area, length);
            stage.clean(process, area, length);
        }
        stage.readable(process, area + block, page);
    }
    stage.check(one, "straight")?;
    stage.check(two, "askew")?;
    stage.holds_from(one, straight + block, block, block)?;
    stage.holds_from(two, askew + block, block, block + page)?;

    // One writes, the other sees it.
    stage.op(two, write_salted(askew + 3 * block, page, 1))?;
    stage.written(two, askew + 3 * block, page);
    stage.writable(two, askew + 3 * block, page);
    stage.not_folded(two, askew, length);
    stage.check(two, "wrote")?;
    stage.holds_salted(one, straight + 3 * block + page, page, askew + 3 * block, 1)
}
