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
    /// A file of ramfs, mapped shared.
    Ramfs,
    /// A file of ramfs, mapped private.
    RamfsPrivate,
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
const PAGEOUT: Step = Step::Advise(WHOLE, Advice::Pageout);

/// All of them.
pub const STATES: &[State] = &[
    state("none", "never touched", Map::Hinted, &[]),
    state("zero", "zero pages", Map::Small, &[Step::Read(WHOLE)]),
    state("small", "single pages", Map::Small, &[WRITE]),
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
];
