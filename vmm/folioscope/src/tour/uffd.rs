// SPDX-License-Identifier: GPL-2.0-only
//! userfaultfd: protected and missing pages. An access that it would have to resolve raises SIGBUS, and is resolved
//! after that.

use protocol::{Operation, UffdMode};

use super::{carried, hinted, hinted_in, Workload};
use crate::ops::{touch, write};
use crate::stage::{Stage, StageResult};

pub(super) const UFFD: Workload = Workload {
    name: "uffd",
    title: "userfaultfd: write protection, and pages that are missing",
    run: uffd,
    sequences: false,
};

fn uffd(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let (process, area) = hinted(stage, 2)?;
    stage.op(process, write(area, 2 * block))?;
    let register = |address, length, modes| Operation::UffdRegister {
        address,
        length,
        modes,
    };
    if !stage.try_op(process, register(area, block, vec![UffdMode::WriteProtect]))? {
        return stage.leave_out("the kernel has no userfaultfd (CONFIG_USERFAULTFD)");
    }
    let protect = |address, length, on| Operation::UffdWriteprotect {
        address,
        length,
        on,
    };
    // All of a block: the last entry is set last, all agree, and it folds again, read-only.
    stage.op(process, protect(area, block, true))?;
    stage.anon_folded(process, area, 2 * block);
    carried(stage, process, area, 2 * block);
    stage.check(process, "protected")?;
    stage.refused(process, write(area + 2 * page, page))?;
    stage.holds(process, area, 2 * block)?;

    stage.op(process, protect(area + 2 * page, page, false))?;
    stage.op(process, write(area + 2 * page, page))?;
    stage.not_folded(process, area, block);
    stage.anon_folded(process, area + block, block);
    carried(stage, process, area, 2 * block);
    stage.check(process, "resolved")?;
    stage.refused(process, write(area, page))?;
    stage.holds(process, area, 2 * block)?;

    // Missing pages come one by one, whatever the policy.
    let missing = hinted_in(stage, process, 2 * block, 0)?;
    stage.op(
        process,
        register(missing, 2 * block, vec![UffdMode::Missing]),
    )?;
    let read = touch(
        missing,
        page,
        protocol::Access::Read,
        protocol::Order::Forward,
    );
    stage.refused(process, read)?;
    stage.op(
        process,
        Operation::UffdCopy {
            address: missing,
            length: block,
            salt: 0,
            write_protect: false,
        },
    )?;
    stage.op(
        process,
        Operation::UffdZeropage {
            address: missing + block,
            length: page,
        },
    )?;
    stage.not_folded(process, missing, 2 * block);
    carried(stage, process, missing, block);
    stage.not_written(process, missing + block, block);
    stage.check(process, "filled")?;
    stage.holds(process, missing, block)?;
    stage.zero(process, missing + block, page)
}
