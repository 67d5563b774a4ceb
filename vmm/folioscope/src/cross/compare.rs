// SPDX-License-Identifier: GPL-2.0-only
//! Compares what the processes of a batch hold, and what they may do, with the model.

use std::ops::Range;

use protocol::{Access, Advice, Expect, Failure, Operation, Order, Outcome, ProcessId};

use super::model::{Below, Content, Memory, Store, ONE, OTHER, WORDS};
use super::play::{Batch, Cell, Difference, SALTS, WORD};
use super::queued::{Expected, Words};
use super::states::Map;
use super::steps::{All, Part, Step};
use crate::ops::advise;
use crate::Error;

const CLEAR: Step = Step::All(All::ClearRefs);

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

/// The last that was done to pages.
#[derive(Clone, Copy)]
enum Left {
    /// They were aged.
    Old,
    /// They were read.
    Read,
    /// They were written.
    Written,
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
        match beyond && self.here.maps_beyond && cell.state.map == Map::TmpfsHugeShort {
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

    /// States what the last operation's last steps say of entries: that they have been read or written since, or were aged.
    /// `first` is false if there was another operation before, whose pages a load may bring in with others around them.
    pub fn as_left_by(&mut self, steps: &[Step], first: bool) {
        let (view, process, block) = (self.actor, self.actor(), self.block());
        for at in self.judged() {
            let memory = &self.cells[at].memory;
            let all = memory.views[view].pages.len();
            let (part, left) = match steps {
                // The load after it is of the first block.
                [CLEAR, ..] if first && self.is_aged(at) => (Part::Second, Left::Old),
                [CLEAR, ..] => continue,
                [.., Step::Read(part)] => (*part, Left::Read),
                [.., Step::Write(part)] => (*part, Left::Written),
                _ => continue,
            };
            let can = |page: usize| match left {
                Left::Written => memory.can_write(view, page),
                Left::Read | Left::Old => memory.can_read(view, page),
            };
            let runs = Memory::runs(part.pages(block, all), can).into_iter();
            for (run, _) in runs.filter(|(_, can)| *can).collect::<Vec<_>>() {
                let (start, length) = self.range(at, view, &run);
                match left {
                    Left::Old => self.stage.old(process, start, length),
                    Left::Read => self.stage.readable(process, start, length),
                    Left::Written => self.stage.writable(process, start, length),
                }
            }
        }
    }

    /// Returns whether clear_refs is of the pages of the area's second block: not of the zero page, nor of hugetlb
    /// (`clear_refs_pte_range()`); and no PMD maps them with the first.
    fn is_aged(&self, at: usize) -> bool {
        let cell = &self.cells[at];
        let all = cell.memory.views[self.actor].pages.len();
        let own = |page: usize| cell.memory.is_certain(self.actor, page);
        let second = Part::Second.pages(self.block(), all);
        all == second.end
            && !cell.state.map.is_hugetlb()
            && !cell.state.is_swapped()
            && second.into_iter().all(own)
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

    /// States which anonymous pages no other mapping ever had: those that a process has written that never forked, where
    /// nothing has KSM look at them. One that is read from swap while it is written there is not (`do_swap_page()`).
    pub fn exclusive(&mut self, operations: &[&super::Operation]) {
        let steps = operations.iter().flat_map(|operation| operation.steps);
        let shares = |step: &Step| {
            let merges = step.parts().contains(&Step::All(All::Merge));
            merges || matches!(step, Step::Busy(_))
        };
        if self.here.other || { steps }.any(shares) {
            return;
        }
        let process = self.actor();
        for at in self.judged() {
            let cell = &self.cells[at];
            let memory = &cell.memory;
            if memory.below == Below::Shared || memory.forked || cell.state.is_merged() {
                continue;
            }
            let pages = &memory.views[0].pages;
            let own = |at: usize| pages[at].own.is_some() && !memory.may_be_zero_page(0, at);
            for (run, _) in Memory::runs(0..pages.len(), own).iter().filter(|it| it.1) {
                let (start, length) = self.range(at, 0, run);
                self.stage.exclusive(process, start, length);
            }
        }
    }

    /// States which pages the kernel has no leave to take away: those of locked memory that are there; and where one process
    /// gives advice on what it shares by fork, those of the other, if a look at any page of a folio tells that it is shared.
    pub fn may_not_go(&mut self, operations: &[&super::Operation]) {
        let steps = || operations.iter().flat_map(|it| it.steps);
        let ages = |step: &Step| matches!(step, Step::Advise(_, Advice::Cold | Advice::Pageout));
        // What is not there is not brought in.
        let on_fault = steps().any(|it| matches!(it, Step::LockOnFault(_)));
        // KSM may have the zero page stand for what is empty.
        let merge = Step::All(All::Merge);
        let merges = steps().flat_map(Step::parts).any(|it| *it == merge);
        let (actor, aged) = (self.actor, steps().next().is_some() && steps().all(ages));
        for at in self.judged() {
            let cell = &self.cells[at];
            let memory = &cell.memory;
            if memory.below != Below::Nothing || cell.state.map.is_hugetlb() {
                continue;
            }
            let there = |view: usize, at: usize| {
                let own = memory.views[view].pages[at].own;
                own.is_some_and(|own| !own.iter().any(|word| word.is_freed()))
                    && memory.can_read(view, at)
            };
            let all = memory.views[0].pages.len();
            let shared = |at: usize| {
                let own = |view: usize| memory.views[view].pages[at].own;
                there(0, at) && there(1, at) && own(0) == own(1)
            };
            let whole = aged
                && memory.views.len() == 2
                && !cell.state.is_swapped()
                && !cell.state.is_merged()
                && (0..all).all(shared);
            let mut stay = Vec::new();
            for (view, process) in self.processes.iter().enumerate() {
                let Some(process) = process.filter(|_| view < memory.views.len()) else {
                    continue;
                };
                let pages = &memory.views[view].pages;
                let must = |at: usize| {
                    let empty = merges && memory.may_be_zero_page(view, at);
                    let locked = pages[at].locked && !on_fault && there(view, at) && !empty;
                    locked || (whole && view != actor)
                };
                for (run, _) in Memory::runs(0..all, must).into_iter().filter(|it| it.1) {
                    let (start, length) = self.range(at, view, &run);
                    stay.push((process, start, length));
                }
            }
            for (process, start, length) in stay {
                self.stage.mapped(process, start, length);
            }
        }
    }

    /// States that what could be contiguous is so, in areas where the operation leaves no block open. Pinned pages that
    /// cannot be moved or reclaimed are mapped again one by one, and userfaultfd's protection ends page by page in a child.
    /// Entries that became writable page by page are alike again after the next fork.
    pub fn folded(&mut self, operation: &super::Operation) {
        let mapped_at_once = |cell: &&Cell| {
            let state = cell.state;
            cell.pinned.is_none()
                && !state.is_write_protected()
                && !state.is_forked()
                && !state.is_protected_for_a_while()
        };
        for cell in self.cells.iter().filter(mapped_at_once) {
            for (view, process) in self.processes.iter().enumerate() {
                let view = cell.memory.views.get(view);
                let (Some(view), Some(process)) = (view, process) else {
                    continue;
                };
                if !operation.opens.includes(cell.state.map) {
                    let length = view.pages.len() as u64 * cell.memory.page;
                    self.stage.folded_if_possible(*process, view.start, length);
                }
            }
        }
    }

    /// Has the acting process's pages written out and given up, all that the kernel does not have to keep: what is not dirty
    /// any more though it was written is lost.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn evict(&mut self) -> Result<(), Error> {
        if !self.here.swap {
            return Ok(());
        }
        for at in self.judged() {
            if !self.cells[at].state.map.is_hugetlb() {
                self.on_vmas(at, Part::Whole, Expected::Anything, |start, length| {
                    advise(start, length, Advice::Pageout)
                });
            }
        }
        self.flush()
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

    /// Notes pages that `move_pages()` has left where they were. It ends at the first of them, without a status for it and
    /// those behind it (`do_pages_move()`).
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
                    "expected move_pages() to move all pages that are there to node {node}, as nobody else has them, and \
                     {stayed} of {} were not moved",
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
