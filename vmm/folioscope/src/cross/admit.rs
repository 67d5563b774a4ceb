// SPDX-License-Identifier: GPL-2.0-only
//! Which steps make sense of a state. Pairs that do not are left out by these rules alone, each with its reason.

use protocol::Advice;

use super::maps::Map;
use super::model::{Below, Memory};
use super::mounts;
use super::steps::{All, Move, Part, Step};

/// The guest's features, and the place of a step.
#[derive(Clone, Copy, Debug)]
pub struct Here {
    /// Backing of the area.
    pub map: Map,
    /// The acting process's view.
    pub view: usize,
    /// Another process shares the memory.
    pub other: bool,
    /// Pages per block.
    pub block: usize,
    /// `MADV_GUARD_INSTALL` (6.13).
    pub guards: bool,
    /// More than one NUMA node.
    pub nodes: bool,
    /// userfaultfd's write protection.
    pub uffd: bool,
    /// A swap area.
    pub swap: bool,
    /// The path of a disk to swap to, beside zram.
    pub swap_disk: Option<&'static str>,
    /// `UFFDIO_MOVE` (6.8).
    pub moves: bool,
    /// A memory cgroup of the processes.
    pub cgroup: bool,
    /// KSM.
    pub ksm: bool,
    /// `gup_test` of debugfs.
    pub pins: bool,
    /// `split_huge_pages` of debugfs.
    pub splits: bool,
    /// hugetlb pages of a PMD's size for all areas of them.
    pub hugetlb: bool,
    /// The same of a block's size.
    pub hugetlb_blocks: bool,
    /// The same of a group of PMDs.
    pub hugetlb_spans: bool,
    /// A file that is read ahead.
    pub read_ahead: bool,
    /// A disk with files that can be written.
    pub disk: bool,
    /// khugepaged.
    pub khugepaged: bool,
    /// `clear_refs` and `pagemap` of procfs.
    pub clears: bool,
    /// NUMA balancing.
    pub hints: bool,
    /// `mseal()` (6.10).
    pub seals: bool,
    /// Pages can be taken for broken ones.
    pub poisons: bool,
    /// The processes may have other pages each: one may have a copy of its own, or in swap.
    pub parted: bool,
    /// Pages of the area that are mapped together: those of a hugetlb page.
    pub unit: usize,
    /// Pages of the area were read from zram.
    pub read_back: bool,
    /// A hole leaves large folios of tmpfs across the file's end, and a fault maps such a folio whole (`finish_fault()`).
    pub maps_beyond: bool,
    /// Pages that are read from zram may be clean, and in no swap cache.
    pub clean_from_zram: bool,
}

/// A fault of 6.12.117, which 7.3.4 does not have by its source (docs/faults.md). A page that one process reads from zram is
/// clean, and in no swap cache, so `madvise_free_pte_range()` does not ask who else maps it.
const FREED_FOR_ALL: &str =
    "what was read from zram and is shared is lost for all by MADV_FREE of one, a fault of 6.12.117 (C3)";

/// A fault of all kernels that are known, which rule C1 has in the tour: `copy_hugetlb_page_range()` may take a new table
/// of level 3 for one that is shared.
pub const NOT_INHERITED: &str =
    "a child may lack private hugetlb pages of a block's size, a fault of all kernels known (C1)";

/// Reason to leave out what changes the size of a file of the disk.
const ZONES: &str = "a file of zonefs has the size of its zone";

/// Returns the reason to leave a step out, if there is one.
pub fn left_out(memory: &Memory, here: Here, step: Step) -> Option<&'static str> {
    let pages = &memory.views[here.view].pages;
    let all = pages.len();
    let units = |part: Part| part.units(here.block, all, here.unit);
    let mapped = |part: Part| units(part).filter(|at| pages[*at].mapped);
    let locked = |part| mapped(part).any(|at| pages[at].locked);
    let unreadable = |part| mapped(part).any(|at| !memory.can_read(here.view, at));
    let unwritable = |part| mapped(part).any(|at| !memory.can_write(here.view, at));
    let hole = |part: Part| units(part).any(|at| !pages[at].mapped);
    let sealed = |part| mapped(part).any(|at| pages[at].sealed);
    let registered = || pages.iter().any(|page| page.registered);
    let anonymous = memory.below == Below::Nothing;
    let file = mounts::directory(here.map).is_some();
    let hugetlb = here.map.is_hugetlb();
    let pmd = matches!(
        here.map,
        Map::Pmd
            | Map::PmdToo
            | Map::PmdAndBlocks
            | Map::TmpfsPmd
            | Map::TmpfsPmdPrivate
            | Map::TmpfsSpan
    );
    let ramfs = matches!(here.map, Map::Ramfs | Map::RamfsPrivate);
    let disk = here.map.is_stored();
    let fresh = |at: usize| {
        let page = &pages[at];
        page.mapped && page.write && !page.locked && !page.not_forked && !page.wiped_on_fork
    };
    let shared = |at| !memory.is_certain(here.view, at) && !memory.may_be_zero_page(here.view, at);
    let shmem = matches!(
        here.map,
        Map::Shared
            | Map::Tmpfs
            | Map::TmpfsPrivate
            | Map::TmpfsShort
            | Map::TmpfsHuge
            | Map::TmpfsHugeAcross
            | Map::TmpfsHugeShort
            | Map::TmpfsHugePrivate
            | Map::TmpfsPmd
            | Map::TmpfsPmdPrivate
            | Map::TmpfsSpan
    );
    let by_userfaultfd = matches!(
        step,
        Step::UffdFill(_)
            | Step::UffdZero(_)
            | Step::UffdContinue(_)
            | Step::UffdMove
            | Step::UffdRelocate
    );
    let freed = |at| {
        let words = memory.content(here.view, at);
        words.is_some_and(|words| words.iter().any(|word| word.is_freed()))
    };
    match step {
        Step::All(All::Reclaim | All::Limit(_))
            if here.other
                && here.read_back
                && here.clean_from_zram
                && (0..all).any(freed) =>
        {
            Some(FREED_FOR_ALL)
        }
        Step::All(All::Reclaim | All::Limit(_)) if !here.cgroup || !here.swap => Some(
            "the guest has no memory cgroup or no swap (CONFIG_MEMCG, CONFIG_SWAP, CONFIG_ZRAM)",
        ),
        Step::Advise(_, Advice::Free | Advice::Cold | Advice::Pageout) if hugetlb => {
            Some("hugetlb pages are not reclaimed")
        }
        Step::Advise(_, Advice::GuardInstall | Advice::GuardRemove) if hugetlb => {
            Some("hugetlb has no guard markers")
        }
        Step::Move(Move::OffByAPage | Move::KeepOld) if hugetlb => {
            Some("hugetlb pages are moved to where one begins")
        }
        Step::UffdFill(_) if hugetlb => {
            Some("the agent's UFFDIO_COPY brings a page at a time, and hugetlb takes its own pages whole")
        }
        Step::UffdZero(_) if hugetlb => Some("hugetlb has no UFFDIO_ZEROPAGE"),
        Step::UffdMove | Step::UffdRelocate if hugetlb => Some("UFFDIO_MOVE does not take hugetlb"),
        Step::UffdContinue(_) if hugetlb && anonymous => {
            Some("nothing of a private mapping of hugetlb is in a page cache")
        }
        Step::ProtectEmpty(_) if !hugetlb => {
            Some("empty pages are not protected without UFFD_FEATURE_WP_UNPOPULATED")
        }
        Step::Seal(_) if !here.seals => Some("the kernel has no mseal()"),
        Step::Seal(part) if hole(part) => Some("the range has a hole"),
        Step::Protect(part, _) | Step::Unmap(part) if sealed(part) => Some("the pages are sealed"),
        Step::Move(_) | Step::Shrink if sealed(Part::Whole) => Some("the pages are sealed"),
        // A page that cannot be written is not given up (`can_modify_vma_madv()`).
        Step::Advise(part, _) if sealed(part) && unwritable(part) => Some("the pages are sealed"),
        Step::Hwpoison(_) | Step::Advise(_, Advice::SoftOffline) if !here.poisons => {
            Some("the kernel takes no page for a broken one (CONFIG_MEMORY_FAILURE)")
        }
        // Another page takes the place of one that leaves the pool (`Ledger::refill()`).
        Step::Hwpoison(_) | Step::Advise(_, Advice::SoftOffline)
            if here.map == Map::HugetlbSpan =>
        {
            Some("the pool would be a page smaller from there on, and the guest may have no other range so large")
        }
        Step::Hwpoison(_) if hugetlb && !anonymous => {
            Some("a broken hugetlb page of a file stays in the page cache, and then in the pool, which gives it to none")
        }
        Step::Hwpoison(part) if hugetlb && here.other && mapped(part).all(|at| pages[at].own.is_none()) => {
            Some("the other process may have no page there")
        }
        Step::Advise(part, Advice::SoftOffline) if unreadable(part) => {
            Some("some pages cannot be read")
        }
        Step::Advise(part, Advice::SoftOffline) if mapped(part).any(|at| pages[at].pinned) => {
            Some("the pages are pinned")
        }
        Step::Advise(part, Advice::SoftOffline)
            if anonymous
                && !hugetlb
                && mapped(part).any(|at| memory.may_be_zero_page(here.view, at)) =>
        {
            Some("the page may be the zero page")
        }
        Step::Hwpoison(_) if !anonymous => {
            Some("broken pages are crossed with anonymous memory alone")
        }
        Step::Hwpoison(part) if unreadable(part) => Some("some pages cannot be read"),
        Step::Hwpoison(part) if mapped(part).any(|at| pages[at].pinned) => {
            Some("the pages are pinned")
        }
        Step::Hwpoison(part)
            if !hugetlb && mapped(part).any(|at| !memory.is_certain(here.view, at)) =>
        {
            Some("the page may be the zero page, or one of KSM")
        }
        Step::Hwpoison(_) if here.other && here.parted => {
            Some("the other process may have another page, or a copy in swap")
        }
        Step::Split if hugetlb => Some("hugetlb pages are not split"),
        Step::Split if !here.splits => Some("the kernel has no split_huge_pages (CONFIG_DEBUG_FS)"),
        Step::Advise(_, Advice::Willneed) if anonymous && !here.swap => {
            Some("the guest has no swap (CONFIG_SWAP, CONFIG_ZRAM)")
        }
        Step::Advise(_, Advice::Mergeable | Advice::Unmergeable) | Step::All(All::Merge)
            if !here.ksm =>
        {
            Some("the kernel has no KSM (CONFIG_KSM)")
        }
        Step::Advise(_, Advice::Mergeable | Advice::Unmergeable)
            if !anonymous && memory.below == Below::Shared =>
        {
            Some("KSM merges private memory alone")
        }
        _ if by_userfaultfd && !here.uffd => {
            Some("the kernel has no userfaultfd with write protection")
        }
        Step::UffdContinue(_) if !shmem && !hugetlb => {
            Some("UFFDIO_CONTINUE is for shmem and hugetlb")
        }
        Step::UffdMove | Step::UffdRelocate if !here.moves => {
            Some("the kernel has no UFFDIO_MOVE")
        }
        Step::UffdMove | Step::UffdRelocate if !anonymous => {
            Some("UFFDIO_MOVE is for private anonymous memory")
        }
        Step::UffdRelocate if sealed(Part::Whole) => Some("the pages are sealed"),
        Step::UffdRelocate if memory.forked => {
            Some("UFFDIO_MOVE takes no page that processes share")
        }
        Step::UffdRelocate if (0..all).all(shared) => Some("UFFDIO_MOVE takes no page of KSM"),
        Step::UffdRelocate if pages.iter().any(|page| page.guard || page.poison) => {
            Some("UFFDIO_MOVE takes no markers")
        }
        Step::UffdRelocate if !(0..all).all(fresh) => {
            Some("a new VMA would lack what the old one has of mprotect(), mlock() or madvise()")
        }
        Step::UffdFill(_) | Step::UffdZero(_) if memory.below == Below::Private => {
            Some("a file is below, and UFFDIO_COPY and UFFDIO_ZEROPAGE are for empty memory")
        }
        Step::UffdFill(_) | Step::UffdZero(_) if ramfs => Some("userfaultfd does not take ramfs"),
        Step::UffdFill(_) | Step::UffdZero(_) if disk => {
            Some("userfaultfd does not take files of disks")
        }
        _ if by_userfaultfd && registered() => Some("a userfaultfd has the area already"),
        _ if by_userfaultfd && hole(Part::Odd) => Some("the range has a hole"),
        _ if by_userfaultfd && locked(Part::Odd) => Some("the pages are locked"),
        _ if by_userfaultfd
            && mapped(Part::Odd).any(|at| {
                let page = &pages[at];
                page.guard || !page.write || memory.content(here.view, at).is_none()
            }) =>
        {
            Some("some pages cannot be written")
        }
        Step::UffdMove if unwritable(Part::Beside) => Some("some pages cannot be written"),
        Step::ForceWord(_) if hugetlb => Some("FOLL_FORCE is not for hugetlb"),
        Step::Advise(_, Advice::Pageout) | Step::All(All::SwapOff) if !here.swap => {
            Some("the guest has no swap (CONFIG_SWAP, CONFIG_ZRAM)")
        }
        Step::Advise(part, Advice::Dontneed | Advice::Cold | Advice::Pageout) if locked(part) => {
            Some("the pages are locked")
        }
        Step::Advise(_, Advice::Free) if !anonymous => {
            Some("MADV_FREE is for private anonymous memory")
        }
        Step::Advise(part, Advice::Free) if locked(part) => Some("the pages are locked"),
        Step::Advise(part, Advice::Remove) => match memory.below {
            _ if ramfs => Some("ramfs punches no holes"),
            _ if disk => Some(ZONES),
            Below::Nothing | Below::Private => Some("MADV_REMOVE is for shared mappings"),
            Below::Shared if locked(part) => Some("the pages are locked"),
            Below::Shared if mapped(part).any(|at| !pages[at].write) => {
                Some("MADV_REMOVE is for writable mappings")
            }
            Below::Shared => None,
        },
        Step::Advise(part, Advice::PopulateRead) if unreadable(part) => {
            Some("some pages cannot be read")
        }
        Step::Advise(part, Advice::PopulateWrite) if unwritable(part) => {
            Some("some pages cannot be written")
        }
        Step::Advise(_, Advice::GuardInstall | Advice::GuardRemove) if !here.guards => {
            Some("the kernel has no guard markers")
        }
        Step::Advise(_, Advice::GuardInstall | Advice::GuardRemove) if !anonymous => {
            Some("guard markers of files came later")
        }
        Step::Advise(part, Advice::GuardInstall | Advice::GuardRemove) if locked(part) => {
            Some("the pages are locked")
        }
        Step::All(All::Hints) if !here.hints => Some(
            "the kernel has no NUMA balancing whose scans can be set (CONFIG_NUMA_BALANCING, CONFIG_SCHED_DEBUG)",
        ),
        Step::All(All::Collapse) if !here.khugepaged => {
            Some("the kernel has no khugepaged (CONFIG_TRANSPARENT_HUGEPAGE)")
        }
        Step::Advise(_, Advice::Collapse) if !pmd => Some("no PMD can map the area"),
        Step::Move(Move::KeepOld) if !anonymous => {
            Some("MREMAP_DONTUNMAP of a file leaves both mapped")
        }
        Step::Move(Move::KeepOld) if registered() => {
            Some("a userfaultfd would watch the old range")
        }
        Step::Lock(part) if unreadable(part) => Some("some pages cannot be read"),
        Step::Lock(part) if mapped(part).any(|at| pages[at].write_protected) => {
            Some("a userfaultfd would stop mlock()")
        }
        Step::Pin(_) if !here.pins => Some("the kernel has no gup_test (CONFIG_GUP_TEST)"),
        Step::PinToRead(_) | Step::Pinned(..) if !here.pins => {
            Some("the kernel has no gup_test (CONFIG_GUP_TEST)")
        }
        Step::PinToRead(_) | Step::Pinned(..) if hugetlb => {
            Some("a hugetlb page that is shared is copied, and the pool may have none for it")
        }
        Step::PinToRead(part) | Step::Pinned(part, _) if hole(part) => {
            Some("the range has a hole")
        }
        Step::PinToRead(part) if unreadable(part) => Some("some pages cannot be read"),
        Step::Pinned(part, _) if unwritable(part) => Some("some pages cannot be written"),
        Step::Pinned(..) if (disk || ramfs) && memory.below == Below::Shared => {
            Some("pages of a file that is not shmem's are not pinned for writing (`writable_file_mapping_allowed()`)")
        }
        Step::Pinned(_, steps) => steps.iter().find_map(|step| left_out(memory, here, *step)),
        Step::UffdMove | Step::UffdRelocate if pages.iter().any(|page| page.pinned) => {
            Some("the pages are pinned")
        }
        Step::Node(..) | Step::Bind(..) | Step::All(All::MigratePages) if !here.nodes => Some("the guest has one NUMA node"),
        Step::Register
        | Step::RegisterMissing
        | Step::Watch(_)
        | Step::WriteProtect(..)
        | Step::ProtectEmpty(_)
        | Step::Poison(..)
            if !here.uffd =>
        {
            Some("the kernel has no userfaultfd with write protection")
        }
        Step::Watch(_) if !here.clears => {
            Some("the kernel has no pagemap (CONFIG_PROC_PAGE_MONITOR)")
        }
        Step::Watch(_) if registered() => Some("another userfaultfd watches the pages"),
        Step::Register | Step::RegisterMissing if !anonymous && !hugetlb => {
            Some("userfaultfd is crossed with anonymous memory and hugetlb alone")
        }
        Step::Poison(part) if mapped(part).any(|at| pages[at].guard) => {
            Some("some pages have a guard, which UFFDIO_POISON leaves")
        }
        Step::Register if pages.iter().any(|page| page.asks) => {
            Some("a userfaultfd has the area already")
        }
        Step::Advise(part, Advice::Free) if mapped(part).any(|at| pages[at].asks) => {
            Some("a page that is given up may be missing")
        }
        Step::Register | Step::Watch(_) | Step::WriteProtect(..) | Step::ProtectEmpty(_)
            if hole(Part::Whole) =>
        {
            Some("the range has a hole")
        }
        Step::OtherWrites(_) | Step::OtherAdvises(..) | Step::All(All::OtherExits)
            if !here.other =>
        {
            Some("there is no other process")
        }
        Step::Busy([Step::Advise(_, Advice::Dontneed), ..]) if memory.below == Below::Private => {
            Some("a store may be lost to the file's page below, which the thread does not know")
        }
        Step::Busy([Step::Advise(_, Advice::Dontneed), ..])
            if pages.iter().any(|page| page.asks) =>
        {
            Some("a page that is given up may be missing")
        }
        Step::Busy(steps) => steps.iter().find_map(|step| left_out(memory, here, *step)),
        Step::ForkAndLoad if memory.below == Below::Shared => {
            Some("a child shares what its parent stores")
        }
        Step::OtherAdvises(part, advice) => left_out(memory, here, Step::Advise(part, advice)),
        Step::All(All::ClearRefs) if !here.clears => {
            Some("the kernel has no clear_refs (CONFIG_PROC_PAGE_MONITOR)")
        }
        Step::Shrink if !pages[0].mapped => Some("the range begins with a hole"),
        Step::Shrink if here.unit == all => Some("half of it is less than a hugetlb page"),
        Step::Grow if hugetlb => Some("mremap() does not extend hugetlb"),
        Step::Grow if !pages[all / 2 - 1].mapped => Some("there is nothing to extend"),
        Step::Grow if sealed(Part::Whole) => Some("the pages are sealed"),
        Step::ForkAndWrite(_) | Step::ForkAndLoad
            if matches!(here.map, Map::HugetlbBlock | Map::HugetlbBlockFar) => Some(NOT_INHERITED),
        Step::WriteFile(_)
        | Step::Punch(_)
        | Step::PunchBytes
        | Step::Allocate(_)
        | Step::TruncateAndExtend
        | Step::TruncateBytes
            if !file =>
        {
            Some("it is no file")
        }
        Step::Punch(_) | Step::PunchBytes | Step::Allocate(_) if ramfs => {
            Some("ramfs punches no holes")
        }
        Step::Punch(_)
        | Step::PunchBytes
        | Step::Allocate(_)
        | Step::TruncateAndExtend
        | Step::TruncateBytes
            if disk =>
        {
            Some(ZONES)
        }
        Step::Sync | Step::Evict if !disk => Some("no disk is below"),
        _ => None,
    }
}
