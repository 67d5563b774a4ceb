// SPDX-License-Identifier: GPL-2.0-only
//! Calls of one step that need more than a line: of files, of `madvise()`, `mremap()` and userfaultfd.

use std::collections::BTreeSet;
use std::ops::Range;

use protocol::{Advice, Failure, MoveFlag, Operation, Outcome, UffdMode};

use super::model::{Below, Memory, WORDS};
use super::play::{Batch, Difference, WORD};
use super::queued::Expected;
use super::steps::{Move, Part};
use crate::guest::unexpected;
use crate::ops::{advise, protect, unmap};
use crate::Error;

/// Reason where the kernel lacks `UFFD_FEATURE_WP_ASYNC`.
const NOT_WATCHED: &str =
    "the kernel's userfaultfd does not resolve writes by itself (CONFIG_PTE_MARKER_UFFD_WP)";

impl Batch<'_, '_> {
    /// Gives up the pages of a part, in a file too.
    pub(super) fn empty(&mut self, at: usize, part: Part) {
        match self.cells[at].memory.below {
            Below::Shared => self.advise(at, part, Advice::Remove),
            _ => self.advise(at, part, Advice::Dontneed),
        }
    }

    /// Acts while a range is registered with a userfaultfd.
    fn registered(
        &mut self,
        mode: UffdMode,
        address: u64,
        length: u64,
        act: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let register = Operation::UffdRegister {
            address,
            length,
            modes: vec![mode],
        };
        self.now(self.actor(), register)?;
        let outcome = act(self);
        let unregister = Operation::UffdUnregister { address, length };
        self.now(self.actor(), unregister)?;
        outcome
    }

    /// An operation on missing pages, for which they are registered with a userfaultfd.
    fn missing(&mut self, address: u64, length: u64, op: Operation) -> Result<(), Error> {
        self.registered(UffdMode::Missing, address, length, |batch| {
            batch.now(batch.actor(), op).map(drop)
        })
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
            Advice::SoftOffline if self.cells[at].memory.below != Below::Nothing => {
                Expected::Anything
            }
            _ => Expected::Done,
        };
        self.on_vmas(at, part, expected, |start, length| {
            advise(start, length, advice)
        });
        let pages = self.units(at, part);
        let memory = &mut self.cells[at].memory;
        match advice {
            Advice::Dontneed => memory.drop_pages(view, pages),
            Advice::Free => memory.free(view, pages),
            Advice::Remove => memory.punch(pages.start * WORDS..pages.end * WORDS),
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
        let room = self
            .stage
            .free_place(process, length + within + page, Some(span))?;
        let to = room + within + if how == Move::OffByAPage { page } else { 0 };
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

    /// Empties a part, and has `UFFDIO_COPY` fill it.
    pub(super) fn uffd_fill(&mut self, at: usize, part: Part) -> Result<(), Error> {
        let (view, salt) = (self.actor, self.salt);
        self.empty(at, part);
        for run in self.by_vma(at, part) {
            let (address, length) = self.range(at, view, &run);
            let copy = Operation::UffdCopy {
                address,
                length,
                salt,
                write_protect: false,
            };
            self.missing(address, length, copy)?;
            self.cells[at].memory.fill(view, run, salt);
        }
        Ok(())
    }

    /// Empties a part, and has `UFFDIO_ZEROPAGE` fill it.
    pub(super) fn uffd_zero(&mut self, at: usize, part: Part) -> Result<(), Error> {
        let view = self.actor;
        self.empty(at, part);
        for run in self.by_vma(at, part) {
            let (address, length) = self.range(at, view, &run);
            self.missing(address, length, Operation::UffdZeropage { address, length })?;
            self.cells[at].memory.zero(view, run);
        }
        Ok(())
    }

    /// Gives up the entries of a part of a shared file, and has `UFFDIO_CONTINUE` map page by page what is in the page
    /// cache: it ends at a page that is not.
    pub(super) fn uffd_continue(&mut self, at: usize, part: Part) -> Result<(), Error> {
        let (view, page) = (self.actor, self.stage.page());
        self.advise(at, part, Advice::Dontneed);
        for run in self.by_vma(at, part) {
            let (start, length) = self.range(at, view, &run);
            self.registered(UffdMode::Minor, start, length, |batch| {
                for address in (start..start + length).step_by(page as usize) {
                    let op = Operation::UffdContinue {
                        address,
                        length: page,
                    };
                    batch.later(at, batch.actor(), op, Expected::Anything);
                }
                batch.flush()
            })?;
        }
        Ok(())
    }

    /// Watches the writes to a part.
    pub(super) fn watch(&mut self, at: usize, part: Part) -> Result<(), Error> {
        let there = self.scanned(at, part, |address, length| Operation::WatchWrites {
            address,
            length,
        });
        let there = match there {
            Err(Error::Guest {
                failure: Failure::Errno { name, call, .. },
                ..
            }) if call == "UFFDIO_API" && name == "EINVAL" => {
                self.cells[at].left_out = Some(NOT_WATCHED);
                return Ok(());
            }
            there => there?,
        };
        let (view, pages) = (self.actor, self.pages(at, part));
        let memory = &mut self.cells[at].memory;
        memory.watch(view, pages, |page| there.contains(&page));
        Ok(())
    }

    /// Compares the pages of a part that were written since with the model.
    pub(super) fn written(&mut self, at: usize, part: Part) -> Result<(), Error> {
        let found = self.scanned(at, part, |address, length| Operation::WrittenPages {
            address,
            length,
        })?;
        let (view, process) = (self.actor, self.actor());
        let memory = &self.cells[at].memory;
        let differs = |page: usize| {
            let expected = memory.is_written(view, page)?;
            (found.contains(&page) != expected).then_some(expected)
        };
        let runs = Memory::runs(self.pages(at, part), differs).into_iter();
        let wrong: Vec<_> = runs
            .filter_map(|(run, expected)| Some((run, expected?)))
            .collect();
        for (run, expected) in wrong {
            let (start, length) = self.range(at, view, &run);
            let (which, says) = match expected {
                true => ("all that were stored to", "does not report"),
                false => ("none but what was stored to", "reports"),
            };
            let message = format!(
                "expected PAGEMAP_SCAN to report as written {which} since the pages were protected, and it {says} {} pages from \
                 VA 0x{start:016x} on",
                run.len()
            );
            self.cells[at].wrong.push(Difference {
                process,
                range: start..start + length,
                message,
            });
        }
        Ok(())
    }

    /// The pages of a part of the area that an operation on each of its VMAs returns.
    fn scanned(
        &mut self,
        at: usize,
        part: Part,
        op: impl Fn(u64, u64) -> Operation,
    ) -> Result<BTreeSet<usize>, Error> {
        let (view, page) = (self.actor, self.stage.page());
        let mut found = BTreeSet::new();
        for run in self.by_vma(at, part) {
            let (start, length) = self.range(at, view, &run);
            match self.now(self.actor(), op(start, length))? {
                Outcome::Pages { pages } => {
                    let pages = pages.into_iter();
                    found.extend(pages.map(|va| run.start + ((va - start) / page) as usize));
                }
                other => return Err(unexpected("PAGEMAP_SCAN", &other)),
            }
        }
        Ok(found)
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

    /// Empties one page, and has `UFFDIO_MOVE` bring the one beside it there.
    pub(super) fn uffd_move(&mut self, at: usize) -> Result<(), Error> {
        let view = self.actor;
        self.empty(at, Part::Page);
        let (to, from) = (self.pages(at, Part::Page), self.pages(at, Part::Beside));
        let (address, length) = self.range(at, view, &to);
        let (source, _) = self.range(at, view, &from);
        let exchange = Operation::UffdMove {
            address,
            source,
            length,
        };
        match self.missing(address, length, exchange) {
            // A page that is held for a moment stays where it is (`move_pages_pte()`).
            Err(Error::Guest { failure, .. })
                if matches!(failure.errno(), Some("EBUSY" | "EAGAIN")) => {}
            moved => {
                moved?;
                let memory = &mut self.cells[at].memory;
                memory.exchange(view, from.start, to.start);
            }
        }
        Ok(())
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
