// SPDX-License-Identifier: GPL-2.0-only
//! KSM.

use protocol::{Advice, Operation};

use super::{carried, hinted, Workload};
use crate::ops::{advise, write};
use crate::stage::{Stage, StageResult};

/// First word of the equal pages: it is no pattern, and not zero.
const EQUAL: u64 = 0x6b73_6d20_6b73_6d20;

pub(super) const KSM: Workload = Workload {
    name: "ksm",
    title: "equal pages merged, and one of them written to",
    run: ksm,
    sequences: false,
};

fn ksm(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    if !stage.exists(RUN)? {
        return stage.leave_out("the kernel has no KSM (CONFIG_KSM)");
    }
    let (process, area) = hinted(stage, 3)?;
    stage.op(process, write(area, 3 * block))?;
    // Two in one block, one in the next.
    let equal = [area + page, area + 3 * page, area + block + 2 * page];
    for address in equal {
        stage.op(
            process,
            Operation::Poke {
                address,
                words: vec![EQUAL],
            },
        )?;
    }
    stage.op(process, advise(area, 2 * block, Advice::Mergeable))?;
    // One page is shared, and two more entries share it.
    stage.merge(1, 2)?;
    stage.not_folded(process, area, 2 * block);
    stage.anon_folded(process, area + 2 * block, block);
    for address in equal {
        stage.clean(process, address, page);
    }
    stage.dirty(process, area, page);
    stage.dirty(process, area + 4 * page, block - 2 * page);
    carried(stage, process, area + 2 * block, block);
    stage.check(process, "merged")?;
    for address in equal {
        stage.word(process, address, EQUAL)?;
    }
    stage.holds(process, area, page)?;
    stage.holds(process, area + 2 * page, page)?;
    stage.holds(process, area + 4 * page, block - 2 * page)?;
    stage.holds(process, area + block + 3 * page, 2 * block - 3 * page)?;

    // A write gives this one a page of its own again; the block has lost its folio and stays unfolded.
    stage.op(process, write(equal[1], page))?;
    stage.not_folded(process, area, 2 * block);
    stage.anon_folded(process, area + 2 * block, block);
    stage.written(process, equal[1], page);
    stage.writable(process, equal[1], page);
    stage.check(process, "written")?;
    stage.word(process, equal[0], EQUAL)?;
    stage.holds(process, equal[1], page)?;
    stage.word(process, equal[2], EQUAL)
}

const RUN: &str = "/sys/kernel/mm/ksm/run";
