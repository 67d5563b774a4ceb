// SPDX-License-Identifier: GPL-2.0-only
//! The states that memory is brought into: one row each of the crossing.

use protocol::Advice;

use super::maps::Map;
use super::shown::{Folios, Is, Sight};
use super::steps::{Move, Part, Prot, Step};

/// One state.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// A few words for the table.
    pub title: &'static str,
    /// Backing of its area.
    pub map: Map,
    /// How it comes about.
    pub build: &'static [Step],
    /// Expectations of a look at it.
    pub sights: &'static [Sight],
    /// Its pages, single ones, are swapped to a disk. The others' go to zram, and what is read from there is in the swap cache
    /// only if processes share it.
    pub on_disk: bool,
}

impl State {
    const fn on_disk(self) -> State {
        State {
            on_disk: true,
            ..self
        }
    }

    /// Returns whether some of its pages are in swap.
    pub fn is_swapped(&self) -> bool {
        self.sights.iter().any(|sight| sight.1 == Is::Swapped)
    }

    /// Returns whether some of its pages were swapped out to zram and read again.
    pub fn is_read_back(&self) -> bool {
        let mut steps = self.build.iter();
        let swaps = |step: &Step| matches!(step, Step::Advise(_, Advice::Pageout));
        let reads = |step: &Step| matches!(step, Step::Read(_));
        !self.on_disk && steps.any(swaps) && steps.any(reads)
    }

    /// Returns whether its process forks on the way: what it has written by then is read-only from there on.
    pub fn is_forked(&self) -> bool {
        self.build.contains(&Step::ForkAndExit)
    }

    /// Returns whether a part of it was protected and is not any more: pages that were mapped one by one meanwhile are alike.
    pub fn is_protected_for_a_while(&self) -> bool {
        let protects = |step: &Step| *step == Step::Protect(Part::Odd, Prot::Write);
        self.build.iter().any(protects)
    }

    /// Returns whether userfaultfd write-protects some of it.
    pub fn is_write_protected(&self) -> bool {
        let protects = |step: &Step| matches!(step, Step::WriteProtect(..));
        self.build.iter().any(protects)
    }

    /// Returns whether KSM is to merge it.
    pub fn is_merged(&self) -> bool {
        let merged = |step: &Step| matches!(step, Step::Advise(_, Advice::Mergeable));
        self.build.iter().any(merged)
    }
}

const fn state(
    name: &'static str,
    title: &'static str,
    map: Map,
    build: &'static [Step],
    sights: &'static [Sight],
) -> State {
    State {
        name,
        title,
        map,
        build,
        sights,
        on_disk: false,
    }
}

const WHOLE: Part = Part::Whole;
const WRITE: Step = Step::Write(WHOLE);
const POPULATE: Step = Step::Advise(WHOLE, Advice::PopulateWrite);
const MERGEABLE: Step = Step::Advise(WHOLE, Advice::Mergeable);
const PAGEOUT: Step = Step::Advise(WHOLE, Advice::Pageout);

/// All of them.
pub const STATES: &[State] = &[
    state(
        "none",
        "never touched",
        Map::Hinted,
        &[],
        &[Sight(WHOLE, Is::Empty)],
    ),
    state(
        "zero",
        "zero pages",
        Map::Hinted,
        &[Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::Zero)],
    ),
    state(
        "small",
        "single pages",
        Map::Small,
        &[WRITE],
        &[
            Sight(WHOLE, Is::Writable),
            Sight(WHOLE, Is::Of(Folios::Single)),
        ],
    ),
    state(
        "wiped",
        "written, then MADV_DONTNEED: tables without entries",
        Map::Hinted,
        &[WRITE, Step::Advise(WHOLE, Advice::Dontneed)],
        &[Sight(WHOLE, Is::Empty)],
    ),
    state(
        "not-forked",
        "MADV_DONTFORK across a block's border",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Odd, Advice::Dontfork)],
        &[Sight(WHOLE, Is::Folded)],
    ),
    state(
        "wiped-on-fork",
        "MADV_WIPEONFORK across a block's border",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Odd, Advice::Wipeonfork)],
        &[Sight(WHOLE, Is::Folded)],
    ),
    state(
        "ksm",
        "equal pages, merged by KSM",
        Map::Hinted,
        &[Step::WriteEqual(WHOLE), MERGEABLE],
        &[
            Sight(WHOLE, Is::ReadOnly),
            Sight(WHOLE, Is::Of(Folios::Single)),
        ],
    ),
    state(
        "ksm-part",
        "equal pages across a block's border, merged by KSM",
        Map::Hinted,
        &[WRITE, Step::WriteEqual(Part::Odd), MERGEABLE],
        &[Sight(Part::Odd, Is::ReadOnly), Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "ksm-zero",
        "empty pages, merged by KSM with the zero page",
        // The split of a large folio that is empty would map the zero page by itself (`remap_page()`).
        Map::Small,
        &[POPULATE, MERGEABLE],
        &[Sight(WHOLE, Is::Zero)],
    ),
    state(
        "far",
        "pages in the first and in the last of three tables, none between",
        Map::Far,
        &[Step::Write(Part::Block), Step::Write(Part::Tail)],
        &[
            Sight(Part::Block, Is::Writable),
            Sight(Part::Inner, Is::Empty),
            Sight(Part::Tail, Is::Writable),
        ],
    ),
    state(
        "sparse",
        "single pages beside holes",
        Map::Small,
        &[Step::Write(Part::Odd)],
        &[
            Sight(Part::Odd, Is::Writable),
            Sight(Part::Start, Is::Empty),
        ],
    ),
    state(
        "folded",
        "two folded blocks",
        Map::Hinted,
        &[WRITE],
        &[Sight(WHOLE, Is::Folded)],
    ),
    state(
        "after-fork",
        "folded blocks, read-only after fork, then written across their border by /proc/PID/mem",
        Map::Hinted,
        &[WRITE, Step::ForkAndExit, Step::ForceWord(Part::Odd)],
        &[Sight(Part::Odd, Is::Writable), Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "border",
        "a VMA that begins inside a block",
        Map::HintedHalfIn,
        &[WRITE],
        &[Sight(Part::Middle, Is::Folded), Sight(WHOLE, Is::Writable)],
    ),
    state(
        "cut",
        "a folded block, one page unmapped",
        Map::Hinted,
        &[WRITE, Step::Unmap(Part::Page)],
        &[
            Sight(Part::Page, Is::Empty),
            Sight(Part::Second, Is::Folded),
            Sight(Part::Beside, Is::Writable),
        ],
    ),
    state(
        "straddling",
        "a block moved across a table's end, the table before it gone",
        Map::Hinted,
        &[
            WRITE,
            Step::Move(Move::Across),
            Step::Unmap(Part::FirstHalf),
        ],
        &[
            Sight(Part::FirstHalf, Is::Empty),
            Sight(Part::Second, Is::Writable),
            Sight(WHOLE, Is::Of(Folios::Block)),
        ],
    ),
    state(
        "queued",
        "a folio on the deferred split queue",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Page, Advice::Dontneed)],
        &[
            Sight(Part::Page, Is::Empty),
            Sight(WHOLE, Is::Of(Folios::Block)),
            Sight(Part::Beside, Is::Writable),
        ],
    ),
    state(
        "freed",
        "clean after MADV_FREE",
        Map::Hinted,
        &[WRITE, Step::Advise(WHOLE, Advice::Free)],
        &[Sight(WHOLE, Is::Writable)],
    ),
    state(
        "freed-page",
        "one page of a block after MADV_FREE",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Page, Advice::Free)],
        &[Sight(WHOLE, Is::Writable)],
    ),
    state(
        "cooled",
        "old after MADV_COLD",
        Map::Hinted,
        &[WRITE, Step::Advise(WHOLE, Advice::Cold)],
        &[Sight(WHOLE, Is::Folded)],
    ),
    state(
        "swapped",
        "swapped out",
        Map::Hinted,
        &[WRITE, PAGEOUT],
        &[Sight(WHOLE, Is::Swapped)],
    ),
    state(
        "swapped-small",
        "single pages, swapped out",
        Map::Small,
        &[WRITE, PAGEOUT],
        &[Sight(WHOLE, Is::Swapped)],
    ),
    state(
        "swapped-zero",
        "empty pages, swapped out",
        Map::Hinted,
        &[POPULATE, PAGEOUT],
        &[Sight(WHOLE, Is::Swapped)],
    ),
    state(
        "swapped-sparse",
        "large folios whose pages are empty in part, swapped out",
        Map::Hinted,
        &[POPULATE, Step::Write(Part::Odd), PAGEOUT],
        &[Sight(WHOLE, Is::Swapped)],
    ),
    state(
        "swapped-part",
        "swapped out across a block's border",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Odd, Advice::Pageout)],
        &[
            Sight(Part::Odd, Is::Swapped),
            Sight(Part::Start, Is::Writable),
        ],
    ),
    state(
        "swapped-in",
        "swapped out, read again",
        Map::Hinted,
        &[WRITE, PAGEOUT, Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "swapped-in-part",
        "swapped out, one page read again",
        Map::Hinted,
        &[WRITE, PAGEOUT, Step::Read(Part::Page)],
        &[
            Sight(Part::Page, Is::Mapped),
            Sight(Part::Second, Is::Swapped),
        ],
    ),
    state(
        "swap-cached",
        "zero pages and others, swapped out, read again, then written across a block's border",
        Map::Small,
        &[
            POPULATE,
            Step::Write(Part::Second),
            PAGEOUT,
            Step::Read(WHOLE),
            Step::Write(Part::Odd),
        ],
        &[Sight(WHOLE, Is::Writable)],
    )
    .on_disk(),
    state(
        "swapped-read-only",
        "swapped out, then PROT_READ",
        Map::Hinted,
        &[WRITE, PAGEOUT, Step::Protect(WHOLE, Prot::Read)],
        &[Sight(WHOLE, Is::Swapped), Sight(WHOLE, Is::Vma("r--p"))],
    ),
    state(
        "migrated",
        "moved to node 1",
        Map::Hinted,
        &[WRITE, Step::Node(WHOLE, 1)],
        &[Sight(WHOLE, Is::Folded)],
    ),
    state(
        "pinned",
        "pinned for a device across a block's border",
        Map::Hinted,
        &[WRITE, Step::Pin(Part::Odd)],
        &[Sight(WHOLE, Is::Writable)],
    ),
    state(
        "locked",
        "mlocked",
        Map::Hinted,
        &[WRITE, Step::Lock(WHOLE)],
        &[Sight(WHOLE, Is::Folded)],
    ),
    state(
        "locked-part",
        "mlocked across a block's border",
        Map::Hinted,
        &[WRITE, Step::Lock(Part::Odd)],
        &[Sight(WHOLE, Is::Folded)],
    ),
    state(
        "locked-empty",
        "empty large folios, mlocked",
        Map::Hinted,
        &[POPULATE, Step::Lock(WHOLE)],
        &[Sight(WHOLE, Is::Folded)],
    ),
    state(
        "read-only",
        "PROT_READ",
        Map::Hinted,
        &[WRITE, Step::Protect(WHOLE, Prot::Read)],
        &[Sight(WHOLE, Is::ReadOnly), Sight(WHOLE, Is::Vma("r--p"))],
    ),
    state(
        "read-only-page",
        "one page of a block PROT_READ",
        Map::Hinted,
        &[WRITE, Step::Protect(Part::Page, Prot::Read)],
        &[
            Sight(Part::Page, Is::ReadOnly),
            Sight(Part::Page, Is::Vma("r--p")),
            Sight(Part::Second, Is::Folded),
        ],
    ),
    state(
        "no-access",
        "PROT_NONE",
        Map::Hinted,
        &[WRITE, Step::Protect(WHOLE, Prot::None)],
        &[Sight(WHOLE, Is::NoAccess)],
    ),
    state(
        "no-access-page",
        "one page of a block PROT_NONE",
        Map::Hinted,
        &[WRITE, Step::Protect(Part::Page, Prot::None)],
        &[
            Sight(Part::Page, Is::NoAccess),
            Sight(Part::Second, Is::Folded),
        ],
    ),
    state(
        "uffd-wp",
        "write-protected by userfaultfd",
        Map::Hinted,
        &[WRITE, Step::Register, Step::WriteProtect(WHOLE, true)],
        &[Sight(WHOLE, Is::ReadOnly)],
    ),
    state(
        "uffd-wp-page",
        "one page of a block write-protected by userfaultfd",
        Map::Hinted,
        &[WRITE, Step::Register, Step::WriteProtect(Part::Page, true)],
        &[
            Sight(Part::Page, Is::ReadOnly),
            Sight(Part::Second, Is::Folded),
        ],
    ),
    state(
        "uffd-wp-swapped",
        "write-protected by userfaultfd, swapped out",
        Map::Hinted,
        &[
            WRITE,
            Step::Register,
            Step::WriteProtect(WHOLE, true),
            PAGEOUT,
        ],
        &[Sight(WHOLE, Is::Swapped)],
    ),
    state(
        "swapped-uffd-wp",
        "swapped out, then write-protected by userfaultfd",
        Map::Hinted,
        &[
            WRITE,
            PAGEOUT,
            Step::Register,
            Step::WriteProtect(WHOLE, true),
        ],
        &[Sight(WHOLE, Is::Swapped)],
    ),
    state(
        "uffd-missing",
        "written across a block's border, registered with userfaultfd for the rest",
        Map::Small,
        &[
            Step::Write(Part::Odd),
            Step::Advise(WHOLE, Advice::Hugepage),
            Step::RegisterMissing,
        ],
        &[
            Sight(Part::Odd, Is::Writable),
            Sight(Part::Start, Is::Empty),
        ],
    ),
    state(
        "poison",
        "a poison marker beside pages",
        Map::Hinted,
        &[Step::Register, Step::Poison(Part::Page), Step::Write(WHOLE)],
        &[
            Sight(Part::Page, Is::Marked("poison")),
            Sight(Part::Second, Is::Writable),
        ],
    ),
    state(
        "guarded",
        "a guard marker beside pages",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Page, Advice::GuardInstall)],
        &[
            Sight(Part::Page, Is::Marked("guard")),
            Sight(Part::Second, Is::Folded),
        ],
    ),
    state(
        "pmd",
        "mapped by a PMD",
        Map::Pmd,
        &[WRITE],
        &[Sight(WHOLE, Is::Block)],
    ),
    state(
        "pmd-and-blocks",
        "mapped by a PMD, and folded blocks behind it",
        Map::PmdAndBlocks,
        &[WRITE],
        &[Sight(Part::Head, Is::Block), Sight(Part::Tail, Is::Folded)],
    ),
    state(
        "pmd-zero",
        "the huge zero page",
        Map::Pmd,
        &[Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::Block)],
    ),
    state(
        "pmd-split",
        "a PMD's folio mapped by pages",
        Map::Pmd,
        &[WRITE, Step::Protect(Part::Last, Prot::Read)],
        &[
            Sight(Part::Last, Is::ReadOnly),
            Sight(Part::Block, Is::Folded),
            Sight(Part::Second, Is::Folded),
            Sight(WHOLE, Is::Of(Folios::Pmd)),
        ],
    ),
    state(
        "pmd-cut",
        "a PMD's folio, one page given up",
        Map::Pmd,
        &[WRITE, Step::Advise(Part::Page, Advice::Dontneed)],
        &[
            Sight(Part::Page, Is::Empty),
            Sight(Part::Second, Is::Writable),
            Sight(WHOLE, Is::Of(Folios::Pmd)),
        ],
    ),
    state(
        "pmd-swapped",
        "a PMD's folio, swapped out",
        Map::Pmd,
        &[WRITE, PAGEOUT],
        &[Sight(WHOLE, Is::Swapped)],
    ),
    state(
        "pmd-swapped-part",
        "a PMD's folio, swapped out across a block's border",
        Map::PmdToo,
        &[WRITE, Step::Advise(Part::Odd, Advice::Pageout)],
        &[
            Sight(Part::Odd, Is::Swapped),
            Sight(Part::Start, Is::Writable),
        ],
    ),
    state(
        "pmd-uffd-wp",
        "mapped by a PMD, write-protected by userfaultfd",
        Map::PmdToo,
        &[WRITE, Step::Register, Step::WriteProtect(WHOLE, true)],
        &[Sight(WHOLE, Is::Block)],
    ),
    state(
        "pmd-uffd-wp-part",
        "a PMD's folio mapped by pages, write-protected by userfaultfd across a block's border",
        Map::PmdToo,
        &[WRITE, Step::Register, Step::WriteProtect(Part::Odd, true)],
        &[
            Sight(Part::Odd, Is::ReadOnly),
            Sight(WHOLE, Is::Of(Folios::Pmd)),
        ],
    ),
    state(
        "shmem",
        "shared anonymous memory",
        Map::Shared,
        &[WRITE],
        &[Sight(WHOLE, Is::Writable)],
    ),
    state(
        "shmem-sparse",
        "shared anonymous memory, touched in part",
        Map::Shared,
        &[Step::Write(Part::Odd)],
        &[Sight(Part::Odd, Is::Writable)],
    ),
    state(
        "shmem-read",
        "shared anonymous memory, read and then written",
        Map::Shared,
        &[Step::Read(WHOLE), Step::Write(Part::Odd)],
        &[Sight(Part::Odd, Is::Writable), Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "shmem-swapped",
        "shared anonymous memory, swapped out",
        Map::Shared,
        &[WRITE, PAGEOUT],
        &[Sight(WHOLE, Is::Empty)],
    ),
    state(
        "tmpfs",
        "a file of tmpfs, mapped shared",
        Map::Tmpfs,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "tmpfs-written",
        "a file of tmpfs, written by mmap",
        Map::Tmpfs,
        &[WRITE],
        &[Sight(WHOLE, Is::Writable)],
    ),
    state(
        "tmpfs-hole",
        "a file of tmpfs with a hole",
        Map::Tmpfs,
        &[
            Step::WriteFile(WHOLE),
            Step::Punch(Part::Page),
            Step::Read(WHOLE),
        ],
        &[Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "tmpfs-short",
        "a mapping beyond a file's end",
        Map::TmpfsShort,
        &[WRITE],
        &[Sight(Part::Block, Is::Writable)],
    ),
    state(
        "tmpfs-private",
        "a file of tmpfs, mapped private",
        Map::TmpfsPrivate,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::ReadOnly)],
    ),
    state(
        "tmpfs-copied",
        "a file of tmpfs, mapped private, written across a block's border",
        Map::TmpfsPrivate,
        &[Step::WriteFile(WHOLE), Step::Write(Part::Odd)],
        &[Sight(Part::Odd, Is::Writable)],
    ),
    state(
        "tmpfs-copied-swapped",
        "a file of tmpfs, mapped private, written in part and swapped out",
        Map::TmpfsPrivate,
        &[Step::WriteFile(WHOLE), Step::Write(Part::Odd), PAGEOUT],
        &[Sight(Part::Odd, Is::Swapped)],
    ),
    state(
        "tmpfs-huge",
        "a file of tmpfs with huge=always, mapped shared",
        Map::TmpfsHuge,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "tmpfs-huge-across",
        "a file of tmpfs with huge=always, mapped across a table's end and touched behind it",
        Map::TmpfsHugeAcross,
        &[Step::WriteFile(WHOLE), Step::Write(Part::Second)],
        &[
            Sight(Part::Second, Is::Writable),
            Sight(Part::Second, Is::Of(Folios::Pmd)),
            Sight(Part::FirstHalf, Is::Empty),
        ],
    ),
    state(
        "tmpfs-huge-written",
        "a file of tmpfs with huge=always, written by mmap",
        Map::TmpfsHuge,
        &[WRITE],
        &[Sight(WHOLE, Is::Writable)],
    ),
    state(
        "tmpfs-huge-page",
        "a file of tmpfs with huge=always, of which pwrite has written one page",
        Map::TmpfsHuge,
        &[Step::WriteFile(Part::Page), Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "tmpfs-huge-short",
        "a mapping beyond the end of a file of tmpfs with huge=always",
        Map::TmpfsHugeShort,
        &[Step::WriteFile(Part::Block), Step::Read(Part::Block)],
        &[Sight(Part::Block, Is::Mapped)],
    ),
    state(
        "tmpfs-huge-copied",
        "a file of tmpfs with huge=always, mapped private, written across a block's border",
        Map::TmpfsHugePrivate,
        &[Step::WriteFile(WHOLE), Step::Write(Part::Odd)],
        &[Sight(Part::Odd, Is::Writable)],
    ),
    state(
        "tmpfs-allocated",
        "a file of tmpfs after fallocate(), written across a block's border",
        Map::Tmpfs,
        &[Step::Allocate(WHOLE), Step::Write(Part::Odd)],
        &[Sight(Part::Odd, Is::Writable)],
    ),
    state(
        "tmpfs-pmd",
        "a file of tmpfs, mapped by a PMD",
        Map::TmpfsPmd,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::FileBlock)],
    ),
    state(
        "tmpfs-pmd-read",
        "a file of tmpfs, mapped by a PMD by loads, and then written",
        Map::TmpfsPmd,
        &[Step::Read(WHOLE), Step::Write(Part::Odd)],
        &[Sight(WHOLE, Is::FileBlock)],
    ),
    state(
        "tmpfs-pmd-split",
        "a file of tmpfs, the PMD's folio mapped by pages",
        Map::TmpfsPmd,
        &[
            WRITE,
            Step::Protect(Part::Odd, Prot::Read),
            Step::Read(WHOLE),
            Step::Protect(Part::Odd, Prot::Write),
        ],
        &[
            Sight(Part::Page, Is::Mapped),
            Sight(WHOLE, Is::Of(Folios::Pmd)),
        ],
    ),
    state(
        "tmpfs-pmd-copied",
        "a file of tmpfs with a PMD's folio, mapped private, written in part",
        Map::TmpfsPmdPrivate,
        &[
            Step::WriteFile(WHOLE),
            Step::Read(WHOLE),
            Step::Write(Part::Odd),
        ],
        &[Sight(Part::Odd, Is::Writable)],
    ),
    state(
        "tmpfs-span",
        "a file of tmpfs, a PMD's range with small folios and a hole",
        Map::TmpfsSpan,
        // The hole is larger than what L15 leaves to CPUs.
        &[
            Step::WriteFile(WHOLE),
            Step::Read(WHOLE),
            Step::Punch(Part::Inner),
        ],
        &[
            Sight(Part::Inner, Is::Empty),
            Sight(Part::Block, Is::Mapped),
            Sight(Part::Second, Is::Mapped),
            Sight(Part::Last, Is::Mapped),
        ],
    ),
    state(
        "ramfs",
        "a file of ramfs, mapped shared",
        Map::Ramfs,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "ramfs-written",
        "a file of ramfs, written by mmap",
        Map::Ramfs,
        &[WRITE],
        &[Sight(WHOLE, Is::Writable)],
    ),
    state(
        "ramfs-copied",
        "a file of ramfs, mapped private, written across a block's border",
        Map::RamfsPrivate,
        &[Step::WriteFile(WHOLE), Step::Write(Part::Odd)],
        &[Sight(Part::Odd, Is::Writable)],
    ),
    state(
        "disk",
        "a file of a disk, mapped shared",
        Map::Disk,
        &[Step::WriteFile(WHOLE), Step::Sync, Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::ReadOnly)],
    ),
    state(
        "disk-written",
        "a file of a disk, written by mmap",
        Map::Disk,
        &[Step::WriteFile(WHOLE), WRITE],
        &[Sight(WHOLE, Is::Writable)],
    ),
    state(
        "disk-synced",
        "a file of a disk, written by mmap, then fsync",
        Map::Disk,
        &[Step::WriteFile(WHOLE), WRITE, Step::Sync],
        &[Sight(WHOLE, Is::ReadOnly)],
    ),
    state(
        "disk-read",
        "a file of a disk, read in by faults, written across a block's border",
        Map::Disk,
        &[
            Step::WriteFile(WHOLE),
            Step::Evict,
            Step::Read(WHOLE),
            Step::Write(Part::Odd),
        ],
        &[Sight(Part::Odd, Is::Writable), Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "disk-copied",
        "a file of a disk, mapped private, written across a block's border",
        Map::DiskPrivate,
        &[Step::WriteFile(WHOLE), Step::Sync, Step::Write(Part::Odd)],
        &[Sight(Part::Odd, Is::Writable)],
    ),
    state(
        "erofs",
        "a file that was read ahead, mapped private",
        Map::ReadAhead,
        &[Step::Read(WHOLE)],
        &[Sight(WHOLE, Is::ReadOnly)],
    ),
    state(
        "erofs-copied",
        "a file that was read ahead, mapped private, written across a block's border",
        Map::ReadAhead,
        &[Step::Read(WHOLE), Step::Write(Part::Odd)],
        &[Sight(Part::Odd, Is::Writable), Sight(WHOLE, Is::Mapped)],
    ),
    state(
        "hugetlb",
        "private hugetlb pages",
        Map::Hugetlb,
        &[WRITE],
        &[Sight(WHOLE, Is::Hugetlb)],
    ),
    state(
        "hugetlb-part",
        "private hugetlb pages, one touched and one reserved",
        Map::Hugetlb,
        &[Step::Write(Part::Odd)],
        &[Sight(Part::Odd, Is::Hugetlb)],
    ),
    state(
        "hugetlb-shared",
        "shared hugetlb pages, one touched and one reserved",
        Map::HugetlbShared,
        &[Step::Write(Part::Odd)],
        &[Sight(Part::Odd, Is::Hugetlb)],
    ),
    state(
        "hugetlb-block",
        "private hugetlb pages of a block's size",
        Map::HugetlbBlock,
        &[WRITE],
        &[Sight(WHOLE, Is::Hugetlb)],
    ),
    state(
        "hugetlb-block-part",
        "private hugetlb pages of a block's size, one touched and one reserved",
        Map::HugetlbBlock,
        &[Step::Write(Part::Page)],
        &[
            Sight(Part::Block, Is::Hugetlb),
            Sight(Part::Second, Is::Empty),
        ],
    ),
    state(
        "hugetlb-span",
        "a private hugetlb page of contiguous PMDs, written in part",
        Map::HugetlbSpan,
        &[Step::Write(Part::Odd)],
        &[Sight(WHOLE, Is::Hugetlb)],
    ),
    state(
        "hugetlb-block-shared",
        "shared hugetlb pages of a block's size",
        Map::HugetlbBlockShared,
        &[WRITE],
        &[Sight(WHOLE, Is::Hugetlb)],
    ),
    state(
        "hugetlb-block-far",
        "private hugetlb pages of a block's size in the first and in the last of three tables",
        Map::HugetlbBlockFar,
        &[Step::Write(Part::Block), Step::Write(Part::Tail)],
        &[
            Sight(Part::Block, Is::Hugetlb),
            Sight(Part::Inner, Is::Empty),
            Sight(Part::Tail, Is::Hugetlb),
        ],
    ),
];
