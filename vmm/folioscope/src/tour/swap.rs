// SPDX-License-Identifier: GPL-2.0-only
//! Swap.

use protocol::{Access, Advice, Order};

use super::{hinted, Workload};
use crate::ops::{advise, touch, write};
use crate::stage::{Stage, StageResult};

pub(super) const SWAP: Workload = Workload {
    name: "swap",
    title: "swapped out to zram, and in again",
    run: swap,
    sequences: false,
};

fn swap(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    if !stage.swap_on_zram()? {
        return stage.leave_out("the kernel has no swap or no zram (CONFIG_SWAP, CONFIG_ZRAM)");
    }
    let (process, area) = hinted(stage, 3)?;
    stage.op(process, write(area, 3 * block))?;
    stage.op(process, advise(area, block, Advice::Pageout))?;
    // A part of a folio: it is split first.
    stage.op(process, advise(area + block, page, Advice::Pageout))?;
    stage.not_folded(process, area, 2 * block);
    stage.anon_folded(process, area + 2 * block, block);
    stage.dirty(process, area + block + page, 2 * block - page);
    stage.check(process, "out")?;

    // If a folio is swapped out in one piece (4K: ARCH_WANTS_THP_SWAP), its slots follow each other, and one read
    // brings the whole block back, folded. That needs its size to be enabled, so both cases are stated.
    let whole = stage.fills_blocks() && page == 4096;
    stage.block_size(if whole { "always" } else { "never" })?;
    let wanted = if whole { page } else { block };
    stage.op(process, touch(area, wanted, Access::Read, Order::Forward))?;
    if whole {
        stage.folded(process, area, block);
    } else {
        stage.not_folded(process, area, block);
    }
    stage.not_folded(process, area + block, block);
    stage.anon_folded(process, area + 2 * block, block);
    stage.clean(process, area, block);
    stage.readable(process, area, wanted);
    stage.young(process, area, block);
    stage.check(process, "in")?;
    stage.holds(process, area, 3 * block)?;

    stage.op(process, write(area + 3 * page, page))?;
    if whole {
        stage.folded(process, area, block);
    } else {
        stage.not_folded(process, area, block);
    }
    stage.not_folded(process, area + block, block);
    stage.anon_folded(process, area + 2 * block, block);
    stage.written(process, area + 3 * page, page);
    stage.writable(process, area + 3 * page, page);
    stage.check(process, "written")?;
    stage.holds(process, area, 3 * block)
}
