// SPDX-License-Identifier: GPL-2.0-only
//! Calls of one step that need more than a line: of files, of `madvise()` and of `mremap()`.

use std::ops::Range;

use protocol::{Advice, MoveFlag, Operation};

use super::maps::Map;
use super::model::{Below, WORDS};
use super::play::{Batch, WORD};
use super::queued::Expected;
use super::steps::{Move, Part};
use crate::ops::{advise, protect, unmap};
use crate::Error;

impl Batch<'_, '_> {
    /// Gives up the pages of a part, in a file too.
    pub(super) fn empty(&mut self, at: usize, part: Part) {
        match self.cells[at].memory.below {
            Below::Shared => self.advise(at, part, Advice::Remove),
            _ => self.advise(at, part, Advice::Dontneed),
        }
    }

    /// `fallocate()` of words of the file, which begins so many bytes before the first.
    pub(super) fn allocate(&mut self, at: usize, words: Range<usize>, before: u64, punch: bool) {
        let distance = self.cells[at].memory.distance();
        let offset = words.start as u64 * distance - before;
        let allocate = Operation::FileAllocate {
            path: self.path(at),
            offset,
            length: words.end as u64 * distance - offset,
            punch,
        };
        self.later(at, self.actor(), allocate, Expected::Done);
        if punch {
            self.cells[at].memory.punch(words);
        }
    }

    /// `ftruncate()` right behind the last of so many words, and back.
    pub(super) fn truncate(&mut self, at: usize, words: usize) {
        let memory = &self.cells[at].memory;
        let (distance, file) = (memory.distance(), memory.file.len() * WORDS);
        for words in [words, file] {
            let end = words as u64 * distance;
            let length = match words % WORDS {
                0 => end,
                _ => end - distance + WORD,
            };
            let path = self.path(at);
            let truncate = Operation::FileTruncate { path, length };
            self.later(at, self.actor(), truncate, Expected::Done);
            self.cells[at].memory.truncate(words);
        }
    }

    pub(super) fn path(&self, at: usize) -> String {
        let path = self.cells[at].path.clone();
        path.expect("steps of files are left out where there is none")
    }

    pub(super) fn advise(&mut self, at: usize, part: Part, advice: Advice) {
        let view = self.actor;
        let expected = match advice {
            Advice::Collapse => Expected::Anything,
            // A file's folio may be in a batch of the LRU lists (EBUSY).
            Advice::SoftOffline
                if self.cells[at].memory.below != Below::Nothing
                    && !self.cells[at].state.map.is_hugetlb() =>
            {
                Expected::Anything
            }
            _ => Expected::Done,
        };
        self.on_vmas(at, part, expected, |start, length| {
            advise(start, length, advice)
        });
        let (pages, mapped) = (self.units(at, part), self.by_vma(at, part));
        let memory = &mut self.cells[at].memory;
        match advice {
            Advice::Dontneed => memory.drop_pages(view, pages),
            Advice::Free => memory.free(view, pages),
            // Where nothing is mapped, the file keeps its pages.
            Advice::Remove => mapped
                .iter()
                .for_each(|run| memory.punch(run.start * WORDS..run.end * WORDS)),
            Advice::PopulateWrite => memory.populate(view, pages),
            Advice::DontneedLocked => memory.drop_pages(view, pages),
            Advice::Dontfork => memory.each(view, pages, |page| page.not_forked = true),
            Advice::Wipeonfork => memory.each(view, pages, |page| page.wiped_on_fork = true),
            Advice::GuardInstall => memory.guard(view, pages, true),
            Advice::GuardRemove => memory.guard(view, pages, false),
            _ => {}
        }
    }

    /// Moves each VMA of the area, by what lies between them.
    pub(super) fn relocate(&mut self, at: usize, how: Move) -> Result<(), Error> {
        let (view, process) = (self.actor, self.actor());
        let memory = &self.cells[at].memory;
        let (start, page) = (memory.views[view].start, memory.page);
        let length = memory.views[view].pages.len() as u64 * page;
        // A hugetlb page moves to where one can begin.
        let span = self.stage.pmd().max(self.cells[at].unit as u64 * page);
        let within = start % span;
        self.flush()?;
        let half = self.block() as u64 / 2 * page;
        let place = match how {
            Move::Aligned | Move::KeepOld => within,
            Move::OffByAPage => within + page,
            Move::Across => span - half,
        };
        let room = self.stage.free_place(process, length + place, Some(span))?;
        let to = room + place;
        for run in self.by_vma(at, Part::Whole) {
            let (from, bytes) = self.range(at, view, &run);
            let mut flags = vec![MoveFlag::Maymove, MoveFlag::Fixed];
            if how == Move::KeepOld {
                flags.push(MoveFlag::Dontunmap);
            }
            let remap = Operation::Mremap {
                address: from,
                length: bytes,
                new_length: bytes,
                flags,
                new_address: Some(to + (from - start)),
            };
            self.later(at, process, remap, Expected::Done);
        }
        self.cells[at].ranges.push(to..to + length);
        self.cells[at].memory.moved(view, to);
        Ok(())
    }

    /// `move_pages()` to a node. It moves all anonymous pages, and those of tmpfs, that this process alone has, unless a
    /// second thread faults on them.
    pub(super) fn migrate(&mut self, at: usize, part: Part, node: i32) {
        for run in self.by_vma(at, part) {
            let (address, length) = self.range(at, self.actor, &run);
            let expected = match self.is_movable(at) && node != 0 {
                true => Expected::OnNode {
                    range: address..address + length,
                    node,
                },
                false => Expected::Done,
            };
            let op = Operation::MovePages {
                address,
                length,
                node: Some(node),
            };
            self.later(at, self.actor(), op, expected);
        }
    }

    /// Returns whether nothing can hold the pages of an area where they are.
    fn is_movable(&self, at: usize) -> bool {
        let cell = &self.cells[at];
        let memory = &cell.memory;
        let tmpfs = matches!(cell.state.map, Map::TmpfsHuge | Map::TmpfsHugeAcross);
        let known = (memory.below == Below::Nothing || tmpfs)
            && !memory.forked
            && !self.busy
            && !cell.state.map.is_hugetlb()
            && !cell.state.is_merged();
        // What is pinned may be of the folio of what is not.
        known
            && memory.views[self.actor]
                .pages
                .iter()
                .all(|page| !page.pinned)
    }

    /// Seals a part, and tries what is not allowed any more.
    pub(super) fn seal(&mut self, at: usize, part: Part) {
        let seal = |address, length| Operation::Mseal { address, length };
        self.on_vmas(at, part, Expected::Done, seal);
        let pages = self.units(at, part);
        let memory = &mut self.cells[at].memory;
        memory.each(self.actor, pages, |page| page.sealed = true);
        let refused = Expected::Refused("EPERM");
        self.on_vmas(at, part, refused.clone(), |start, length| {
            protect(start, length, &[])
        });
        self.on_vmas(at, part, refused.clone(), unmap);
        self.on_vmas(at, part, refused, |address, length| Operation::Mremap {
            address,
            length,
            new_length: length,
            flags: vec![MoveFlag::Maymove, MoveFlag::Dontunmap],
            new_address: None,
        });
    }

    /// The other process gives advice that leaves contents alone.
    pub(super) fn other_advises(&mut self, at: usize, part: Part, advice: Advice) {
        let (Some(other), pid) = (self.other(), self.stage.pid(self.actor())) else {
            return;
        };
        for run in self.by_vma(at, part) {
            let (address, length) = self.range(at, self.actor, &run);
            let op = Operation::ProcessMadvise {
                pid,
                address,
                length,
                advice,
            };
            self.later(at, other, op, Expected::Done);
        }
    }

    /// `mremap()` to half of the length.
    pub(super) fn shrink(&mut self, at: usize) {
        let view = self.actor;
        let all = self.cells[at].memory.views[view].pages.len();
        self.resize(at, 0..all, all / 2);
        self.cells[at].memory.unmap(view, all / 2..all);
    }

    /// `mremap()` of the VMA that ends at half of the area by the other half.
    pub(super) fn grow(&mut self, at: usize) {
        let view = self.actor;
        let all = self.cells[at].memory.views[view].pages.len();
        let mut runs = self.by_vma(at, Part::Whole).into_iter();
        let Some(run) = runs.rfind(|run| run.end == all / 2) else {
            let why = "no VMA ends at half of the area, so none was extended";
            self.cells[at].refused.get_or_insert(why.into());
            return;
        };
        self.resize(at, run, all);
        self.cells[at].memory.extend(view, all / 2..all);
    }

    /// `mremap()` in place of a run of pages, to where it ends at another page.
    fn resize(&mut self, at: usize, run: Range<usize>, end: usize) {
        let (address, length) = self.range(at, self.actor, &run);
        let (_, new_length) = self.range(at, self.actor, &(run.start..end));
        let remap = Operation::Mremap {
            address,
            length,
            new_length,
            flags: vec![],
            new_address: None,
        };
        self.later(at, self.actor(), remap, Expected::Done);
    }
}
