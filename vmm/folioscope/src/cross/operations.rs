// SPDX-License-Identifier: GPL-2.0-only
//! The operations that every state is put under: one column each of the crossing.

use protocol::Advice;

use verdict::crossing::Acting;

use super::maps::Map;
use super::steps::{All, Move, Part, Prot, Step};

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// A few words for the table.
    pub title: &'static str,
    /// Its steps.
    pub steps: &'static [Step],
    /// Areas in which it may leave blocks open.
    pub opens: Opens,
}

/// Areas in which an operation may leave blocks open, which could be contiguous and are not. The kernel sets the bit when
/// it maps a whole block, or a block's last page, and not where entries become alike page by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opens {
    /// None.
    None,
    /// Those of files on a disk: a fault makes one entry dirty.
    Files,
    /// All.
    All,
}

impl Opens {
    /// Returns whether areas of this kind may have them.
    pub fn includes(self, map: Map) -> bool {
        match self {
            Self::None => false,
            Self::Files => map.is_stored(),
            Self::All => true,
        }
    }
}

impl Operation {
    /// Returns whether it makes sense there in any state: a step may need another process, or none.
    pub fn acts_in(&self, acting: Acting) -> bool {
        let left_out = |step: &Step| match step {
            Step::OtherWrites(_) | Step::OtherAdvises(..) | Step::All(All::OtherExits) => {
                acting == Acting::Alone
            }
            Step::UffdRelocate => acting != Acting::Alone,
            _ => false,
        };
        !self.steps.iter().flat_map(Step::parts).any(left_out)
    }

    const fn opens(self, opens: Opens) -> Operation {
        Operation { opens, ..self }
    }
}

const fn operation(name: &'static str, title: &'static str, steps: &'static [Step]) -> Operation {
    Operation {
        name,
        title,
        steps,
        opens: Opens::None,
    }
}

const WHOLE: Part = Part::Whole;
const PAGEOUT: Step = Step::Advise(WHOLE, Advice::Pageout);
const MERGEABLE: Step = Step::Advise(WHOLE, Advice::Mergeable);

/// All of them. The first leaves the state as it is.
pub const OPERATIONS: &[Operation] = &[
    operation("nothing", "nothing: the state itself", &[]),
    operation("read", "a load of every page", &[Step::Read(WHOLE)]),
    operation(
        "write-page",
        "a store to one page",
        &[Step::Write(Part::Page)],
    ),
    operation(
        "write-word",
        "a store of one word of every page",
        &[Step::WriteWord(WHOLE)],
    )
    .opens(Opens::Files),
    operation(
        "race-read",
        "two threads load every page at once",
        &[Step::RaceToRead(WHOLE)],
    )
    // The one that comes second has a fault of its own, with another order.
    .opens(Opens::All),
    operation(
        "race",
        "a thread loads every page while another one stores a word to it",
        &[Step::Race(WHOLE)],
    )
    .opens(Opens::All),
    operation(
        "race-write",
        "two threads store to every page at once, a word each",
        &[Step::RaceToWrite(WHOLE)],
    )
    .opens(Opens::All),
    operation(
        "busy-migrate",
        "move_pages to node 1, and back, twice, while a second thread stores to every page",
        &[Step::Busy(&[
            Step::Node(WHOLE, 1),
            Step::Node(WHOLE, 0),
            Step::Node(WHOLE, 1),
            Step::Node(WHOLE, 0),
        ])],
    )
    // The thread's faults are of single pages.
    .opens(Opens::All),
    operation(
        "busy-pageout",
        "MADV_PAGEOUT, three times, while a second thread stores to every page",
        &[Step::Busy(&[PAGEOUT; 3])],
    )
    .opens(Opens::All),
    operation(
        "busy-dontneed",
        "MADV_DONTNEED while a second thread stores to every page",
        &[Step::Busy(&[Step::Advise(WHOLE, Advice::Dontneed)])],
    )
    .opens(Opens::All),
    operation(
        "busy-remove",
        "MADV_REMOVE across a block's border while a second thread stores to every page",
        &[Step::Busy(&[Step::Advise(Part::Odd, Advice::Remove); 4])],
    )
    .opens(Opens::All),
    operation(
        "busy-collapse",
        "MADV_COLLAPSE while a second thread stores to every page",
        &[Step::Busy(&[Step::Advise(WHOLE, Advice::Collapse)])],
    )
    .opens(Opens::All),
    operation(
        "busy-split",
        "split_huge_pages of debugfs while a second thread stores to every page",
        &[Step::Busy(&[Step::Split])],
    )
    .opens(Opens::All),
    operation(
        "busy-fork",
        "a child that loads every page while a second thread stores to its parent's",
        &[Step::Busy(&[Step::ForkAndLoad])],
    )
    .opens(Opens::All),
    operation(
        "busy-lock",
        "mlock, and munlock, while a second thread stores to every page",
        &[Step::Busy(&[Step::Lock(WHOLE), Step::Unlock(WHOLE)])],
    )
    .opens(Opens::All),
    operation(
        "busy-evict",
        "fsync and drop_caches while a second thread stores to every page",
        &[Step::Busy(&[Step::Evict])],
    )
    .opens(Opens::All),
    operation(
        "busy-merge",
        "equal pages are written, and passes of KSM while a second thread stores to every page",
        &[
            Step::WriteEqual(Part::Second),
            MERGEABLE,
            Step::Busy(&[Step::All(All::Merge)]),
        ],
    )
    .opens(Opens::All),
    operation(
        "busy-reclaim",
        "memory.reclaim of the cgroup while a second thread stores to every page",
        &[Step::Busy(&[Step::All(All::Reclaim)])],
    )
    .opens(Opens::All),
    operation(
        "busy-khugepaged",
        "scans of khugepaged while a second thread stores to every page",
        &[Step::Busy(&[Step::All(All::Collapse)])],
    )
    .opens(Opens::All),
    operation(
        "busy-compact",
        "compaction of all memory while a second thread stores to every page",
        &[Step::Busy(&[Step::All(All::Compact)])],
    )
    .opens(Opens::All),
    operation(
        "busy-hint",
        "NUMA hints while a second thread stores to every page",
        &[Step::Busy(&[Step::All(All::Hints)])],
    )
    .opens(Opens::All),
    operation(
        "busy-other-exits",
        "the other process exits while a second thread stores to every page",
        &[Step::Busy(&[Step::All(All::OtherExits)])],
    )
    .opens(Opens::All),
    operation(
        "force-word",
        "a write of one word of every page by /proc/self/mem",
        &[Step::ForceWord(WHOLE)],
    )
    .opens(Opens::Files),
    operation("write", "a store to every page", &[Step::Write(WHOLE)]).opens(Opens::Files),
    operation(
        "other-writes",
        "the other process stores to a part",
        &[Step::OtherWrites(Part::Odd)],
    ),
    operation(
        "other-exits",
        "the other process exits",
        &[Step::All(All::OtherExits)],
    ),
    operation("move", "mremap", &[Step::Move(Move::Aligned)]),
    operation(
        "move-write",
        "mremap, then a store to one page",
        &[Step::Move(Move::Aligned), Step::Write(Part::Page)],
    ),
    operation(
        "move-off",
        "mremap to an address that is off by a page",
        &[Step::Move(Move::OffByAPage)],
    ),
    operation(
        "move-keep",
        "mremap with MREMAP_DONTUNMAP",
        &[Step::Move(Move::KeepOld)],
    ),
    operation(
        "protect",
        "mprotect read, and back",
        &[
            Step::Protect(WHOLE, Prot::Read),
            Step::Protect(WHOLE, Prot::Write),
        ],
    ),
    operation(
        "protect-none",
        "mprotect none, and back",
        &[
            Step::Protect(WHOLE, Prot::None),
            Step::Protect(WHOLE, Prot::Write),
        ],
    ),
    operation(
        "protect-odd",
        "mprotect read across a block's border, a load, and back",
        &[
            Step::Protect(Part::Odd, Prot::Read),
            Step::Read(WHOLE),
            Step::Protect(Part::Odd, Prot::Write),
        ],
    )
    .opens(Opens::All),
    operation(
        "dontneed-page",
        "MADV_DONTNEED of one page",
        &[Step::Advise(Part::Page, Advice::Dontneed)],
    ),
    operation(
        "dontneed",
        "MADV_DONTNEED of all",
        &[Step::Advise(WHOLE, Advice::Dontneed)],
    ),
    operation(
        "dontneed-read",
        "MADV_DONTNEED of all, and a load of every page",
        &[Step::Advise(WHOLE, Advice::Dontneed), Step::Read(WHOLE)],
    ),
    operation(
        "dontneed-locked",
        "MADV_DONTNEED_LOCKED across a block's border",
        &[Step::Advise(Part::Odd, Advice::DontneedLocked)],
    ),
    operation(
        "willneed",
        "MADV_WILLNEED, and a load of every page",
        &[Step::Advise(WHOLE, Advice::Willneed), Step::Read(WHOLE)],
    ),
    operation(
        "free",
        "MADV_FREE across a block's border",
        &[Step::Advise(Part::Odd, Advice::Free)],
    ),
    operation(
        "free-reclaim",
        "MADV_FREE, then MADV_PAGEOUT",
        &[
            Step::Advise(WHOLE, Advice::Free),
            Step::Advise(WHOLE, Advice::Pageout),
        ],
    ),
    operation(
        "free-reclaim-all",
        "MADV_FREE, then memory.reclaim of the cgroup, which takes what processes share too",
        &[Step::Advise(WHOLE, Advice::Free), Step::All(All::Reclaim)],
    )
    // What is dirty for another process is mapped again, one entry (`try_to_unmap_one()`).
    .opens(Opens::All),
    operation(
        "cold",
        "MADV_COLD across a block's border",
        &[Step::Advise(Part::Odd, Advice::Cold)],
    ),
    operation(
        "clear-refs",
        "/proc/PID/clear_refs, and a load of one page",
        &[Step::All(All::ClearRefs), Step::Read(Part::Page)],
    ),
    operation(
        "pageout",
        "MADV_PAGEOUT",
        &[Step::Advise(WHOLE, Advice::Pageout)],
    ),
    operation(
        "other-pageout",
        "process_madvise(MADV_PAGEOUT) by the other process, and a load",
        &[
            Step::OtherAdvises(WHOLE, Advice::Pageout),
            Step::Read(WHOLE),
        ],
    ),
    operation(
        "pageout-odd",
        "MADV_PAGEOUT across a block's border, and a load",
        &[Step::Advise(Part::Odd, Advice::Pageout), Step::Read(WHOLE)],
    ),
    operation(
        "write-pageout",
        "a store to one page, MADV_COLD, MADV_PAGEOUT, and a load",
        &[
            Step::Write(Part::Page),
            Step::Advise(WHOLE, Advice::Cold),
            Step::Advise(WHOLE, Advice::Pageout),
            Step::Read(WHOLE),
        ],
    )
    .opens(Opens::All),
    operation(
        "free-write-reclaim",
        "MADV_FREE, a store to one page, MADV_PAGEOUT",
        &[
            Step::Advise(WHOLE, Advice::Free),
            Step::Write(Part::Page),
            Step::Advise(WHOLE, Advice::Pageout),
        ],
    )
    .opens(Opens::All),
    operation(
        "reclaim",
        "memory.reclaim of the cgroup",
        &[Step::All(All::Reclaim)],
    ),
    operation(
        "reclaim-read",
        "memory.reclaim of the cgroup, and a load of every page",
        &[Step::All(All::Reclaim), Step::Read(WHOLE)],
    ),
    operation(
        "limit",
        "a store to every page while the cgroup is at its limit (memory.max)",
        &[
            Step::All(All::Limit(true)),
            Step::Write(WHOLE),
            Step::All(All::Limit(false)),
        ],
    ),
    operation(
        "collapse",
        "MADV_COLLAPSE",
        &[Step::Advise(WHOLE, Advice::Collapse)],
    ),
    operation(
        "khugepaged",
        "scans of khugepaged",
        &[Step::All(All::Collapse)],
    ),
    operation("split", "split_huge_pages of debugfs", &[Step::Split]),
    operation(
        "merge",
        "equal pages are written, MADV_MERGEABLE, and passes of KSM",
        &[
            Step::WriteEqual(Part::Second),
            MERGEABLE,
            Step::All(All::Merge),
        ],
    )
    .opens(Opens::Files),
    operation(
        "unmerge",
        "MADV_UNMERGEABLE",
        &[Step::Advise(WHOLE, Advice::Unmergeable)],
    ),
    operation(
        "populate-read",
        "MADV_POPULATE_READ",
        &[Step::Advise(WHOLE, Advice::PopulateRead)],
    ),
    operation(
        "populate-write",
        "MADV_POPULATE_WRITE",
        &[Step::Advise(WHOLE, Advice::PopulateWrite)],
    )
    .opens(Opens::Files),
    operation(
        "remove",
        "MADV_REMOVE across a block's border",
        &[Step::Advise(Part::Odd, Advice::Remove)],
    ),
    operation(
        "guard",
        "MADV_GUARD_INSTALL of one page",
        &[Step::Advise(Part::Page, Advice::GuardInstall)],
    ),
    operation(
        "unguard",
        "MADV_GUARD_INSTALL across a block's border, MADV_GUARD_REMOVE of it",
        &[
            Step::Advise(Part::Odd, Advice::GuardInstall),
            Step::Advise(Part::Odd, Advice::GuardRemove),
        ],
    ),
    operation(
        "unmap-page",
        "munmap of one page",
        &[Step::Unmap(Part::Page)],
    ),
    operation(
        "unmap",
        "munmap across a block's border",
        &[Step::Unmap(Part::Odd)],
    ),
    operation(
        "unmap-tail",
        "munmap of the last two blocks",
        &[Step::Unmap(Part::Tail)],
    ),
    operation(
        "pin-read",
        "pages across a block's border are pinned for a device to read, a store to one of them",
        &[Step::PinToRead(Part::Odd)],
    )
    // A page that is shared gets a copy of its own.
    .opens(Opens::All),
    operation(
        "pin-migrate",
        "move_pages to node 1 while pages across a block's border are pinned",
        &[Step::Pinned(Part::Odd, &[Step::Node(WHOLE, 1)])],
    )
    .opens(Opens::All),
    operation(
        "pin-pageout",
        "MADV_PAGEOUT while pages across a block's border are pinned",
        &[Step::Pinned(Part::Odd, &[PAGEOUT])],
    )
    .opens(Opens::All),
    operation(
        "pin-collapse",
        "MADV_COLLAPSE while pages across a block's border are pinned",
        &[Step::Pinned(
            Part::Odd,
            &[Step::Advise(WHOLE, Advice::Collapse)],
        )],
    )
    .opens(Opens::All),
    operation(
        "pin-fork",
        "a child that writes while pages across a block's border are pinned",
        &[Step::Pinned(Part::Odd, &[Step::ForkAndWrite(WHOLE)])],
    )
    .opens(Opens::All),
    operation(
        "pin-move",
        "mremap while pages across a block's border are pinned",
        &[Step::Pinned(Part::Odd, &[Step::Move(Move::Aligned)])],
    )
    .opens(Opens::All),
    operation(
        "seal",
        "mseal across a block's border; munmap, mprotect and mremap of it are refused",
        &[Step::Seal(Part::Odd)],
    ),
    operation("shrink", "mremap to half the length", &[Step::Shrink]),
    operation(
        "grow",
        "mremap to half the length, and back, and a load of every page",
        &[Step::Shrink, Step::Grow, Step::Read(WHOLE)],
    ),
    operation("fork", "a child that exits at once", &[Step::ForkAndExit]),
    operation(
        "fork-write",
        "a child that writes across a block's border and exits",
        &[Step::ForkAndWrite(Part::Odd)],
    ),
    operation(
        "fork-then-write",
        "a child that exits, then a store to one page",
        &[Step::ForkAndExit, Step::Write(Part::Page)],
    ),
    operation(
        "lock",
        "mlock, and munlock of one page",
        &[Step::Lock(WHOLE), Step::Unlock(Part::Page)],
    ),
    operation(
        "lock-on-fault",
        "mlock2(MLOCK_ONFAULT), a store to one page, and munlock of another",
        &[
            Step::LockOnFault(WHOLE),
            Step::Write(Part::Page),
            Step::Unlock(Part::Beside),
        ],
    )
    // VMAs that fork has copied each by itself are merged.
    .opens(Opens::All),
    operation(
        "bind",
        "mbind across a block's border to node 1, and back to the default policy",
        &[Step::Bind(Part::Odd, Some(1)), Step::Bind(Part::Odd, None)],
    ),
    operation(
        "migrate",
        "move_pages to node 1, and back to node 0",
        &[Step::Node(WHOLE, 1), Step::Node(WHOLE, 0)],
    ),
    operation(
        "migrate-page",
        "move_pages of one page to node 1",
        &[Step::Node(Part::Page, 1)],
    ),
    operation(
        "migrate-all",
        "migrate_pages of the process to node 1",
        &[Step::All(All::MigratePages)],
    ),
    operation("hint", "NUMA hints", &[Step::All(All::Hints)]),
    operation(
        "hint-read",
        "NUMA hints, and a load of every page",
        &[Step::All(All::Hints), Step::Read(WHOLE)],
    ),
    operation(
        "hint-write",
        "NUMA hints, and a store to one page",
        &[Step::All(All::Hints), Step::Write(Part::Page)],
    ),
    operation(
        "compact",
        "compaction of all memory",
        &[Step::All(All::Compact)],
    ),
    operation(
        "offline",
        "MADV_SOFT_OFFLINE of one page",
        &[Step::Advise(Part::Page, Advice::SoftOffline)],
    ),
    operation(
        "hwpoison",
        "MADV_HWPOISON of one page",
        &[Step::Hwpoison(Part::Page)],
    ),
    operation("drop-caches", "drop_caches", &[Step::All(All::DropCaches)]),
    operation("swapoff", "swapoff, and swapon", &[Step::All(All::SwapOff)]),
    operation(
        "uffd-protect",
        "UFFDIO_WRITEPROTECT across a block's border, on and off",
        &[
            Step::Register,
            Step::WriteProtect(Part::Odd, true),
            Step::WriteProtect(Part::Odd, false),
        ],
    )
    .opens(Opens::All),
    operation(
        "uffd-protect-empty",
        "MADV_DONTNEED across a block's border, UFFDIO_WRITEPROTECT of all",
        &[
            Step::Advise(Part::Odd, Advice::Dontneed),
            Step::Register,
            Step::ProtectEmpty(WHOLE),
        ],
    ),
    operation(
        "uffd-poison",
        "MADV_DONTNEED across a block's border, UFFDIO_POISON of it",
        &[
            Step::Advise(Part::Odd, Advice::Dontneed),
            Step::Register,
            Step::Poison(Part::Odd),
        ],
    ),
    operation(
        "watch",
        "writes are watched (PAGEMAP_SCAN), a store to one page",
        &[
            Step::Watch(WHOLE),
            Step::Write(Part::Page),
            Step::Written(WHOLE),
        ],
    ),
    operation(
        "watch-pageout",
        "writes are watched, a store to one page, MADV_PAGEOUT, and a load of every page",
        &[
            Step::Watch(WHOLE),
            Step::Write(Part::Page),
            Step::Advise(WHOLE, Advice::Pageout),
            Step::Read(WHOLE),
            Step::Written(WHOLE),
        ],
    ),
    operation(
        "watch-fork",
        "writes are watched, a child that writes across a block's border, a store to one page",
        &[
            Step::Watch(WHOLE),
            Step::ForkAndWrite(Part::Odd),
            Step::Write(Part::Page),
            Step::Written(WHOLE),
        ],
    ),
    operation(
        "watch-migrate",
        "writes are watched, a store to one page, move_pages to node 1",
        &[
            Step::Watch(WHOLE),
            Step::Write(Part::Page),
            Step::Node(WHOLE, 1),
            Step::Written(WHOLE),
        ],
    ),
    operation(
        "uffd-copy",
        "UFFDIO_COPY across a block's border, where pages were given up",
        &[Step::UffdFill(Part::Odd)],
    ),
    operation(
        "uffd-zero",
        "UFFDIO_ZEROPAGE across a block's border, where pages were given up",
        &[Step::UffdZero(Part::Odd)],
    ),
    operation(
        "uffd-continue",
        "UFFDIO_CONTINUE across a block's border, where entries were given up",
        &[Step::UffdContinue(Part::Odd)],
    )
    .opens(Opens::All),
    operation(
        "uffd-move",
        "UFFDIO_MOVE of one page",
        &[Step::Write(Part::Beside), Step::UffdMove],
    ),
    operation(
        "uffd-move-pageout",
        "UFFDIO_MOVE of one page, MADV_PAGEOUT, and a load of every page",
        &[
            Step::Write(Part::Beside),
            Step::UffdMove,
            Step::Advise(WHOLE, Advice::Pageout),
            Step::Read(WHOLE),
        ],
    ),
    operation(
        "uffd-move-all",
        "UFFDIO_MOVE of all to a new VMA",
        &[Step::UffdRelocate],
    ),
    operation(
        "sync",
        "fsync, a store of one word to one page",
        &[Step::Sync, Step::WriteWord(Part::Page)],
    ),
    operation(
        "write-sync",
        "a store to every page, fsync, a store of one word to every page",
        &[Step::Write(WHOLE), Step::Sync, Step::WriteWord(WHOLE)],
    )
    .opens(Opens::Files),
    operation(
        "evict",
        "a store to one page, MADV_DONTNEED, fsync, POSIX_FADV_DONTNEED, and a load of every page",
        &[
            Step::Write(Part::Page),
            Step::Advise(WHOLE, Advice::Dontneed),
            Step::Evict,
            Step::Read(WHOLE),
        ],
    ),
    operation(
        "write-file",
        "pwrite across a block's border",
        &[Step::WriteFile(Part::Odd)],
    ),
    operation(
        "punch",
        "a hole across a block's border",
        &[Step::Punch(Part::Odd)],
    ),
    operation(
        "truncate",
        "ftruncate inside a block, and back",
        &[Step::TruncateAndExtend],
    ),
    operation(
        "punch-bytes",
        "a hole that begins and ends inside a page",
        &[Step::PunchBytes],
    ),
    operation(
        "truncate-bytes",
        "ftruncate inside a page, and back",
        &[Step::TruncateBytes],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// `Batch::step()` plays these once, and no step with others.
    #[test]
    fn a_step_for_all_areas_is_alone_in_its_step() {
        let steps = OPERATIONS.iter().flat_map(|operation| operation.steps);
        let for_all = |step: &Step| matches!(step, Step::All(_));
        let busy = steps.filter(|step| step.parts().iter().any(for_all) && !for_all(step));
        let busy: Vec<_> = busy.collect();
        assert!(!busy.is_empty());
        for step in busy {
            assert!(matches!(step, Step::Busy([Step::All(_)])), "{step:?}");
        }
    }
}
