// SPDX-License-Identifier: GPL-2.0-only
//! The steps that states and operations are declared in.

use std::ops::Range;

use protocol::Advice;

/// A part of an area, in pages. Areas are two blocks long, or one PMD's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// One page inside the first block.
    Page,
    /// Another page inside the first block.
    Beside,
    /// From inside the first block to inside the second.
    Odd,
    /// The first block.
    Block,
    /// The first half of the first block.
    FirstHalf,
    /// The second one.
    Second,
    /// A block's pages, from half a block on.
    Middle,
    /// The pages before those of [`Part::Odd`].
    Start,
    /// The last page.
    Last,
    /// All but two blocks at each end of a PMD's range.
    Inner,
    /// All but the last two blocks.
    Head,
    /// The last two blocks.
    Tail,
}

impl Part {
    /// The pages of an area of `all` pages, with `block` pages per block.
    pub fn pages(self, block: usize, all: usize) -> Range<usize> {
        match self {
            Self::Whole => 0..all,
            Self::Page => 5..6,
            Self::Beside => 9..10,
            Self::Odd => 3..block + 3,
            Self::Block => 0..block,
            Self::FirstHalf => 0..block / 2,
            Self::Second => block..2 * block,
            Self::Middle => block / 2..block / 2 + block,
            Self::Start => 0..3,
            Self::Last => all - 1..all,
            Self::Head => 0..all - 2 * block,
            Self::Tail => all - 2 * block..all,
            Self::Inner => 2 * block..(all - 2 * block).max(2 * block),
        }
    }

    /// The same, of memory that is mapped by `unit` pages at least: all of each unit.
    pub fn units(self, block: usize, all: usize, unit: usize) -> Range<usize> {
        let pages = self.pages(block, all);
        pages.start / unit * unit..(pages.end.div_ceil(unit) * unit).min(all)
    }
}

/// Protection for `mprotect()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prot {
    /// `PROT_NONE`.
    None,
    /// `PROT_READ`.
    Read,
    /// `PROT_READ | PROT_WRITE`.
    Write,
}

/// How `mremap()` moves an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// To an address with the same place in a level-2 range.
    Aligned,
    /// To one that is off by a page.
    OffByAPage,
    /// To one from which half of the first block is left until a last-level table ends.
    Across,
    /// To one with the same place, and the old range stays mapped (`MREMAP_DONTUNMAP`).
    KeepOld,
}

/// One step, of a state or of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A store to every page, of all words that are compared.
    Write(Part),
    /// A store of one word to every page: the others must stay.
    WriteWord(Part),
    /// The same by `/proc/self/mem`, which may write to what the process may not.
    ForceWord(Part),
    /// Stores that leave the same words in every page.
    WriteEqual(Part),
    /// Two threads at once store to every page, a word each: the others must stay.
    RaceToWrite(Part),
    /// Two threads at once load every page.
    RaceToRead(Part),
    /// The same, of which one stores a word to every page.
    Race(Part),
    /// A load of every page.
    Read(Part),
    /// These steps, or one for all areas, while a second thread accesses every page over and over.
    Busy(&'static [Step]),
    /// `madvise()`, where the advice leaves contents alone or gives them up.
    Advise(Part, Advice),
    /// `mprotect()`.
    Protect(Part, Prot),
    /// `mremap()` of the area.
    Move(Move),
    /// Splits every folio of the area (`split_huge_pages` of debugfs).
    Split,
    /// `mremap()` of the area to half of its length.
    Shrink,
    /// `mremap()` of the VMA that ends at half of the area, to all of it: the rest was unmapped.
    Grow,
    /// `munmap()`.
    Unmap(Part),
    /// `mlock()`.
    Lock(Part),
    /// `mlock2(MLOCK_ONFAULT)`.
    LockOnFault(Part),
    /// `munlock()`.
    Unlock(Part),
    /// `move_pages()` to a node.
    Node(Part, i32),
    /// `mbind()` to a node, with `MPOL_MF_MOVE`; or back to the policy of the process.
    Bind(Part, Option<u32>),
    /// `mseal()`; then `munmap()`, `mprotect()` and `mremap()` of it, which must be refused.
    Seal(Part),
    /// `MADV_HWPOISON`: the pages are lost, for all who map them.
    Hwpoison(Part),
    /// Advice that the other process gives on this one's memory (`process_madvise()`).
    OtherAdvises(Part, Advice),
    /// Pins the pages for a device, until the process has ended. One area of a batch can have it.
    Pin(Part),
    /// Pins the pages for a device that reads alone, stores a word to one of them, compares what the device has with what
    /// the process has, and lets them go.
    PinToRead(Part),
    /// These steps while the pages are pinned for a device; then stores a word to one of them, compares what the device has
    /// with what the process has, and lets them go.
    Pinned(Part, &'static [Step]),
    /// Registers the area with a userfaultfd for write protection.
    Register,
    /// Registers the area with a userfaultfd for pages that are not there.
    RegisterMissing,
    /// `UFFDIO_WRITEPROTECT`.
    WriteProtect(Part, bool),
    /// The same, on, of a part in which pages may not be there.
    ProtectEmpty(Part),
    /// Registers a part with a userfaultfd that resolves writes by itself, and protects the pages that are there.
    Watch(Part),
    /// Asks which of its pages were written since (`PAGEMAP_SCAN`): those that the model says.
    Written(Part),
    /// `UFFDIO_POISON`.
    Poison(Part),
    /// Empties a part, and has `UFFDIO_COPY` fill it.
    UffdFill(Part),
    /// Empties a part, and has `UFFDIO_ZEROPAGE` fill it.
    UffdZero(Part),
    /// Gives up the entries of a part of a file, and has `UFFDIO_CONTINUE` map its pages again.
    UffdContinue(Part),
    /// Empties one page, and has `UFFDIO_MOVE` bring another one there.
    UffdMove,
    /// Has `UFFDIO_MOVE` bring all pages to a new VMA.
    UffdRelocate,
    /// A child that exits at once.
    ForkAndExit,
    /// A child that loads every page over and over, and exits: private memory is what it was at the fork.
    ForkAndLoad,
    /// A child that writes and exits.
    ForkAndWrite(Part),
    /// The other process writes.
    OtherWrites(Part),
    /// `pwrite()` to the file.
    WriteFile(Part),
    /// `fsync()` of the file.
    Sync,
    /// The same; then pages that are not mapped leave the page cache.
    Evict,
    /// `fallocate(FALLOC_FL_PUNCH_HOLE)`.
    Punch(Part),
    /// The same, from inside a page to inside another.
    PunchBytes,
    /// `fallocate()`: pages that are not filled yet.
    Allocate(Part),
    /// `ftruncate()` to an odd page, and back to the old size.
    TruncateAndExtend,
    /// `ftruncate()` to inside a page, and back to the old size.
    TruncateBytes,
    /// Once for all areas.
    All(All),
}

impl Step {
    /// Returns the steps that are played while a second thread is busy or pages are pinned, or this one.
    pub fn parts(&self) -> &[Step] {
        match self {
            Self::Busy(steps) | Self::Pinned(_, steps) => steps,
            step => std::slice::from_ref(step),
        }
    }
}

/// A step that concerns all memory of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum All {
    /// `/proc/sys/vm/compact_memory`.
    Compact,
    /// `/proc/sys/vm/drop_caches`, 3.
    DropCaches,
    /// `swapoff()` and `swapon()`.
    SwapOff,
    /// `memory.reclaim` of the processes' cgroup, which takes what processes share too.
    Reclaim,
    /// Sets the limit of that cgroup (`memory.max`) right above what it has charged, or none.
    Limit(bool),
    /// `/proc/PID/clear_refs`, 1: no page of the process is young any more.
    ClearRefs,
    /// KSM merges what is mergeable.
    Merge,
    /// All pages of the acting process that are on node 0 move to node 1.
    MigratePages,
    /// khugepaged scans everything, with leave to fill all of a PMD's range but one page.
    Collapse,
    /// NUMA balancing scans the acting process: its pages get hints.
    Hints,
    /// The other process exits.
    OtherExits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_in_their_area() {
        assert_eq!(Part::Last.pages(16, 32), 31..32);
        assert_eq!(Part::Inner.pages(16, 512), 32..480);
        assert_eq!(Part::Head.pages(16, 544), 0..512);
        assert_eq!(Part::Tail.pages(16, 544), 512..544);
        // There is nothing between the ends of an area of two blocks.
        assert!(Part::Inner.pages(16, 32).is_empty());
    }
}
