// SPDX-License-Identifier: GPL-2.0-only
//! madvise(2) that changes dirty and young state, or faults in.

use protocol::Advice;

use super::{carried, fresh_and_written, hinted, hinted_in, Workload};
use crate::ops::{advise, write};
use crate::stage::{Stage, StageResult};

pub(super) const FREE: Workload = Workload {
    name: "free",
    title: "MADV_FREE and MADV_COLD of a whole block and of one page",
    run: free,
    sequences: false,
};

fn free(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let (process, area) = hinted(stage, 4)?;
    stage.op(process, write(area, 4 * block))?;
    // A whole folio is made clean and old as it is; a part of one is split off first.
    stage.op(process, advise(area, block, Advice::Free))?;
    stage.op(process, advise(area + 2 * block, page, Advice::Free))?;
    stage.op(process, advise(area + 3 * block, block, Advice::Cold))?;
    stage.anon_folded(process, area, 2 * block);
    stage.not_folded(process, area + 2 * block, block);
    stage.anon_folded(process, area + 3 * block, block);
    stage.clean(process, area, block);
    stage.written(process, area + block, block);
    stage.clean(process, area + 2 * block, page);
    stage.written(process, area + 2 * block + page, 2 * block - page);
    stage.dirty(process, area + block, block);
    stage.young(process, area + block, block);
    stage.dirty(process, area + 2 * block + page, 2 * block - page);
    stage.old(process, area, block);
    stage.old(process, area + 2 * block, page);
    stage.old(process, area + 3 * block, block);
    stage.check(process, "freed")?;
    stage.holds(process, area + block, block)?;
    stage.holds(process, area + 2 * block + page, block - page)?;

    stage.op(process, write(area + 4 * page, page))?;
    stage.anon_folded(process, area, 2 * block);
    stage.not_folded(process, area + 2 * block, block);
    stage.anon_folded(process, area + 3 * block, block);
    stage.written(process, area + 4 * page, page);
    stage.writable(process, area + 4 * page, page);
    stage.old(process, area + 3 * block, block);
    stage.check(process, "used-again")?;
    stage.holds(process, area + 4 * page, page)
}

pub(super) const POPULATE: Workload = Workload {
    name: "populate",
    title: "MADV_POPULATE_READ and MADV_POPULATE_WRITE",
    run: populate,
    sequences: false,
};

fn populate(stage: &mut Stage<'_>) -> StageResult {
    let block = stage.block();
    let (process, read) = hinted(stage, 2)?;
    let written = hinted_in(stage, process, 2 * block, 0)?;
    stage.op(process, advise(read, 2 * block, Advice::PopulateRead))?;
    stage.op(process, advise(written, 2 * block, Advice::PopulateWrite))?;
    // Zero pages, and folios.
    stage.not_folded(process, read, 2 * block);
    stage.not_written(process, read, 2 * block);
    stage.clean(process, read, 2 * block);
    stage.anon_folded(process, written, 2 * block);
    fresh_and_written(stage, process, written, 2 * block);
    stage.check(process, "populated")?;
    stage.zero(process, written, 2 * block)?;

    // A zero page is mapped already, so each becomes a page of its own.
    stage.op(process, advise(read, 2 * block, Advice::PopulateWrite))?;
    stage.not_folded(process, read, 2 * block);
    stage.written(process, read, 2 * block);
    carried(stage, process, read, 2 * block);
    stage.anon_folded(process, written, 2 * block);
    stage.check(process, "copied")?;
    stage.zero(process, read, 2 * block)?;
    stage.zero(process, written, 2 * block)
}
