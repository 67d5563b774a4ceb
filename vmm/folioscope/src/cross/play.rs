// SPDX-License-Identifier: GPL-2.0-only
//! Plays the steps of many areas in one process.

use std::ops::Range;

use protocol::{Access, Advice, LockFlag, Operation, ProcessId, Protection, UffdMode};

use super::admit::{left_out, Here, NOT_INHERITED};
use super::ledger::CGROUP;
use super::maps::Map;
use super::mirrored::Mirrors;
use super::model::{Memory, Store, WORDS};
use super::queued::{Expected, Queued};
use super::states::State;
use super::steps::{All, Part, Prot, Step};
use crate::ops::{advise, protect, unmap};
use crate::stage::Stage;
use crate::Error;

/// Has the kernel compact all memory.
pub(super) const COMPACT: &str = "/proc/sys/vm/compact_memory";

/// Bytes of a word.
pub(super) const WORD: u64 = 8;

/// Salts that one operation may use: for each process's stores, and for a file's.
pub(super) const SALTS: u64 = 10;

/// Pages of a process of the crossing beside its areas.
const ITS_OWN: u64 = 64;

/// A difference between a process's memory and the model.
#[derive(Debug)]
pub struct Difference {
    /// The process.
    pub process: ProcessId,
    /// The addresses.
    pub range: Range<u64>,
    /// The sentence.
    pub message: String,
}

/// One area: a state, and what has become of it.
#[derive(Debug)]
pub struct Cell {
    /// The state that it began with.
    pub state: &'static State,
    /// Every range of addresses that it had, with what a `MREMAP_DONTUNMAP` left behind.
    pub ranges: Vec<Range<u64>>,
    /// Reason to leave the operation out here.
    pub left_out: Option<&'static str>,
    /// A step that the kernel refused: the cell is not judged.
    pub refused: Option<String>,
    /// A sentence if the state has not come about: the cell is not judged then, if nothing is wrong with it.
    pub unseen: Option<String>,
    /// Differences between memory and model, and the process that has each.
    pub wrong: Vec<Difference>,
    pub(super) memory: Memory,
    pub(super) path: Option<String>,
    /// The address of the page beside it, if there is one.
    pub(super) beside: Option<u64>,
    /// The first of the pages that its process has pinned.
    pub(super) pinned: Option<usize>,
    /// Steps were played since the fork: the processes may not have the same pages any more.
    pub(super) parted: bool,
    /// Pages that are mapped together, and cannot be parted: those of a hugetlb page.
    pub(super) unit: usize,
}

impl Cell {
    pub(super) fn new(state: &'static State, memory: Memory) -> Self {
        let view = &memory.views[0];
        let end = view.start + view.pages.len() as u64 * memory.page;
        Self {
            state,
            ranges: std::iter::once(view.start..end).collect(),
            left_out: None,
            refused: None,
            unseen: None,
            wrong: Vec::new(),
            memory,
            path: None,
            beside: None,
            pinned: None,
            parted: false,
            unit: 1,
        }
    }
}

/// All areas of one batch, and the processes that have them.
#[derive(Debug)]
pub struct Batch<'s, 'g> {
    pub(super) stage: &'s mut Stage<'g>,
    pub(super) processes: [Option<ProcessId>; 2],
    pub(super) actor: usize,
    pub(super) here: Here,
    /// The salt of the next stores of the acting process, so that an operation's differ from its state's.
    pub(super) salt: u64,
    /// Operations that the processes are still to do.
    pub(super) queue: Vec<Queued>,
    /// The step that is played.
    pub(super) step: Option<Step>,
    /// How often a charge of the cgroup had come to its limit when that was set.
    pub(super) came: u64,
    /// A second thread accesses the pages that a step is played in.
    pub(super) busy: bool,
    /// Their secondary MMUs, if the kernel has some for tests.
    pub(super) mirrors: Option<Mirrors>,
    /// The areas, in the order of their states.
    pub cells: Vec<Cell>,
}

impl<'s, 'g> Batch<'s, 'g> {
    /// Forks. The steps that follow are the parent's or the child's.
    ///
    /// # Errors
    /// Where the guest is lost, or cannot fork.
    pub fn fork(&mut self, child_acts: bool) -> Result<(), Error> {
        let parent = self.processes[0].expect("the first process lives until it is told to end");
        self.processes[1] = Some(self.stage.fork(parent)?);
        for cell in &mut self.cells {
            if matches!(cell.state.map, Map::HugetlbBlock | Map::HugetlbBlockFar) {
                cell.left_out.get_or_insert(NOT_INHERITED);
            }
            cell.memory.fork();
            cell.parted = false;
        }
        self.actor = usize::from(child_acts);
        self.here.other = true;
        Ok(())
    }

    /// The process that acts.
    pub fn actor(&self) -> ProcessId {
        self.processes[self.actor].expect("the acting process does not end")
    }

    /// Returns a process that has a checkpoint for a finding of this one: itself; if it has ended, the acting one; before
    /// their first checkpoint, the one in which the states were built.
    pub fn with_checkpoint(&self, process: ProcessId) -> ProcessId {
        let lives = self.processes.contains(&Some(process));
        let has = if lives { process } else { self.actor() };
        match self.processes[0] {
            Some(first) if !self.stage.has_checkpoint(has) => first,
            _ => has,
        }
    }

    /// The other process, while it lives.
    pub fn other(&self) -> Option<ProcessId> {
        self.processes[1 - self.actor]
    }

    /// The stage that it is played on.
    pub fn stage(&mut self) -> &mut Stage<'g> {
        self.stage
    }

    /// Plays the steps of an operation in every area. The stores of the next one differ from its.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn operation(&mut self, steps: &[Step]) -> Result<(), Error> {
        for step in steps {
            self.step(*step)?;
            self.compare_mirrors()?;
        }
        self.salt += SALTS;
        Ok(())
    }

    /// Plays a step in every area, or once for all.
    fn step(&mut self, step: Step) -> Result<(), Error> {
        self.here.view = self.actor;
        if let Step::All(all) | Step::Busy([Step::All(all)]) = &step {
            for at in 0..self.cells.len() {
                let here = self.here_of(at);
                let cell = &mut self.cells[at];
                let why = left_out(&cell.memory, here, step);
                cell.left_out = cell.left_out.or(why);
                cell.parted = true;
            }
            if let Some(why) = self.nothing_for(*all) {
                for cell in &mut self.cells {
                    cell.left_out.get_or_insert(why);
                }
            }
            return match self.cells.iter().all(|cell| cell.left_out.is_some()) {
                true => Ok(()),
                false if matches!(step, Step::Busy(_)) => {
                    if *all == All::Hints {
                        self.stage.scan_often()?;
                    }
                    self.busy_for_all(|batch| batch.for_all(*all))
                }
                false => self.for_all(*all),
            };
        }
        if matches!(step, Step::PinToRead(_) | Step::Pinned(..)) {
            self.unpin()?;
        }
        for at in 0..self.cells.len() {
            self.step_of(at, step)?;
        }
        self.flush()
    }

    /// Returns why a step for all would wait for something that none of the areas has.
    fn nothing_for(&self, all: All) -> Option<&'static str> {
        let played = || self.cells.iter().filter(|cell| cell.left_out.is_none());
        let hugetlb = |cell: &Cell| cell.state.map.is_hugetlb();
        let bytes = |cell: &Cell| cell.memory.views[0].pages.len() as u64 * self.stage.page();
        let huge = |cell: &Cell| !hugetlb(cell) && cell.state.map != Map::Far;
        let holds_pmd = |cell: &Cell| huge(cell) && bytes(cell) >= self.stage.pmd();
        match all {
            // It keeps no process that has none (`khugepaged_enter_vma()`).
            All::Collapse if !played().any(holds_pmd) => {
                Some("khugepaged passes over a process without an area of a PMD's size")
            }
            All::Merge if played().all(hugetlb) => Some("KSM merges no hugetlb pages"),
            All::Limit(_) if played().all(hugetlb) => {
                Some("hugetlb pages are not charged to the cgroup")
            }
            _ => None,
        }
    }

    fn for_all(&mut self, all: All) -> Result<(), Error> {
        match all {
            All::Compact => self.stage.set(COMPACT, "1"),
            All::DropCaches => self.stage.set("/proc/sys/vm/drop_caches", "3"),
            All::SwapOff => self.stage.swap_off_and_on(),
            All::Reclaim => self.stage.reclaim(CGROUP),
            All::Limit(on) => {
                let above = self.room();
                let came = self.stage.came_to_limit(CGROUP)?;
                if !on && came == self.came {
                    self.refuse_all("the cgroup never came to its limit: too little was written");
                }
                self.came = came;
                self.stage.limit(CGROUP, on.then_some(above))
            }
            All::ClearRefs => {
                let pid = self.stage.pid(self.actor());
                self.stage.set(&format!("/proc/{pid}/clear_refs"), "1")
            }
            All::Merge => self.stage.merge_all().map(drop),
            All::MigratePages => {
                let migrate = Operation::MigratePages { from: 0, to: 1 };
                self.now(self.actor(), migrate).map(drop)
            }
            All::Collapse => self.stage.collapse_all(),
            All::Hints => {
                if self.stage.numa_hints(self.actor())? == 0 {
                    self.refuse_all("NUMA balancing has made no hint");
                }
                Ok(())
            }
            All::OtherExits => {
                let other = 1 - self.actor;
                if let Some(process) = self.processes[other].take() {
                    self.stage.ends(process)?;
                }
                Ok(())
            }
        }
    }

    /// Refuses what is played, in every area.
    fn refuse_all(&mut self, why: &str) {
        for cell in self.cells.iter_mut().filter(|cell| cell.left_out.is_none()) {
            cell.refused.get_or_insert(why.into());
        }
    }

    /// Bytes that the cgroup has to have room for: what may be copied of areas that cannot be reclaimed for it, those that
    /// are locked and pinned; and what the process itself may have to bring back.
    fn room(&self) -> u64 {
        let views = self.cells.iter().flat_map(|cell| &cell.memory.views);
        let held = views.filter(|view| view.pages.iter().any(|page| page.locked || page.pinned));
        let pages: usize = held.map(|view| view.pages.len()).sum();
        let copied = self.other().map_or(0, |_| pages as u64);
        (copied + ITS_OWN) * self.stage.page()
    }

    /// The place of a step in this area.
    fn here_of(&self, at: usize) -> Here {
        Here {
            map: self.cells[at].state.map,
            view: self.actor,
            unit: self.cells[at].unit,
            read_back: self.cells[at].state.is_read_back(),
            parted: self.cells[at].parted || self.cells[at].state.is_swapped(),
            ..self.here
        }
    }

    /// A step of one area; one that was left out or refused has no more of them.
    pub(super) fn step_of(&mut self, at: usize, step: Step) -> Result<(), Error> {
        let here = self.here_of(at);
        let cell = &mut self.cells[at];
        if cell.left_out.is_some() || cell.refused.is_some() {
            return Ok(());
        }
        if let Some(why) = left_out(&cell.memory, here, step) {
            cell.left_out = Some(why);
            return Ok(());
        }
        cell.parted = true;
        self.step = Some(step);
        let outcome = self.play(at, step);
        self.step = None;
        match outcome {
            Err(Error::Guest { request, failure }) => {
                let why = format!("{step:?}: {request}: {failure}");
                self.cells[at].refused.get_or_insert(why);
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Pages of a block.
    pub(super) fn block(&self) -> usize {
        self.here.block
    }

    /// Pages of a part, for accesses.
    pub(super) fn pages(&self, at: usize, part: Part) -> Range<usize> {
        let all = self.cells[at].memory.views[0].pages.len();
        part.pages(self.here.block, all)
    }

    /// Pages of a part, for what changes mappings.
    pub(super) fn units(&self, at: usize, part: Part) -> Range<usize> {
        let all = self.cells[at].memory.views[0].pages.len();
        part.units(self.here.block, all, self.cells[at].unit)
    }

    /// Mapped pages of a part, by VMA: a call on a range with a hole, or of several VMAs, may stop half way.
    pub(super) fn by_vma(&self, at: usize, part: Part) -> Vec<Range<usize>> {
        let pages = self.units(at, part);
        let view = &self.cells[at].memory.views[self.actor].pages;
        let runs = Memory::runs(pages, |page| view[page].vma());
        let mapped = runs.into_iter().filter(|(_, [mapped, ..])| *mapped);
        mapped.map(|(run, _)| run).collect()
    }

    pub(super) fn range(&self, at: usize, view: usize, pages: &Range<usize>) -> (u64, u64) {
        let memory = &self.cells[at].memory;
        let start = memory.address(view, pages.start);
        (start, pages.len() as u64 * memory.page)
    }

    /// Calls of one kind on each VMA of a part.
    pub(super) fn on_vmas(
        &mut self,
        at: usize,
        part: Part,
        expected: Expected,
        op: impl Fn(u64, u64) -> Operation,
    ) {
        for run in self.by_vma(at, part) {
            let (start, length) = self.range(at, self.actor, &run);
            self.later(at, self.actor(), op(start, length), expected.clone());
        }
    }

    pub(super) fn play(&mut self, at: usize, step: Step) -> Result<(), Error> {
        let view = self.actor;
        match step {
            Step::Write(part) => self.access(at, view, part, Some((Store::All, self.salt))),
            Step::WriteWord(part) => self.access(at, view, part, Some((Store::One, self.salt + 5))),
            Step::ForceWord(part) => self.force(at, part),
            Step::RaceToRead(part) => self.race(at, part, [Access::Read, Access::Read]),
            Step::RaceToWrite(part) => self.race(at, part, [Access::Write, Access::Write]),
            Step::Race(part) => self.race(at, part, [Access::Read, Access::Write]),
            Step::WriteEqual(part) => self.write_equal(at, part),
            Step::Read(part) => self.access(at, view, part, None),
            Step::Busy(steps) => self.busy(at, steps)?,
            Step::OtherWrites(part) => {
                self.access(at, 1 - view, part, Some((Store::All, self.salt + 1)))
            }
            Step::Advise(part, advice) => self.advise(at, part, advice),
            Step::Protect(part, prot) => {
                let bits: &[Protection] = match prot {
                    Prot::None => &[],
                    Prot::Read => &[Protection::Read],
                    Prot::Write => &[Protection::Read, Protection::Write],
                };
                self.on_vmas(at, part, Expected::Done, |start, length| {
                    protect(start, length, bits)
                });
                let pages = self.units(at, part);
                let (read, write) = (prot != Prot::None, prot == Prot::Write);
                let memory = &mut self.cells[at].memory;
                memory.each(view, pages, |page| (page.read, page.write) = (read, write));
            }
            Step::Move(how) => self.relocate(at, how)?,
            Step::Unmap(part) => {
                let pages = self.units(at, part);
                let (start, length) = self.range(at, view, &pages);
                self.later(at, self.actor(), unmap(start, length), Expected::Done);
                self.cells[at].memory.unmap(view, pages);
            }
            Step::Lock(part) | Step::LockOnFault(part) | Step::Unlock(part) => {
                let lock = !matches!(step, Step::Unlock(_));
                let flags = match step {
                    Step::LockOnFault(_) => vec![LockFlag::Onfault],
                    _ => vec![],
                };
                self.on_vmas(at, part, Expected::Done, |address, length| match lock {
                    true => Operation::Mlock {
                        address,
                        length,
                        flags: flags.clone(),
                    },
                    false => Operation::Munlock { address, length },
                });
                let pages = self.units(at, part);
                let cell = &mut self.cells[at];
                // hugetlb pages are brought in, and count as locked nowhere (`mlock_fixup()`).
                let lock = lock && !cell.state.map.is_hugetlb();
                cell.memory.each(view, pages, |page| page.locked = lock);
            }
            Step::Node(part, node) => self.migrate(at, part, node),
            Step::Bind(part, node) => self.on_vmas(at, part, Expected::Done, |address, length| {
                Operation::Mbind {
                    address,
                    length,
                    node,
                }
            }),
            Step::OtherAdvises(part, advice) => self.other_advises(at, part, advice),
            Step::Seal(part) => self.seal(at, part),
            Step::Hwpoison(part) => {
                self.on_vmas(at, part, Expected::Done, |start, length| {
                    advise(start, length, Advice::Hwpoison)
                });
                let pages = self.units(at, part);
                self.cells[at].memory.lose(view, pages);
            }
            Step::Pin(part) => {
                let pages = self.pages(at, part);
                let (address, length) = self.range(at, view, &pages);
                let pin = Operation::GupPin {
                    address,
                    length,
                    read_only: false,
                };
                self.later(at, self.actor(), pin, Expected::Done);
                let cell = &mut self.cells[at];
                cell.pinned = Some(pages.start);
                cell.memory.each(view, pages, |page| page.pinned = true);
            }
            Step::PinToRead(part) => self.pin_for_now(at, part, true, &[])?,
            Step::Pinned(part, steps) => self.pin_for_now(at, part, false, steps)?,
            Step::Register if self.cells[at].state.map.is_hugetlb() => self.register_hugetlb(at)?,
            Step::Register | Step::RegisterMissing => {
                let (missing, mode) = match step {
                    Step::Register => (false, UffdMode::WriteProtect),
                    _ => (true, UffdMode::Missing),
                };
                self.on_vmas(at, Part::Whole, Expected::Done, |address, length| {
                    Operation::UffdRegister {
                        address,
                        length,
                        modes: vec![mode],
                    }
                });
                let pages = self.units(at, Part::Whole);
                let memory = &mut self.cells[at].memory;
                memory.each(view, pages, |page| {
                    (page.registered, page.asks) = (true, missing);
                });
            }
            Step::WriteProtect(part, _) | Step::ProtectEmpty(part) => {
                let on = !matches!(step, Step::WriteProtect(_, false));
                self.on_vmas(at, part, Expected::Done, |address, length| {
                    Operation::UffdWriteprotect {
                        address,
                        length,
                        on,
                    }
                });
                let pages = self.units(at, part);
                let memory = &mut self.cells[at].memory;
                memory.each(view, pages, |page| page.write_protected = on);
            }
            Step::Poison(part) => {
                self.on_vmas(at, part, Expected::Done, |address, length| {
                    Operation::UffdPoison { address, length }
                });
                let pages = self.units(at, part);
                let memory = &mut self.cells[at].memory;
                memory.each(view, pages, |page| page.poison = true);
            }
            Step::Watch(part) => self.watch(at, part)?,
            Step::Written(part) => self.written(at, part)?,
            Step::UffdFill(part) => self.uffd_fill(at, part)?,
            Step::UffdZero(part) => self.uffd_zero(at, part)?,
            Step::UffdContinue(part) => self.uffd_continue(at, part)?,
            Step::UffdMove => self.uffd_move(at)?,
            Step::UffdRelocate => self.uffd_relocate(at)?,
            Step::ForkAndExit | Step::ForkAndWrite(_) => {
                self.cells[at].memory.forked = true;
                self.flush()?;
                let child = self.stage.fork(self.actor())?;
                let mut outcome = Ok(());
                if let (Step::ForkAndWrite(part), None) = (step, &self.cells[at].refused) {
                    outcome = self.child_writes(at, child, part);
                }
                self.stage.ends(child)?;
                outcome?;
            }
            Step::ForkAndLoad => self.child_loads(at)?,
            Step::WriteFile(part) => {
                let pages = self.units(at, part);
                let pages = pages.start..pages.end.min(self.cells[at].memory.file.len());
                let page = self.cells[at].memory.page;
                let write = Operation::FileWrite {
                    path: self.path(at),
                    offset: pages.start as u64 * page,
                    length: pages.len() as u64 * page,
                    salt: self.salt + 2,
                    chunk: None,
                };
                self.later(at, self.actor(), write, Expected::Done);
                self.cells[at].memory.write_file(pages, self.salt + 2);
            }
            Step::Sync | Step::Evict => {
                let path = self.path(at);
                let evict = step == Step::Evict;
                let sync = Operation::FileSync { path, evict };
                self.later(at, self.actor(), sync, Expected::Done);
            }
            Step::Punch(part) => {
                let pages = self.units(at, part);
                self.allocate(at, pages.start * WORDS..pages.end * WORDS, 0, true)
            }
            Step::PunchBytes => {
                let words = 3 * WORDS + 3..(self.here.block + 3) * WORDS + 5;
                // It begins behind the word before.
                let distance = self.cells[at].memory.distance();
                self.allocate(at, words, distance - WORD, true)
            }
            Step::Allocate(part) => {
                let pages = self.units(at, part);
                self.allocate(at, pages.start * WORDS..pages.end * WORDS, 0, false)
            }
            Step::TruncateAndExtend => self.truncate(at, 5 * WORDS),
            Step::TruncateBytes => self.truncate(at, 5 * WORDS + 3),
            Step::Shrink => self.shrink(at),
            Step::Grow => self.grow(at),
            Step::Split => {
                let process = self.actor();
                self.flush()?;
                for run in self.by_vma(at, Part::Whole) {
                    let (start, length) = self.range(at, view, &run);
                    self.stage.split(process, start, length)?;
                }
            }
            Step::All(_) => unreachable!("a step of all areas is played once"),
        }
        Ok(())
    }
}
