// SPDX-License-Identifier: GPL-2.0-only
//! khugepaged below a PMD's size, which 6.12 has not.

use protocol::Advice;

use super::{carried, Workload};
use crate::ops::{advise, map, write};
use crate::stage::{Stage, StageResult};

pub(super) const COLLAPSE: Workload = Workload {
    name: "collapse",
    title: "khugepaged makes blocks of single pages",
    run: collapse,
    sequences: false,
};

fn collapse(stage: &mut Stage<'_>) -> StageResult {
    let (block, page, pmd) = (stage.block(), stage.page(), stage.pmd());
    if !stage.collapses_blocks()? {
        return stage.leave_out("khugepaged makes no folios of a block's size on this kernel");
    }
    let process = stage.spawn()?;
    // It looks at the whole span of a level-2 descriptor only.
    let area = stage.map(process, map(pmd, 0))?;
    // Single pages, whatever the policy: a full block, one with a hole, a full one again.
    stage.op(process, advise(area, pmd, Advice::Nohugepage))?;
    stage.op(process, write(area, 2 * block - page))?;
    stage.op(process, write(area + 2 * block, block))?;
    stage.not_folded(process, area, 3 * block);
    carried(stage, process, area, 2 * block - page);
    carried(stage, process, area + 2 * block, block);
    stage.check(process, "pages")?;

    stage.op(process, advise(area, pmd, Advice::Hugepage))?;
    stage.collapse(0)?;
    stage.folded(process, area, block);
    stage.not_folded(process, area + block, block);
    stage.folded(process, area + 2 * block, block);
    carried(stage, process, area, 2 * block - page);
    carried(stage, process, area + 2 * block, block);
    stage.check(process, "full")?;
    stage.holds(process, area, 2 * block - page)?;
    stage.holds(process, area + 2 * block, block)?;

    // With leave to fill missing pages it takes the block with the hole too. It makes no block of a range without
    // pages.
    stage.collapse(pmd / page - 1)?;
    stage.folded(process, area, 3 * block);
    carried(stage, process, area, 3 * block);
    stage.not_folded(process, area + 3 * block, pmd - 3 * block);
    stage.check(process, "sparse")?;
    stage.holds(process, area, 2 * block - page)?;
    stage.zero(process, area + 2 * block - page, page)?;
    stage.holds(process, area + 2 * block, block)
}
