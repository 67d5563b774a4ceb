//! What the recorder has beside the tour.

use protocol::{Advice, Protection};

use crate::guest::{unexpected, Guest};
use crate::ops::{advise, map, map_hugetlb, map_shared, protect, unmap, write};
use crate::stage::{block_size, Stage, StageResult, THP};
use crate::tour::Workload;
use crate::Error;

/// A workload that sets out from where the tour never is: a block of which every page is mapped and that is not folded.
pub(super) const UNFOLDED: &str = "unfolded";

/// Takes one page's right to be written and gives it back, so that the block is unfolded; then the same with the block.
pub(super) fn mprotect_unfolded(guest: &mut Guest) -> Result<(), Error> {
    const BOTH: &[Protection] = &[Protection::Read, Protection::Write];
    const READ: &[Protection] = &[Protection::Read];
    let page = guest.hello().page_size;
    let block = block_size(page);
    if guest.hello().anon_order_policy.is_some() {
        guest.set_policy("variable")?;
    } else {
        let size = format!("{THP}/hugepages-{}kB/enabled", block / 1024);
        guest.write_file(&size, "always", None)?;
    }
    let process = guest.spawn(UNFOLDED)?.process;
    let mapped = guest.op(process, map(2 * block, 0))?;
    let protocol::Outcome::Mapped { address, .. } = mapped else {
        return Err(unexpected("mmap", &mapped));
    };
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
        guest.op(process, operation)?;
    }
    Ok(())
}

/// Workloads that change what the tour leaves alone.
pub(super) const OWN: [Workload; 2] = [
    Workload {
        name: "hugecow",
        title: "a hugetlb page of a contiguous group, copied on write after fork",
        run: hugetlb_copied,
    },
    Workload {
        name: "reuse",
        title:
            "memory that is given back and taken again, at its own address and by another process",
        run: given_back,
    },
];

/// Blocks of `reuse`: more page frames than a CPU's lists of free pages hold back.
const BLOCKS: u64 = 16;

/// Pages and their tables go three times: the same VA gets others, another process gets the page frames, and a file's stay
/// with the file.
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
    Ok(())
}

/// hugetlb pages above this are not asked for: a guest has too few of them in one piece.
const LARGEST: u64 = 64 << 20;

/// Of a size above the PMD's, whose pages a child has for certain: see `hugetlb` of the tour.
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
    Ok(())
}
