// SPDX-License-Identifier: GPL-2.0-only
//! Calls of userfaultfd that a step makes.

use std::collections::BTreeSet;

use protocol::{
    Advice, Backing, Failure, MapFlag, Operation, Outcome, Placement, Protection, UffdMode,
};

use super::maps::Map;
use super::model::Memory;
use super::play::{Batch, Cell, Difference};
use super::queued::Expected;
use super::steps::Part;
use crate::guest::unexpected;
use crate::ops::advise;
use crate::Error;

/// Reason where the kernel lacks `UFFD_FEATURE_WP_ASYNC`.
const NOT_WATCHED: &str =
    "the kernel's userfaultfd does not resolve writes by itself (CONFIG_PTE_MARKER_UFFD_WP)";

/// Reason where its userfaultfd protects no hugetlb.
const NOT_PROTECTED: &str =
    "the kernel's userfaultfd protects anonymous memory alone (CONFIG_PTE_MARKER_UFFD_WP)";

impl Batch<'_, '_> {
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

    /// An operation that fills missing pages, and then has to leave them as they are.
    fn fills(
        &mut self,
        at: usize,
        (address, length): (u64, u64),
        op: Operation,
    ) -> Result<(), Error> {
        self.registered(UffdMode::Missing, address, length, |batch| {
            let process = batch.actor();
            batch.now(process, op.clone())?;
            batch.later(at, process, op, Expected::Refused("EEXIST"));
            batch.flush()
        })
    }

    /// Registers an area of hugetlb for write protection, which is left out where the kernel lacks it.
    pub(super) fn register_hugetlb(&mut self, at: usize) -> Result<(), Error> {
        let view = self.actor;
        for run in self.by_vma(at, Part::Whole) {
            let (address, length) = self.range(at, view, &run);
            let register = Operation::UffdRegister {
                address,
                length,
                modes: vec![UffdMode::WriteProtect],
            };
            match self.now(self.actor(), register) {
                // `vma_can_userfault()` asks anonymous memory alone for no markers.
                Err(Error::Guest { failure, .. }) if failure.errno() == Some("EINVAL") => {
                    self.cells[at].left_out = Some(NOT_PROTECTED);
                    return Ok(());
                }
                registered => registered?,
            };
            let memory = &mut self.cells[at].memory;
            memory.each(view, run, |page| {
                (page.registered, page.asks) = (true, false)
            });
        }
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
            self.fills(at, (address, length), copy)?;
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
            let zero = Operation::UffdZeropage { address, length };
            self.fills(at, (address, length), zero)?;
            self.cells[at].memory.zero(view, run);
        }
        Ok(())
    }

    /// Gives up the entries of a part of a shared file, and has `UFFDIO_CONTINUE` map page by page what is in the page
    /// cache: it ends at a page that is not. hugetlb's pages are its own.
    pub(super) fn uffd_continue(&mut self, at: usize, part: Part) -> Result<(), Error> {
        let (view, page) = (self.actor, self.cells[at].unit as u64 * self.stage.page());
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
        let Cell { memory, unit, .. } = &self.cells[at];
        let differs = |page: usize| {
            let first = page / unit * unit;
            let expected = memory.is_any_written(view, first..first + unit)?;
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

    /// Has `UFFDIO_MOVE` bring all pages to a new VMA at the same place in a PMD's range.
    pub(super) fn uffd_relocate(&mut self, at: usize) -> Result<(), Error> {
        let (view, process, span) = (self.actor, self.actor(), self.stage.pmd());
        let (source, length) = self.range(at, view, &self.pages(at, Part::Whole));
        self.flush()?;
        let room = self
            .stage
            .free_place(process, length + source % span, Some(span))?;
        let address = room + source % span;
        let map = Operation::Mmap {
            length,
            backing: Backing::Anonymous,
            prot: vec![Protection::Read, Protection::Write],
            flags: vec![MapFlag::FixedNoreplace],
            place: Placement::At { address },
        };
        self.now(process, map)?;
        let hint = match self.cells[at].state.map {
            Map::Small | Map::Far => Advice::Nohugepage,
            _ => Advice::Hugepage,
        };
        self.now(process, advise(address, length, hint))?;
        let relocate = Operation::UffdRelocate {
            source,
            length,
            address,
        };
        let mut stayed = 0;
        self.registered(UffdMode::Missing, address, length, |batch| {
            match batch.now(process, relocate)? {
                Outcome::Pages { pages } => stayed = pages.len(),
                other => return Err(unexpected("UFFDIO_MOVE", &other)),
            }
            Ok(())
        })?;
        let cell = &mut self.cells[at];
        if stayed as u64 * cell.memory.page == length {
            let why = "UFFDIO_MOVE took no page of it, and mremap() moved all";
            cell.refused.get_or_insert(why.into());
        }
        cell.ranges.push(address..address + length);
        cell.memory.moved(view, address);
        Ok(())
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
}
