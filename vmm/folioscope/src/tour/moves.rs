// SPDX-License-Identifier: GPL-2.0-only
//! Pages and entries that move: mremap, migration, compaction.

use protocol::{Advice, ProcessId};

use super::{carried, hinted, Workload};
use crate::error::Error;
use crate::ops::{advise, map, remap, write};
use crate::stage::{Stage, StageResult};

/// Moves an area; gives where it is now.
fn moved(
    stage: &mut Stage<'_>,
    process: ProcessId,
    from: u64,
    to: u64,
    length: u64,
) -> Result<u64, crate::Error> {
    stage.remap(process, from, remap(from, length, to))?;
    Ok(to)
}

pub(super) const MREMAP: Workload = Workload {
    name: "mremap",
    title: "mremap by blocks, by a page, within and across tables",
    run: mremap,
    sequences: false,
};

fn mremap(stage: &mut Stage<'_>) -> StageResult {
    let (block, page, pmd) = (stage.block(), stage.page(), stage.pmd());
    let length = 2 * block;
    let (process, area) = hinted(stage, 2)?;
    stage.op(process, write(area, length))?;

    // Entries are moved one after the other, so the last of a block is set last; where VA and PA stay in step modulo
    // the block, it folds there.
    let near = stage.free_place(process, 4 * block, None)?;
    let mut at = moved(stage, process, area, near + block, length)?;
    stage.anon_folded(process, at, length);
    carried(stage, process, at, length);
    stage.check(process, "block")?;
    stage.holds_from(process, at, length, area)?;

    let askew = stage.free_place(process, 4 * block, None)?;
    at = moved(stage, process, at, askew + page, length)?;
    stage.not_folded(process, at, length);
    carried(stage, process, at, length);
    stage.check(process, "page")?;
    stage.holds_from(process, at, length, area)?;

    // A block in each of two level-3 tables.
    let two = stage.free_place(process, 2 * pmd, None)?;
    at = moved(stage, process, at, two + pmd - block, length)?;
    stage.anon_folded(process, at, length);
    carried(stage, process, at, length);
    stage.check(process, "two-tables")?;
    stage.holds_from(process, at, length, area)?;

    // Behind another level-2 table.
    let span = pmd * (page / 8);
    let far = stage.free_place(process, 4 * block, Some(span))?;
    at = moved(stage, process, at, far, length)?;
    stage.anon_folded(process, at, length);
    carried(stage, process, at, length);
    stage.check(process, "far")?;
    stage.holds_from(process, at, length, area)?;

    // A whole level-3 table changes its place in the level-2 table: no entry in it is touched. At first only its first
    // blocks have MADV_HUGEPAGE, so that no folio has a PMD's size; then all have, so that there is one VMA to move.
    // That registers it with khugepaged, which scans at once and must not make blocks of single pages (7.x).
    stage.no_collapse()?;
    stage.overcommit()?;
    let table = stage.map(process, map(pmd, 0))?;
    let new = stage.free_place(process, pmd, None)?;
    stage.op(process, advise(table, pmd, Advice::Nohugepage))?;
    stage.op(process, advise(table, length, Advice::Hugepage))?;
    stage.op(process, write(table, length))?;
    stage.block_size("never")?;
    stage.op(process, advise(table, pmd, Advice::Hugepage))?;
    at = moved(stage, process, table, new, pmd)?;
    stage.anon_folded(process, at, length);
    stage.not_folded(process, at + length, pmd - length);
    carried(stage, process, at, length);
    stage.check(process, "whole-table")?;
    stage.holds_from(process, at, length, table)
}

pub(super) const MIGRATE: Workload = Workload {
    name: "migrate",
    title: "moved to another NUMA node and back",
    run: migrate,
    sequences: false,
};

fn migrate(stage: &mut Stage<'_>) -> StageResult {
    let block = stage.block();
    if stage.nodes()? < 2 {
        return stage.leave_out(
            "the guest has one NUMA node, so nothing can be moved to another (the kernel has no CONFIG_NUMA_EMU for numa=fake=2)",
        );
    }
    let (process, area) = hinted(stage, 2)?;
    stage.op(process, write(area, 2 * block))?;
    // Old entries stay old, and dirty ones dirty: the migration entry carries both.
    stage.op(process, advise(area + block, block, Advice::Cold))?;
    match stage.bring_whole_to(process, area, 2 * block, 1) {
        Err(Error::Guest { failure, .. }) if failure.errno() == Some("ENOSYS") => {
            return stage.leave_out(
                "the kernel moves no pages for a process (CONFIG_MIGRATION; from 7.0 on CONFIG_NUMA_MIGRATION)",
            );
        }
        moved => moved?,
    }
    stage.anon_folded(process, area, 2 * block);
    stage.dirty(process, area, 2 * block);
    stage.old(process, area + block, block);
    stage.check(process, "there")?;

    // The kernel decides whether it stays in one piece a second time: 6.12.117 takes a folio that was migrated once for
    // one that is partially mapped (its entries were removed one by one), and splits it before it is moved again.
    stage.bring_to(process, area, 2 * block, 0)?;
    stage.dirty(process, area, 2 * block);
    stage.old(process, area + block, block);
    stage.check(process, "back")?;
    stage.holds(process, area, 2 * block)
}

pub(super) const COMPACT: Workload = Workload {
    name: "compact",
    title: "compaction of all memory",
    run: compact,
    sequences: false,
};

fn compact(stage: &mut Stage<'_>) -> StageResult {
    let block = stage.block();
    if !stage.exists(SWITCH)? {
        return stage.leave_out("the kernel has no CONFIG_COMPACTION");
    }
    let (process, area) = hinted(stage, 8)?;
    stage.op(process, write(area, 8 * block))?;
    for index in (1..8).step_by(2) {
        stage.op(
            process,
            advise(area + index * block, block, Advice::Dontneed),
        )?;
    }
    stage.set(SWITCH, "1")?;
    for index in 0..8 {
        let at = area + index * block;
        // A folio for which there is no room in one piece is split, so nothing is expected to fold.
        if index % 2 == 0 {
            stage.dirty(process, at, block);
        } else {
            stage.not_folded(process, at, block);
        }
    }
    stage.check(process, "compacted")?;
    for index in (0..8).step_by(2) {
        stage.holds(process, area + index * block, block)?;
    }
    Ok(())
}

/// Written to, it compacts all zones, and is done when the write is.
const SWITCH: &str = "/proc/sys/vm/compact_memory";
