// SPDX-License-Identifier: GPL-2.0-only
//! Steps during which a second thread stores to every page that the process may write, and loads the others.
//!
//! A store may not be lost, whatever the kernel does to the page meanwhile, and a load must find what the load before it
//! found. One thread alone shows neither: it stores before a step, or after it.

use std::ops::Range;

use protocol::{Access, Advice, Operation, ProcessId, Verified};

use super::model::{Memory, OTHER};
use super::play::Batch;
use super::queued::Expected;
use super::steps::Step;
use crate::Error;

/// Blocks of an area that are accessed during a step of it, and during one for all: a pass is to take less time than the step.
const MOST: usize = 8;
const MOST_OF_ALL: usize = 3;

/// Pages of an area that the thread accesses.
pub(super) struct Kept {
    pages: Range<usize>,
    access: Access,
}

impl Batch<'_, '_> {
    /// Plays steps of an area meanwhile.
    pub(super) fn busy(&mut self, at: usize, steps: &[Step]) -> Result<(), Error> {
        let kept = self.begin(at, MOST * self.block(), drops(steps));
        self.busy = true;
        let played = steps.iter().try_for_each(|step| self.play(at, *step));
        self.busy = false;
        self.end(at, self.actor(), kept);
        // Each area by itself: a guest whose CPUs take turns needs long for a list of them.
        played.and(self.flush())
    }

    /// Plays a step for all meanwhile.
    pub(super) fn busy_for_all(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut kept = Vec::new();
        for at in self.judged() {
            kept.push((at, self.begin(at, MOST_OF_ALL * self.block(), false)));
        }
        self.flush()?;
        let acted = act(self);
        for (at, kept) in kept {
            self.end(at, self.actor(), kept);
        }
        acted.and(self.flush())
    }

    /// A child, forked for this alone, finds what each page held at the fork, while its parent stores to it.
    pub(super) fn child_loads(&mut self, at: usize) -> Result<(), Error> {
        self.flush()?;
        let child = self.stage.fork(self.actor())?;
        let memory = &mut self.cells[at].memory;
        memory.forked = true;
        let mut copy = memory.clone();
        copy.views.swap(0, self.actor);
        copy.views.truncate(1);
        let view = copy.fork();
        let kept = runs(&copy, view, usize::MAX, false).into_iter();
        let kept = kept.map(|it| Kept {
            access: Access::Read,
            ..it
        });
        let kept: Vec<Kept> = kept.collect();
        for it in &kept {
            self.keep(at, child, it, false);
        }
        self.end(at, child, kept);
        self.flush()?;
        self.stage.ends(child)
    }

    /// Begins it, in the first pages that can be accessed. Pages that are dropped are stored to alone.
    fn begin(&mut self, at: usize, most: usize, may_drop: bool) -> Vec<Kept> {
        let view = self.actor;
        let mut kept = runs(&self.cells[at].memory, view, most, true);
        kept.retain(|it| !may_drop || it.access != Access::Read);
        for it in &kept {
            self.keep(at, self.actor(), it, may_drop);
            if it.access != Access::Read {
                let salt = self.salt + 7;
                let memory = &mut self.cells[at].memory;
                memory.write(view, it.pages.clone(), OTHER..OTHER + 1, salt);
            }
        }
        kept
    }

    fn keep(&mut self, at: usize, process: ProcessId, kept: &Kept, may_drop: bool) {
        let (address, length) = self.words(at, &kept.pages);
        let keep = Operation::KeepAccessing {
            address,
            length,
            stride: Some(self.stage.page()),
            access: kept.access,
            may_drop,
        };
        self.later(at, process, keep, Expected::Done);
    }

    /// Ends it; what was stored is of the model's pattern then.
    fn end(&mut self, at: usize, process: ProcessId, kept: Vec<Kept>) {
        let view = self.actor;
        for Kept { pages, access } in kept {
            let (address, length) = self.words(at, &pages);
            let salt = self.salt + 7;
            let stop = Operation::StopAccessing { address, salt };
            let range = address..address + length;
            self.later(at, process, stop, Expected::Kept { range });
            if access != Access::Read {
                let memory = &mut self.cells[at].memory;
                memory.write(view, pages, OTHER..OTHER + 1, salt);
            }
        }
    }

    /// The address of the word of the first of these pages, and the length to the end of the last.
    fn words(&self, at: usize, pages: &Range<usize>) -> (u64, u64) {
        let (start, length) = self.range(at, self.actor, pages);
        let first = OTHER as u64 * self.cells[at].memory.distance();
        (start + first, length - first)
    }
}

/// Returns whether the steps give up what pages hold.
fn drops(steps: &[Step]) -> bool {
    steps.iter().any(|step| {
        matches!(
            step,
            Step::Advise(_, Advice::Dontneed | Advice::Free | Advice::Remove)
        )
    })
}

/// Runs of the first pages that are stored to, if `stores`, or loaded: what may be gone is neither.
fn runs(memory: &Memory, view: usize, most: usize, stores: bool) -> Vec<Kept> {
    let of = |at: usize| {
        let words = memory.content(view, at);
        let freed = words.is_some_and(|words| words.iter().any(|word| word.is_freed()));
        if stores && memory.can_write(view, at) && !memory.is_open(view, at) {
            Some(Access::Write)
        } else if memory.can_read(view, at) && !freed {
            Some(Access::Read)
        } else {
            None
        }
    };
    let all = memory.views[view].pages.len();
    let runs = Memory::runs(0..all.min(most), of).into_iter();
    runs.filter_map(|(pages, access)| {
        Some(Kept {
            pages,
            access: access?,
        })
    })
    .collect()
}

/// Describes the difference of words from those that the thread stored or loaded before, if there is one.
pub(super) fn lost(found: &Verified) -> Option<String> {
    let wrong = found.first.first()?;
    Some(format!(
        "expected VA 0x{:016x} to hold {:#018x}, which a second thread stored there or found there before, and it holds \
         {:#018x}; {} of {} accesses found something else",
        wrong.address, wrong.expected, wrong.found, found.wrong, found.words
    ))
}

#[cfg(test)]
mod tests {
    use protocol::Mismatch;

    use super::*;
    use crate::cross::model::{Below, WORDS};

    #[test]
    fn what_cannot_be_written_is_loaded_and_what_may_be_gone_is_neither() {
        let mut memory = Memory::new(Below::Nothing, 0x10000, 8, 0, 4096);
        memory.write(0, 0..8, 0..WORDS, 0);
        memory.each(0, 2..4, |page| page.write = false);
        memory.each(0, 4..5, |page| page.guard = true);
        memory.each(0, 5..6, |page| page.write = false);
        memory.free(0, 5..6);
        let of = |most, stores| {
            let kept = runs(&memory, 0, most, stores).into_iter();
            kept.map(|it| (it.pages, it.access)).collect::<Vec<_>>()
        };
        let (load, store) = (Access::Read, Access::Write);
        assert_eq!(of(9, true), [(0..2, store), (2..4, load), (6..8, store)]);
        assert_eq!(of(3, true), [(0..2, store), (2..3, load)]);
        assert_eq!(of(9, false), [(0..4, load), (6..8, load)]);
    }

    #[test]
    fn a_word_that_was_lost_is_told_of() {
        let mut found = Verified {
            words: 9,
            wrong: 0,
            first: vec![],
        };
        assert_eq!(lost(&found), None);
        found.wrong = 2;
        found.first.push(Mismatch {
            address: 0x1a00,
            expected: 7,
            found: 5,
        });
        let message = lost(&found).unwrap();
        assert!(message.contains("expected VA 0x0000000000001a00 to hold 0x0000000000000007"));
        assert!(message.ends_with("2 of 9 accesses found something else"));
    }
}
