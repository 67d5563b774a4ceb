// SPDX-License-Identifier: GPL-2.0-only
//! States to the rules what a checkpoint after an operation knows of entries and folios of the areas.

use protocol::{Advice, ProcessId};

use super::model::{Below, Memory, Words};
use super::play::{Batch, Cell};
use super::steps::{All, Part, Step};
use crate::Error;

/// A step that ages pages of the whole process.
const CLEAR: Step = Step::All(All::ClearRefs);

/// One that reclaims the area's pages.
const PAGEOUT: Step = Step::Advise(Part::Whole, Advice::Pageout);

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
    /// nothing has KSM look at them. A page that a second thread faults in from swap while it is written out there is not
    /// exclusive (`do_swap_page()`, `SWP_STABLE_WRITES`).
    pub fn exclusive(&mut self, operations: &[&super::Operation]) {
        let mut steps = operations.iter().flat_map(|operation| operation.steps);
        let merge = Step::All(All::Merge);
        let swaps = |step: &Step| {
            let reclaims = [Step::All(All::Reclaim), PAGEOUT];
            matches!(step, Step::Busy(steps) if steps.iter().any(|it| reclaims.contains(it)))
        };
        if self.here.other || steps.any(|step| step.parts().contains(&merge) || swaps(step)) {
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

    /// States which pages the kernel has no leave to take away: those of locked memory that are present; and where one process
    /// gives advice, those that the other one shares with it.
    pub fn may_not_go(&mut self, operations: &[&super::Operation]) {
        let locked = self.locked(operations);
        let shared = self.shared_under_advice(operations);
        for (process, start, length) in locked.into_iter().chain(shared) {
            self.stage.mapped(process, start, length);
        }
    }

    /// Runs of present pages of locked anonymous memory.
    fn locked(&self, operations: &[&super::Operation]) -> Vec<(ProcessId, u64, u64)> {
        let steps = || operations.iter().flat_map(|it| it.steps);
        // It brings no page in.
        if steps().any(|it| matches!(it, Step::LockOnFault(_))) {
            return Vec::new();
        }
        let merge = Step::All(All::Merge);
        let merges = steps().any(|it| it.parts().contains(&merge));
        let is_locked = |memory: &Memory, view: usize, page: usize| {
            // KSM may have the zero page stand for what is empty.
            let may_be_zero = merges && memory.may_be_zero_page(view, page);
            memory.views[view].pages[page].locked && !may_be_zero
        };
        self.runs_of(|_, _| true, is_locked)
    }

    /// Runs of pages that the process which gave no advice shares with the one that gave MADV_COLD or MADV_PAGEOUT alone. Both
    /// map all of the area: of a folio that they map in part the kernel may not tell that it is shared
    /// (`folio_likely_mapped_shared()`).
    fn shared_under_advice(&self, operations: &[&super::Operation]) -> Vec<(ProcessId, u64, u64)> {
        let mut steps = operations.iter().flat_map(|it| it.steps).peekable();
        let ages = |step: &Step| matches!(step, Step::Advise(_, Advice::Cold | Advice::Pageout));
        if steps.peek().is_none() || !steps.all(ages) {
            return Vec::new();
        }
        let is_shared_whole = |cell: &Cell, view: usize| {
            let (memory, state) = (&cell.memory, cell.state);
            let own = |view: usize, page: usize| memory.views[view].pages[page].own;
            let shared = |page: usize| {
                is_present(memory, 0, page)
                    && is_present(memory, 1, page)
                    && own(0, page) == own(1, page)
            };
            view != self.actor
                && memory.views.len() == 2
                && !state.is_swapped()
                && !state.is_merged()
                && (0..memory.views[0].pages.len()).all(shared)
        };
        self.runs_of(is_shared_whole, |_, _, _| true)
    }

    /// Runs of present pages of anonymous memory, of some areas of some processes.
    fn runs_of(
        &self,
        areas: impl Fn(&Cell, usize) -> bool,
        pages: impl Fn(&Memory, usize, usize) -> bool,
    ) -> Vec<(ProcessId, u64, u64)> {
        let mut found = Vec::new();
        for at in self.judged() {
            let cell = &self.cells[at];
            let memory = &cell.memory;
            if memory.below != Below::Nothing || cell.state.map.is_hugetlb() {
                continue;
            }
            for (view, process) in self.processes.iter().enumerate() {
                let Some(process) = process.filter(|_| view < memory.views.len()) else {
                    continue;
                };
                if !areas(cell, view) {
                    continue;
                }
                let must =
                    |page: usize| is_present(memory, view, page) && pages(memory, view, page);
                let runs = Memory::runs(0..memory.views[view].pages.len(), must);
                for (run, _) in runs.iter().filter(|it| it.1) {
                    let (start, length) = self.range(at, view, run);
                    found.push((process, start, length));
                }
            }
        }
        found
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
}

/// Returns whether a process has a page of its own there, and may read it.
fn is_present(memory: &Memory, view: usize, page: usize) -> bool {
    let own = memory.views[view].pages[page].own;
    let is_freed = |own: &Words| own.iter().any(|word| word.is_freed());
    own.is_some_and(|own| !is_freed(&own)) && memory.can_read(view, page)
}
