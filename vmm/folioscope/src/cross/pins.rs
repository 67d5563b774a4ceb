// SPDX-License-Identifier: GPL-2.0-only
//! Pages that are pinned for a device: it has the pages that the process has, whatever is done to them.

use std::ops::Range;

use protocol::{Operation, ProcessId, Verified};

use super::model::{Below, Memory, Page, Store};
use super::play::Batch;
use super::queued::Expected;
use super::steps::{Part, Step};
use crate::Error;

/// The reason to leave a pinned area out where others are to be pinned.
const ONE_AT_A_TIME: &str = "the kernel's gup_test pins one range at a time";

impl Batch<'_, '_> {
    /// Lets the pinned pages of an area go; the area is left out from here on.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub(super) fn unpin(&mut self) -> Result<(), Error> {
        let pinned = |at: &usize| self.cells[*at].pinned.is_some();
        let Some(at) = self.judged().into_iter().find(pinned) else {
            return Ok(());
        };
        let process = self.processes[0].expect("the first process lives until it is told to end");
        self.cells[at].left_out = Some(ONE_AT_A_TIME);
        self.now(process, Operation::GupUnpin {}).map(drop)
    }

    /// Pins pages for a device that reads alone, or also writes, plays steps meanwhile, stores to one of the pages, and
    /// compares what the device has with what the process has. A private page that is shared gets a copy first, also one of a
    /// file (`gup_must_unshare()`).
    pub(super) fn pin_for_now(
        &mut self,
        at: usize,
        part: Part,
        read_only: bool,
        steps: &[Step],
    ) -> Result<(), Error> {
        let (view, process) = (self.actor, self.actor());
        let pages = self.pages(at, part);
        let (address, length) = self.range(at, view, &pages);
        let pin = Operation::GupPin {
            address,
            length,
            read_only,
        };
        self.later(at, process, pin, Expected::Done);
        let memory = &mut self.cells[at].memory;
        if memory.below == Below::Private {
            for at in pages.clone() {
                let words = memory.content(view, at);
                memory.views[view].pages[at].own = words;
            }
        }
        let pinned = |on: bool| move |page: &mut Page| page.pinned = on;
        self.cells[at]
            .memory
            .each(view, pages.clone(), pinned(true));
        let played = steps.iter().try_for_each(|step| self.play(at, *step));
        self.cells[at]
            .memory
            .each(view, pages.clone(), pinned(false));
        let one = self.pages(at, Part::Page).start;
        let memory = &self.cells[at].memory;
        if pages.contains(&one) && memory.can_write(view, one) && !memory.is_open(view, one) {
            self.access(at, view, Part::Page, Some((Store::One, self.salt + 5)));
        }
        self.verify_pinned(at, view, process, &pages, pages.start);
        self.later(at, process, Operation::GupUnpin {}, Expected::Done);
        played
    }

    /// Compares the pages that are pinned with those that their process, the first one, maps: they are the same.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn verify_pins(&mut self) -> Result<(), Error> {
        for at in self.judged() {
            let cell = &self.cells[at];
            let (Some(first), Some(process)) = (cell.pinned, self.processes[0]) else {
                continue;
            };
            let memory = &cell.memory;
            let all = memory.views[0].pages.len();
            let pinned =
                |page: usize| memory.views[0].pages[page].pinned && memory.can_read(0, page);
            let runs = Memory::runs(0..all, pinned).into_iter();
            for (run, _) in runs.filter(|(_, pinned)| *pinned).collect::<Vec<_>>() {
                self.verify_pinned(at, 0, process, &run, first);
            }
        }
        self.flush()
    }

    /// Compares some of the pinned pages; `first` is the first of all.
    fn verify_pinned(
        &mut self,
        at: usize,
        view: usize,
        process: ProcessId,
        pages: &Range<usize>,
        first: usize,
    ) {
        let (address, length) = self.range(at, view, pages);
        let verify = Operation::GupVerify {
            address,
            length,
            offset: (pages.start - first) as u64 * self.stage.page(),
        };
        let range = address..address + length;
        self.later(at, process, verify, Expected::Pinned { range });
    }
}

/// Describes the difference of pinned pages from those that are mapped, if there is one.
pub(super) fn pin_mismatch(found: &Verified) -> Option<String> {
    let wrong = found.first.first()?;
    Some(format!(
        "expected the page at VA 0x{:016x} to be the one that is pinned, which holds {:#018x} there, and found {:#018x}; \
         {} of {} words differ",
        wrong.address, wrong.expected, wrong.found, found.wrong, found.words
    ))
}
