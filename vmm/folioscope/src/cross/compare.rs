// SPDX-License-Identifier: GPL-2.0-only
//! Compares what the processes of a batch hold, and what they may do, with the model.

use std::ops::Range;

use protocol::{Access, Advice, Expect, Failure, Operation, Order, Outcome, ProcessId};

use super::maps::Map;
use super::model::{Below, Content, Memory, Store, ONE, OTHER, WORDS};
use super::play::{Batch, Cell, Difference, SALTS, WORD};
use super::queued::{Expected, Words};
use super::steps::Part;
use crate::ops::advise;
use crate::Error;

/// The salt of pages that are to be equal.
const EQUAL: u64 = 0x6b73;

/// The words of a run of pages that are alike, in as few ranges of words as can be compared at once: all of them where all
/// go on in one way; else, of several pages, each word by itself, and of one page its runs.
fn in_a_page(words: &[(Content, u64); WORDS], pages: usize) -> Vec<Range<usize>> {
    let runs = Memory::runs(0..WORDS, |word| words[word]);
    match (runs.len(), pages) {
        (1, _) => std::iter::once(0..WORDS).collect(),
        (_, 1) => runs.into_iter().map(|(run, _)| run).collect(),
        _ => (0..WORDS).map(|word| word..word + 1).collect(),
    }
}

/// The words of a run of pages that are alike, the first at `start`, in ranges that can be compared at once, with the content
/// of each and how far its origin is away.
pub(super) fn ranges(
    start: u64,
    pages: usize,
    page: u64,
    words: &[(Content, u64); WORDS],
) -> Vec<(Words, (Content, u64))> {
    let distance = page / WORDS as u64;
    let runs = in_a_page(words, pages).into_iter();
    let range = |run: Range<usize>| {
        // All words of all pages, or some words of each page.
        let (count, stride) = match run.len() {
            WORDS => (pages * WORDS, distance),
            1 => (pages, page),
            some => (some, distance),
        };
        let range = Words {
            start: start + run.start as u64 * distance,
            count: count as u64,
            stride,
        };
        (range, words[run.start])
    };
    runs.map(range).collect()
}

/// Returns the contents that such a range is to have.
pub(super) fn expect(words: Words, (content, away): (Content, u64)) -> Expect {
    match content {
        Content::Zero => Expect::Zero,
        Content::Written { salt, .. } | Content::Freed { salt, .. } => Expect::Pattern {
            salt,
            origin: Some(words.start.wrapping_add(away)),
        },
    }
}

impl Batch<'_, '_> {
    /// Loads, or stores with a salt, page by page of the model: what it refuses must raise a signal.
    pub(super) fn access(
        &mut self,
        at: usize,
        view: usize,
        part: Part,
        store: Option<(Store, u64)>,
    ) {
        let Some(process) = self.processes[view] else {
            return;
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
            let range = start..start + length;
            let expected = match allowed {
                true => Expected::Access {
                    range,
                    completes: true,
                },
                false => self.refused(at, view, run.start, range),
            };
            self.later(at, process, touch, expected);
            if let (true, Some((store, salt))) = (allowed, store) {
                let memory = &mut self.cells[at].memory;
                memory.write(view, run, store.words(), salt);
            }
        }
    }

    /// The expectation of an access to a page that the model refuses.
    fn refused(&self, at: usize, view: usize, page: usize, range: Range<u64>) -> Expected {
        let cell = &self.cells[at];
        let beyond = cell.memory.content(view, page).is_none();
        let maps_beyond = self.here.maps_beyond && cell.memory.punched;
        match beyond && maps_beyond && cell.state.map == Map::TmpfsHugeShort {
            true => Expected::Anything,
            false => Expected::Access {
                range,
                completes: false,
            },
        }
    }

    /// Has two threads load or store a word each of every page at once, where the model lets them.
    pub(super) fn race(&mut self, at: usize, part: Part, accesses: [Access; 2]) {
        let (view, process, page) = (self.actor, self.actor(), self.stage.page());
        let (writes, salt) = (accesses.contains(&Access::Write), self.salt + 6);
        let memory = &self.cells[at].memory;
        let distance = memory.distance();
        let can = |at: usize| match writes {
            true => memory.can_write(view, at) && !memory.is_open(view, at),
            false => memory.can_read(view, at),
        };
        let runs = Memory::runs(self.pages(at, part), can).into_iter();
        for (run, _) in runs.filter(|(_, can)| *can).collect::<Vec<_>>() {
            let (start, length) = self.range(at, view, &run);
            let first = ONE as u64 * distance;
            let race = Operation::Race {
                address: start + first,
                length: length - first,
                stride: Some(page),
                beside: (OTHER - ONE) as u64 * distance,
                access: accesses[0],
                other: accesses[1],
                salt,
            };
            let expected = Expected::Access {
                range: start..start + length,
                completes: true,
            };
            self.later(at, process, race, expected);
            for (access, word) in accesses.iter().zip([ONE, OTHER]) {
                if *access == Access::Write {
                    let memory = &mut self.cells[at].memory;
                    memory.write(view, run.clone(), word..word + 1, salt);
                }
            }
        }
    }

    /// Writes one word of each page as a debugger does.
    pub(super) fn force(&mut self, at: usize, part: Part) {
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
            self.later(at, process, force, Expected::Done);
            let memory = &mut self.cells[at].memory;
            memory.write(view, run, Store::One.words(), self.salt);
        }
    }

    /// Leaves the same words in each writable page of a part. The pattern is that of the address with the salt's halves exchanged
    /// in it (`protocol::pattern()`), so that a salt that has the page's address makes up for it.
    pub(super) fn write_equal(&mut self, at: usize, part: Part) {
        let (view, process, page) = (self.actor, self.actor(), self.stage.page());
        let memory = &self.cells[at].memory;
        let pages = self.pages(at, part);
        let pages =
            pages.filter(|page| memory.can_write(view, *page) && !memory.is_open(view, *page));
        let pages: Vec<usize> = pages.collect();
        for at_page in pages.iter().copied() {
            let address = self.cells[at].memory.address(view, at_page);
            let salt = EQUAL ^ address.rotate_left(32);
            let touch = self.touch(address, page, Some((Store::All, salt)));
            let expected = Expected::Access {
                range: address..address + page,
                completes: true,
            };
            self.later(at, process, touch, expected);
        }
        self.cells[at].memory.write_equal(view, &pages, EQUAL);
    }

    pub(super) fn touch(
        &self,
        address: u64,
        length: u64,
        store: Option<(Store, u64)>,
    ) -> Operation {
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
                self.cells[at].compare(parent, true, outcome)?;
                if self.cells[at].memory.below == Below::Shared {
                    let memory = &mut self.cells[at].memory;
                    memory.write_by_child(self.actor, run, 0..WORDS, self.salt + 3);
                }
            }
        }
        Ok(())
    }

    /// Has the kernel write out and reclaim all pages of a process that is alone (`MADV_PAGEOUT`), and compares them once more
    /// with the model: a page whose dirty state was lost is not written out. Where processes share pages a wrong sharing
    /// would go with it, and the last stores are to show that.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn evict_and_verify(&mut self) -> Result<(), Error> {
        if self.other().is_some() || !self.here.swap {
            return Ok(());
        }
        for at in self.judged() {
            if !self.cells[at].state.map.is_hugetlb() {
                self.on_vmas(at, Part::Whole, Expected::Anything, |start, length| {
                    advise(start, length, Advice::Pageout)
                });
            }
        }
        self.flush()?;
        self.verify()
    }

    /// Stores to every page of every process, where the model lets it: a protection that was lost, or one that stayed, shows
    /// here, and a page that two processes share and should not.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn last_stores(&mut self) -> Result<(), Error> {
        for view in 0..self.processes.len() {
            for at in self.judged() {
                if view < self.cells[at].memory.views.len() {
                    let store = (Store::All, self.salt + view as u64);
                    self.access(at, view, Part::Whole, Some(store));
                }
            }
            self.flush()?;
        }
        self.salt += SALTS;
        Ok(())
    }

    /// The areas that are judged.
    pub(super) fn judged(&self) -> Vec<usize> {
        let judged = |at: &usize| {
            let cell = &self.cells[*at];
            cell.left_out.is_none() && cell.refused.is_none()
        };
        (0..self.cells.len()).filter(judged).collect()
    }

    /// Adds the differences from the model to the last checkpoints of their processes. Asks nothing of the guest.
    ///
    /// # Errors
    /// Where no checkpoint can have one of them; the others are added.
    pub fn add_differences(&mut self) -> Result<(), Error> {
        let cells = self.cells.iter_mut();
        let wrong: Vec<Difference> = cells.flat_map(|cell| cell.wrong.drain(..)).collect();
        let mut outcome = Ok(());
        for it in wrong {
            let process = self.with_checkpoint(it.process);
            let (start, end) = (it.range.start, it.range.end);
            let added = self.stage.wrong(process, start, end, it.message);
            outcome = outcome.and(added);
        }
        outcome
    }

    /// Compares every page of every process with the model.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn verify(&mut self) -> Result<(), Error> {
        for view in 0..self.processes.len() {
            let Some(process) = self.processes[view] else {
                continue;
            };
            for at in self.judged() {
                if view < self.cells[at].memory.views.len() {
                    self.verify_view(at, view, process);
                    self.verify_beside(at, process);
                }
            }
            self.flush()?;
        }
        Ok(())
    }

    fn verify_view(&mut self, at: usize, view: usize, process: ProcessId) {
        let memory = &self.cells[at].memory;
        let page = self.stage.page();
        let all = memory.views[view].pages.len();
        for (pages, likeness) in Memory::runs(0..all, |at| memory.likeness(view, at)) {
            let memory = &self.cells[at].memory;
            let start = memory.address(view, pages.start);
            let length = pages.len() as u64 * page;
            let Some((words, _)) = likeness else {
                let touch = self.touch(start, page, None);
                let expected = self.refused(at, view, pages.start, start..start + length);
                self.later(at, process, touch, expected);
                continue;
            };
            for (range, place) in ranges(start, pages.len(), page, &words) {
                let expected = Expected::Words(range, place.0);
                let verify = range.verify(expect(range, place));
                self.later(at, process, verify, expected);
            }
        }
    }
}

impl Cell {
    /// Notes an access that ended otherwise than the model has it.
    pub(super) fn compare(
        &mut self,
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
        self.wrong.push(Difference {
            process,
            range,
            message,
        });
        Ok(())
    }

    /// Notes pages that `move_pages()` left on their node. It stops at the first one, and sets no status for it and those
    /// behind it (`do_pages_move()`).
    pub(super) fn compare_nodes(
        &mut self,
        process: ProcessId,
        range: &Range<u64>,
        node: i32,
        found: &[i32],
    ) {
        let stayed = found.iter().filter(|it| **it >= 0 && **it != node).count();
        if stayed > 0 {
            self.wrong.push(Difference {
                process,
                range: range.clone(),
                message: format!(
                    "expected move_pages() to move every present page to node {node}: no other process maps them and nothing \
                     pins them; {stayed} of {} were not moved",
                    found.len()
                ),
            });
        }
    }

    /// Notes a difference of words from the model.
    pub(super) fn compare_words(
        &mut self,
        process: ProcessId,
        words: Words,
        answer: &Result<Outcome, Error>,
    ) {
        if let Some(message) = mismatch(answer) {
            self.wrong.push(Difference {
                process,
                range: words.start..words.start + words.length() - words.stride + WORD,
                message,
            });
        }
    }
}

/// Describes the difference of some words from those that were expected, if the answer has one.
pub(super) fn mismatch(answer: &Result<Outcome, Error>) -> Option<String> {
    match answer {
        Ok(Outcome::Verified(found)) => found.first.first().map(|first| {
            format!(
                "{} of {} words differ from the model: expected {:#018x} at VA 0x{:016x} and found {:#018x}",
                found.wrong, found.words, first.expected, first.address, first.found
            )
        }),
        Err(Error::Guest {
            failure: Failure::Signal { name, address, .. },
            ..
        }) => Some(format!(
            "expected the access at VA 0x{address:016x} to complete and found {name}"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_alike_are_compared_by_words() {
        let written = |salt| (Content::Written { origin: 0, salt }, 0);
        let mut words = [written(1); WORDS];
        assert_eq!(
            (in_a_page(&words, 5).len(), in_a_page(&words, 5)[0].end),
            (1, WORDS)
        );
        words[ONE] = written(2);
        assert_eq!(in_a_page(&words, 1), [0..3, 3..4, 4..8]);
        assert_eq!(in_a_page(&words, 5).len(), WORDS);
        // Words of one pattern that do not go on from each other.
        words[ONE] = (words[0].0, 8);
        assert_eq!(in_a_page(&words, 1), [0..3, 3..4, 4..8]);
    }
}
