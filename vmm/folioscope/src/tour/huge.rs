// SPDX-License-Identifier: GPL-2.0-only
//! Pages above a block's size: transparent ones, and hugetlb's of every size.

use protocol::Protection;

use super::{carried, hinted_in, Workload};
use crate::ops::{map_hugetlb, protect, write};
use crate::stage::{Stage, StageResult};

pub(super) const THP: Workload = Workload {
    name: "thp",
    title: "a PMD-sized huge page, then its split",
    run: thp,
    sequences: false,
};

fn thp(stage: &mut Stage<'_>) -> StageResult {
    let (block, page, pmd) = (stage.block(), stage.page(), stage.pmd());
    if stage.page() == 65536 {
        return stage.leave_out(
            "a 64K granule's PMD page is 512 MiB, more than a guest of this size has in one piece",
        );
    }
    if !stage.has_huge_pages() {
        return stage.leave_out("the kernel has no CONFIG_TRANSPARENT_HUGEPAGE");
    }
    if !stage.pmd_pages() {
        return stage.leave_out(
            "transparent huge pages are off in this guest (it needs 512 MiB of memory for them)",
        );
    }
    let process = stage.spawn()?;
    let area = hinted_in(stage, process, pmd, 0)?;
    stage.op(process, write(area, page))?;
    stage.not_folded(process, area, pmd);
    carried(stage, process, area, pmd);
    stage.check(process, "huge")?;

    // Splitting the PMD maps the same folio by pages: every block that nothing else touched is folded.
    stage.op(
        process,
        protect(area + block + page, page, &[Protection::Read]),
    )?;
    stage.folded(process, area, block);
    stage.not_folded(process, area + block, block);
    stage.folded(process, area + 2 * block, pmd - 2 * block);
    carried(stage, process, area, pmd);
    stage.check(process, "split")?;
    stage.holds(process, area, page)
}

/// Largest hugetlb size that is tried: a guest has no larger page in one piece.
const LARGEST: u64 = 64 << 20;

pub(super) const HUGETLB: Workload = Workload {
    name: "hugetlb",
    title: "hugetlb pages of each size that fits",
    run: hugetlb,
    sequences: false,
};

fn hugetlb(stage: &mut Stage<'_>) -> StageResult {
    let (block, pmd) = (stage.block(), stage.pmd());
    let sizes: Vec<u64> = stage
        .hugetlb_sizes()
        .into_iter()
        .filter(|size| *size <= LARGEST)
        .collect();
    let mut played = false;
    for size in sizes {
        if !stage.hugetlb_pages(size, 2)? {
            continue;
        }
        played = true;
        let process = stage.spawn()?;
        let area = stage.map(process, map_hugetlb(2 * size, size))?;
        // One write maps a page whole: by a contiguous group of level 3 or 2, or by one block.
        stage.op(process, write(area, stage.page()))?;
        let folded = size == block || size > pmd;
        if folded {
            stage.hugetlb_folded(process, area, size);
        } else {
            stage.not_folded(process, area, size);
        }
        stage.not_folded(process, area + size, size);
        stage.written(process, area, size);
        carried(stage, process, area, size);
        stage.check(process, &format!("{}K", size / 1024))?;
        stage.holds(process, area, stage.page())?;
        // In a level-3 table the child may have nothing (6.12.117 to 7.3.4): copy_hugetlb_page_range() calls
        // ptdesc_pmd_is_shared() on it, whose count only pagetable_pmd_ctor() sets, and takes it for a shared one.
        if size < pmd {
            continue;
        }
        // After fork it is shared, folded in both, and dirty still.
        let child = stage.fork(process)?;
        for who in [process, child] {
            if folded {
                stage.hugetlb_folded(who, area, size);
            } else {
                stage.not_folded(who, area, size);
            }
            // Protected in both, dirty and young as before (copy_hugetlb_page_range() leaves AF alone).
            carried(stage, who, area, size);
            let label = if who == child { "child" } else { "parent" };
            stage.check(who, &format!("{}K-{label}", size / 1024))?;
            stage.holds(who, area, stage.page())?;
        }
    }
    if !played {
        return stage.leave_out("the kernel has no hugetlb size of which two pages could be had");
    }
    Ok(())
}
