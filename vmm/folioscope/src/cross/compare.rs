// SPDX-License-Identifier: GPL-2.0-only
//! Compares what the processes of a batch hold, and what they may do, with the model.

use std::ops::Range;

use protocol::{Access, Expect, Failure, Operation, Order, Outcome, ProcessId};

use super::model::{Below, Content, Memory, Store, ONE, WORDS};
use super::play::{Batch, Difference, SALTS};
use super::steps::Part;
use crate::Error;

/// The salt of pages that are to be equal.
const EQUAL: u64 = 0x6b73;

impl Batch<'_, '_> {
    /// Loads, or stores with a salt, page by page of the model: what it refuses must raise a signal.
    pub(super) fn access(
        &mut self,
        at: usize,
        view: usize,
        part: Part,
        store: Option<(Store, u64)>,
    ) -> Result<(), Error> {
        let Some(process) = self.processes[view] else {
            return Ok(());
        };
        let pages = self.pages(at, part);
        let memory = &self.cells[at].memory;
        let runs = Memory::runs(pages, |page| match store {
            Some(_) if memory.is_open(view, page) => None,
            Some(_) => Some(memory.can_write(view, page)),
            None => Some(memory.can_read(view, page)),
        });
        let runs = runs.into_iter();
        let runs = runs.filter_map(|(run, allowed)| Some((run, allowed?)));
        for (run, allowed) in runs.collect::<Vec<_>>() {
            let run = if allowed {
                run
            } else {
                run.start..run.start + 1
            };
            let (start, length) = self.range(at, view, &run);
            let touch = self.touch(start, length, store);
            let outcome = self.stage.op(process, touch);
            let range = start..start + length;
            self.compare(at, (process, range), allowed, outcome.map(drop))?;
            if let (true, Some((store, salt))) = (allowed, store) {
                let memory = &mut self.cells[at].memory;
                memory.write(view, run, store.words(), salt);
            }
        }
        Ok(())
    }

    /// Writes one word of each page as a debugger does.
    pub(super) fn force(&mut self, at: usize, part: Part) -> Result<(), Error> {
        let (view, process, page) = (self.actor, self.actor(), self.stage.page());
        let memory = &self.cells[at].memory;
        let runs = Memory::runs(self.pages(at, part), |at| memory.can_force(view, at));
        for (run, _) in runs.into_iter().filter(|(_, allowed)| *allowed) {
            let (start, length) = self.range(at, view, &run);
            let first = ONE as u64 * self.cells[at].memory.distance();
            let force = Operation::ForceWrite {
                address: start + first,
                length: length - first,
                stride: Some(page),
                salt: self.salt,
            };
            self.stage.op(process, force)?;
            let memory = &mut self.cells[at].memory;
            memory.write(view, run, Store::One.words(), self.salt);
        }
        Ok(())
    }

    /// Leaves the same words in each page of a part. The pattern is that of the address with the salt's halves exchanged
    /// in it (`protocol::pattern()`), so that a salt that has the page's address makes up for it.
    pub(super) fn write_equal(&mut self, at: usize, part: Part) -> Result<(), Error> {
        let (view, process, page) = (self.actor, self.actor(), self.stage.page());
        let pages = self.pages(at, part);
        for at_page in pages.clone() {
            let address = self.cells[at].memory.address(view, at_page);
            let salt = EQUAL ^ address.rotate_left(32);
            let touch = self.touch(address, page, Some((Store::All, salt)));
            let outcome = self.stage.op(process, touch);
            let range = address..address + page;
            self.compare(at, (process, range), true, outcome.map(drop))?;
        }
        self.cells[at].memory.write_equal(view, pages, EQUAL);
        Ok(())
    }

    fn touch(&self, address: u64, length: u64, store: Option<(Store, u64)>) -> Operation {
        let distance = self.stage.page() / WORDS as u64;
        let (first, stride) = match store {
            Some((Store::One, _)) => (ONE as u64 * distance, self.stage.page()),
            _ => (0, distance),
        };
        Operation::Touch {
            address: address + first,
            length: length - first,
            stride: Some(stride),
            access: match store {
                Some(_) => Access::Write,
                None => Access::Read,
            },
            order: Order::Forward,
            salt: store.map_or(0, |(_, salt)| salt),
        }
    }

    /// Notes an access that ended otherwise than the model has it.
    fn compare(
        &mut self,
        at: usize,
        (process, range): (ProcessId, Range<u64>),
        allowed: bool,
        outcome: Result<(), Error>,
    ) -> Result<(), Error> {
        let message = match (allowed, outcome) {
            (true, Ok(())) => return Ok(()),
            (
                false,
                Err(Error::Guest {
                    failure: Failure::Signal { .. },
                    ..
                }),
            ) => return Ok(()),
            (
                true,
                Err(Error::Guest {
                    failure: Failure::Signal { name, address, .. },
                    ..
                }),
            ) => format!("expected the access at VA 0x{address:016x} to complete and found {name}"),
            (_, Err(error)) => return Err(error),
            (false, Ok(())) => format!(
                "expected the access at VA 0x{:016x} to raise a signal and it completed",
                range.start
            ),
        };
        self.cells[at].wrong.push(Difference {
            process,
            range,
            message,
        });
        Ok(())
    }

    /// A child that is forked for this alone writes where the model lets it.
    pub(super) fn child_writes(
        &mut self,
        at: usize,
        child: ProcessId,
        part: Part,
    ) -> Result<(), Error> {
        let mut copy = self.cells[at].memory.clone();
        copy.views.swap(0, self.actor);
        copy.views.truncate(1);
        let view = copy.fork();
        let pages = self.pages(at, part);
        for (run, allowed) in Memory::runs(pages, |page| copy.can_write(view, page)) {
            if allowed {
                let (start, length) = self.range(at, self.actor, &run);
                let touch = self.touch(start, length, Some((Store::All, self.salt + 3)));
                let outcome = self.stage.op(child, touch).map(drop);
                // It has no checkpoint of its own, and ends.
                let parent = (self.actor(), start..start + length);
                self.compare(at, parent, true, outcome)?;
                if self.cells[at].memory.below == Below::Shared {
                    let memory = &mut self.cells[at].memory;
                    memory.write(self.actor, run, 0..WORDS, self.salt + 3);
                }
            }
        }
        Ok(())
    }

    /// Drains the batches of the LRU lists, and states that nothing else than entries and caches holds what the areas map.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn unheld(&mut self) -> Result<(), Error> {
        // `drop_caches_sysctl_handler()` calls `lru_add_drain_all()`. It drops clean pages without a mapping.
        self.stage.set("/proc/sys/vm/drop_caches", "1")?;
        for cell in &self.cells {
            for (view, process) in self.processes.iter().enumerate() {
                // A pin holds what its process maps.
                if view == 0 && cell.pinned.is_some() {
                    continue;
                }
                let view = cell.memory.views.get(view);
                let (Some(view), Some(process)) = (view, process) else {
                    continue;
                };
                let length = view.pages.len() as u64 * cell.memory.page;
                self.stage.unheld(*process, view.start, length);
            }
        }
        Ok(())
    }

    /// Stores to every page of every process, where the model lets it: a protection that was lost, or one that stayed, shows
    /// here, and a page that two processes share and should not.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn last_stores(&mut self) -> Result<(), Error> {
        for at in 0..self.cells.len() {
            if self.cells[at].left_out.is_some() || self.cells[at].refused.is_some() {
                continue;
            }
            for view in 0..self.cells[at].memory.views.len() {
                let store = (Store::All, self.salt + view as u64);
                self.access(at, view, Part::Whole, Some(store))?;
            }
        }
        self.salt += SALTS;
        Ok(())
    }

    /// Compares every page of every process with the model.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn verify(&mut self) -> Result<(), Error> {
        for at in 0..self.cells.len() {
            if self.cells[at].left_out.is_some() || self.cells[at].refused.is_some() {
                continue;
            }
            for view in 0..self.cells[at].memory.views.len() {
                if let Some(process) = self.processes[view] {
                    self.verify_view(at, view, process)?;
                }
            }
        }
        Ok(())
    }

    fn verify_view(&mut self, at: usize, view: usize, process: ProcessId) -> Result<(), Error> {
        let memory = &self.cells[at].memory;
        let (base, step) = (memory.views[view].start, memory.distance());
        let all = memory.views[view].pages.len();
        let addressed = |word: usize| base + word as u64 * step;
        // By words: what neighbours that were written at once have in common is salt and distance.
        let found: Vec<Option<Content>> = (0..all)
            .flat_map(|page| match memory.can_read(view, page) {
                true => memory
                    .content(view, page)
                    .map_or([None; WORDS], |words| words.map(Some)),
                false => [None; WORDS],
            })
            .collect();
        let runs = Memory::runs(0..all * WORDS, |word| {
            let away = |origin: u64| origin.wrapping_sub(addressed(word));
            found[word].map(|content| match content {
                Content::Zero => (Content::Zero, 0, 0),
                Content::Written { origin, salt } => {
                    (Content::Written { origin: 0, salt }, away(origin), 0)
                }
                // One page may be gone and its neighbour not.
                Content::Freed { origin, salt } => (
                    Content::Freed { origin: 0, salt },
                    away(origin),
                    word / WORDS,
                ),
            })
        });
        for (run, expected) in runs {
            let (start, length) = (addressed(run.start), run.len() as u64 * step);
            let Some((content, distance, _)) = expected else {
                let touch = self.touch(start, self.stage.page(), None);
                let outcome = self.stage.op(process, touch);
                let range = start..start + length;
                self.compare(at, (process, range), false, outcome.map(drop))?;
                continue;
            };
            let origin = Some(start.wrapping_add(distance));
            match content {
                Content::Zero => self.expect(at, process, start, length, Expect::Zero)?,
                Content::Written { salt, .. } => {
                    self.expect(at, process, start, length, Expect::Pattern { salt, origin })?;
                }
                Content::Freed { salt, .. } => {
                    let written = Expect::Pattern { salt, origin };
                    if self.mismatch(process, start, length, written)?.is_some() {
                        self.expect(at, process, start, length, Expect::Zero)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Compares the pages that are pinned with those that their process, the first one, maps: they are the same.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn verify_pins(&mut self) -> Result<(), Error> {
        for at in 0..self.cells.len() {
            let cell = &self.cells[at];
            if let (None, None, Some(first), Some(process)) =
                (cell.left_out, &cell.refused, cell.pinned, self.processes[0])
            {
                self.verify_pins_of(at, process, first)?;
            }
        }
        Ok(())
    }

    fn verify_pins_of(&mut self, at: usize, process: ProcessId, first: usize) -> Result<(), Error> {
        let memory = &self.cells[at].memory;
        let all = memory.views[0].pages.len();
        let pinned = |page: usize| memory.views[0].pages[page].pinned && memory.can_read(0, page);
        let runs = Memory::runs(0..all, pinned).into_iter();
        for (run, _) in runs.filter(|(_, pinned)| *pinned).collect::<Vec<_>>() {
            let (address, length) = self.range(at, 0, &run);
            let verify = Operation::GupVerify {
                address,
                length,
                offset: (run.start - first) as u64 * self.stage.page(),
            };
            let message = match self.stage.op(process, verify)? {
                Outcome::Verified(found) => found.first.first().map(|wrong| {
                    format!(
                        "expected the page at VA 0x{:016x} to be the one that is pinned, which holds {:#018x} there, and found {:#018x}; \
                         {} of {} words differ",
                        wrong.address, wrong.expected, wrong.found, found.wrong, found.words
                    )
                }),
                other => return Err(crate::guest::unexpected("gup_verify", &other)),
            };
            if let Some(message) = message {
                let range = address..address + length;
                self.cells[at].wrong.push(Difference {
                    process,
                    range,
                    message,
                });
            }
        }
        Ok(())
    }

    fn expect(
        &mut self,
        at: usize,
        process: ProcessId,
        start: u64,
        length: u64,
        expect: Expect,
    ) -> Result<(), Error> {
        if let Some(message) = self.mismatch(process, start, length, expect)? {
            self.cells[at].wrong.push(Difference {
                process,
                range: start..start + length,
                message,
            });
        }
        Ok(())
    }

    /// Describes the difference in a range, if there is one.
    fn mismatch(
        &mut self,
        process: ProcessId,
        address: u64,
        length: u64,
        expect: Expect,
    ) -> Result<Option<String>, Error> {
        let verify = Operation::Verify {
            address,
            length,
            stride: Some(self.stage.page() / WORDS as u64),
            expect,
        };
        match self.stage.op(process, verify) {
            Ok(Outcome::Verified(found)) => Ok(found.first.first().map(|first| {
                format!(
                    "{} of {} words differ from the model: expected {:#018x} at VA 0x{:016x} and found {:#018x}",
                    found.wrong, found.words, first.expected, first.address, first.found
                )
            })),
            Ok(other) => Err(crate::guest::unexpected("verify", &other)),
            Err(Error::Guest {
                failure: Failure::Signal { name, address, .. },
                ..
            }) => Ok(Some(format!(
                "expected the access at VA 0x{address:016x} to complete and found {name}"
            ))),
            Err(error) => Err(error),
        }
    }
}
