// SPDX-License-Identifier: GPL-2.0-only
//! The states that memory is brought into: one row each of the crossing.

use protocol::Advice;

use super::steps::{Part, Prot, Step};

/// Backing and hint of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// Private anonymous memory, hinted for huge pages: two blocks.
    Hinted,
    /// The same, starting half a block into one.
    HintedHalfIn,
    /// Private anonymous memory with `MADV_NOHUGEPAGE`: two blocks.
    Small,
    /// Private anonymous memory of one PMD's range, hinted.
    Pmd,
    /// Anonymous shared memory: two blocks.
    Shared,
    /// A file of tmpfs, mapped shared.
    Tmpfs,
    /// A file of tmpfs, mapped private.
    TmpfsPrivate,
    /// A file of tmpfs that ends a page into the second block, mapped shared.
    TmpfsShort,
    /// A file of a tmpfs with `huge=always`, mapped shared.
    TmpfsHuge,
    /// A file of a tmpfs with `huge=always`, mapped private.
    TmpfsHugePrivate,
    /// A file of a PMD's range on a tmpfs with `huge=always`, mapped shared.
    TmpfsPmd,
    /// The same, mapped private.
    TmpfsPmdPrivate,
    /// A file of a PMD's range on a tmpfs without huge pages, mapped shared.
    TmpfsSpan,
    /// A file of ramfs, mapped shared.
    Ramfs,
    /// A file of ramfs, mapped private.
    RamfsPrivate,
    /// Two private hugetlb pages of a PMD's size.
    Hugetlb,
    /// Two shared ones.
    HugetlbShared,
}

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
}

impl State {
    /// Returns whether KSM is to merge it.
    pub fn is_merged(&self) -> bool {
        let merged = |step: &Step| matches!(step, Step::Advise(_, Advice::Mergeable));
        self.build.iter().any(merged)
    }
}

const fn state(name: &'static str, title: &'static str, map: Map, build: &'static [Step]) -> State {
    State {
        name,
        title,
        map,
        build,
    }
}

const WHOLE: Part = Part::Whole;
const WRITE: Step = Step::Write(WHOLE);
const POPULATE: Step = Step::Advise(WHOLE, Advice::PopulateWrite);
const MERGEABLE: Step = Step::Advise(WHOLE, Advice::Mergeable);
const PAGEOUT: Step = Step::Advise(WHOLE, Advice::Pageout);

/// All of them.
pub const STATES: &[State] = &[
    state("none", "never touched", Map::Hinted, &[]),
    state("zero", "zero pages", Map::Small, &[Step::Read(WHOLE)]),
    state("small", "single pages", Map::Small, &[WRITE]),
    state(
        "wiped",
        "written, then MADV_DONTNEED: tables without entries",
        Map::Hinted,
        &[WRITE, Step::Advise(WHOLE, Advice::Dontneed)],
    ),
    state(
        "not-forked",
        "MADV_DONTFORK across a block's border",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Odd, Advice::Dontfork)],
    ),
    state(
        "wiped-on-fork",
        "MADV_WIPEONFORK across a block's border",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Odd, Advice::Wipeonfork)],
    ),
    state(
        "ksm",
        "equal pages, merged by KSM",
        Map::Hinted,
        &[Step::WriteEqual(WHOLE), MERGEABLE],
    ),
    state(
        "ksm-part",
        "equal pages across a block's border, merged by KSM",
        Map::Hinted,
        &[WRITE, Step::WriteEqual(Part::Odd), MERGEABLE],
    ),
    state(
        "ksm-zero",
        "empty pages, merged by KSM with the zero page",
        // The split of a large folio that is empty would map the zero page by itself (`remap_page()`).
        Map::Small,
        &[POPULATE, MERGEABLE],
    ),
    state(
        "sparse",
        "single pages beside holes",
        Map::Small,
        &[Step::Write(Part::Odd)],
    ),
    state("folded", "two folded blocks", Map::Hinted, &[WRITE]),
    state(
        "border",
        "a VMA that begins inside a block",
        Map::HintedHalfIn,
        &[WRITE],
    ),
    state(
        "cut",
        "a folded block, one page unmapped",
        Map::Hinted,
        &[WRITE, Step::Unmap(Part::Page)],
    ),
    state(
        "queued",
        "a folio on the deferred split queue",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Page, Advice::Dontneed)],
    ),
    state(
        "freed",
        "clean after MADV_FREE",
        Map::Hinted,
        &[WRITE, Step::Advise(WHOLE, Advice::Free)],
    ),
    state(
        "freed-page",
        "one page of a block after MADV_FREE",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Page, Advice::Free)],
    ),
    state(
        "cooled",
        "old after MADV_COLD",
        Map::Hinted,
        &[WRITE, Step::Advise(WHOLE, Advice::Cold)],
    ),
    state("swapped", "swapped out", Map::Hinted, &[WRITE, PAGEOUT]),
    state(
        "swapped-small",
        "single pages, swapped out",
        Map::Small,
        &[WRITE, PAGEOUT],
    ),
    state(
        "swapped-zero",
        "empty pages, swapped out",
        Map::Hinted,
        &[POPULATE, PAGEOUT],
    ),
    state(
        "swapped-part",
        "swapped out across a block's border",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Odd, Advice::Pageout)],
    ),
    state(
        "swapped-in",
        "swapped out, read again",
        Map::Hinted,
        &[WRITE, PAGEOUT, Step::Read(WHOLE)],
    ),
    state(
        "swapped-in-part",
        "swapped out, one page read again",
        Map::Hinted,
        &[WRITE, PAGEOUT, Step::Read(Part::Page)],
    ),
    state(
        "swapped-read-only",
        "swapped out, then PROT_READ",
        Map::Hinted,
        &[WRITE, PAGEOUT, Step::Protect(WHOLE, Prot::Read)],
    ),
    state(
        "migrated",
        "moved to node 1",
        Map::Hinted,
        &[WRITE, Step::Node(WHOLE, 1)],
    ),
    state(
        "pinned",
        "pinned for a device across a block's border",
        Map::Hinted,
        &[WRITE, Step::Pin(Part::Odd)],
    ),
    state(
        "locked",
        "mlocked",
        Map::Hinted,
        &[WRITE, Step::Lock(WHOLE)],
    ),
    state(
        "locked-part",
        "mlocked across a block's border",
        Map::Hinted,
        &[WRITE, Step::Lock(Part::Odd)],
    ),
    state(
        "read-only",
        "PROT_READ",
        Map::Hinted,
        &[WRITE, Step::Protect(WHOLE, Prot::Read)],
    ),
    state(
        "read-only-page",
        "one page of a block PROT_READ",
        Map::Hinted,
        &[WRITE, Step::Protect(Part::Page, Prot::Read)],
    ),
    state(
        "no-access",
        "PROT_NONE",
        Map::Hinted,
        &[WRITE, Step::Protect(WHOLE, Prot::None)],
    ),
    state(
        "no-access-page",
        "one page of a block PROT_NONE",
        Map::Hinted,
        &[WRITE, Step::Protect(Part::Page, Prot::None)],
    ),
    state(
        "uffd-wp",
        "write-protected by userfaultfd",
        Map::Hinted,
        &[WRITE, Step::Register, Step::WriteProtect(WHOLE, true)],
    ),
    state(
        "uffd-wp-page",
        "one page of a block write-protected by userfaultfd",
        Map::Hinted,
        &[WRITE, Step::Register, Step::WriteProtect(Part::Page, true)],
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
    ),
    state(
        "poison",
        "a poison marker beside pages",
        Map::Hinted,
        &[Step::Register, Step::Poison(Part::Page), Step::Write(WHOLE)],
    ),
    state(
        "guarded",
        "a guard marker beside pages",
        Map::Hinted,
        &[WRITE, Step::Advise(Part::Page, Advice::GuardInstall)],
    ),
    state("pmd", "mapped by a PMD", Map::Pmd, &[WRITE]),
    state(
        "pmd-zero",
        "the huge zero page",
        Map::Pmd,
        &[Step::Read(WHOLE)],
    ),
    state(
        "pmd-split",
        "a PMD's folio mapped by pages",
        Map::Pmd,
        &[WRITE, Step::Protect(Part::Page, Prot::Read)],
    ),
    state(
        "pmd-cut",
        "a PMD's folio, one page given up",
        Map::Pmd,
        &[WRITE, Step::Advise(Part::Page, Advice::Dontneed)],
    ),
    state(
        "pmd-swapped",
        "a PMD's folio, swapped out",
        Map::Pmd,
        &[WRITE, PAGEOUT],
    ),
    state("shmem", "shared anonymous memory", Map::Shared, &[WRITE]),
    state(
        "shmem-sparse",
        "shared anonymous memory, touched in part",
        Map::Shared,
        &[Step::Write(Part::Odd)],
    ),
    state(
        "shmem-read",
        "shared anonymous memory, read and then written",
        Map::Shared,
        &[Step::Read(WHOLE), Step::Write(Part::Odd)],
    ),
    state(
        "shmem-swapped",
        "shared anonymous memory, swapped out",
        Map::Shared,
        &[WRITE, PAGEOUT],
    ),
    state(
        "tmpfs",
        "a file of tmpfs, mapped shared",
        Map::Tmpfs,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
    ),
    state(
        "tmpfs-written",
        "a file of tmpfs, written by mmap",
        Map::Tmpfs,
        &[WRITE],
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
    ),
    state(
        "tmpfs-short",
        "a mapping beyond a file's end",
        Map::TmpfsShort,
        &[WRITE],
    ),
    state(
        "tmpfs-private",
        "a file of tmpfs, mapped private",
        Map::TmpfsPrivate,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
    ),
    state(
        "tmpfs-copied",
        "a file of tmpfs, mapped private, written across a block's border",
        Map::TmpfsPrivate,
        &[Step::WriteFile(WHOLE), Step::Write(Part::Odd)],
    ),
    state(
        "tmpfs-copied-swapped",
        "a file of tmpfs, mapped private, written in part and swapped out",
        Map::TmpfsPrivate,
        &[Step::WriteFile(WHOLE), Step::Write(Part::Odd), PAGEOUT],
    ),
    state(
        "tmpfs-huge",
        "a file of tmpfs with huge=always, mapped shared",
        Map::TmpfsHuge,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
    ),
    state(
        "tmpfs-huge-written",
        "a file of tmpfs with huge=always, written by mmap",
        Map::TmpfsHuge,
        &[WRITE],
    ),
    state(
        "tmpfs-huge-copied",
        "a file of tmpfs with huge=always, mapped private, written across a block's border",
        Map::TmpfsHugePrivate,
        &[Step::WriteFile(WHOLE), Step::Write(Part::Odd)],
    ),
    state(
        "tmpfs-allocated",
        "a file of tmpfs after fallocate(), written across a block's border",
        Map::Tmpfs,
        &[Step::Allocate(WHOLE), Step::Write(Part::Odd)],
    ),
    state(
        "tmpfs-pmd",
        "a file of tmpfs, mapped by a PMD",
        Map::TmpfsPmd,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
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
    ),
    state(
        "tmpfs-span",
        "a file of tmpfs, a PMD's range of small folios",
        Map::TmpfsSpan,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
    ),
    state(
        "ramfs",
        "a file of ramfs, mapped shared",
        Map::Ramfs,
        &[Step::WriteFile(WHOLE), Step::Read(WHOLE)],
    ),
    state(
        "ramfs-written",
        "a file of ramfs, written by mmap",
        Map::Ramfs,
        &[WRITE],
    ),
    state(
        "ramfs-copied",
        "a file of ramfs, mapped private, written across a block's border",
        Map::RamfsPrivate,
        &[Step::WriteFile(WHOLE), Step::Write(Part::Odd)],
    ),
    state("hugetlb", "private hugetlb pages", Map::Hugetlb, &[WRITE]),
    state(
        "hugetlb-part",
        "private hugetlb pages, one touched and one reserved",
        Map::Hugetlb,
        &[Step::Write(Part::Odd)],
    ),
    state(
        "hugetlb-shared",
        "shared hugetlb pages, one touched and one reserved",
        Map::HugetlbShared,
        &[Step::Write(Part::Odd)],
    ),
];
