// SPDX-License-Identifier: GPL-2.0-only
//! The stage of a workload of the tour: it names processes and areas, and states what must be folded.

use analysis::Look;
use evidence::Extent;
use linux::release::Release;
use protocol::{Command, MthpSize, Outcome, ProcessId, ProgramEnd};
use serde::Serialize;
use verdict::{Expectation, NotJudged};

use crate::guest::{unexpected, Guest};
use crate::look::look;
use crate::Error;

mod contents;
mod expected;
mod failing;
mod knobs;
mod processes;
mod spoil;
mod spoiled;
mod threads;

pub use failing::{allow_allocations, fail_allocations};
pub use spoil::Spoil;
pub use threads::Merged;

/// Directory of the kernel's switches of folio sizes.
pub(crate) const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Result of a workload, or the error by which the guest is lost.
pub type StageResult = Result<(), Error>;

/// An area of a process, in the order in which the workload mapped them.
#[derive(Clone, Copy, Debug, Serialize, schemars::JsonSchema)]
pub struct Area {
    /// Its first byte.
    pub address: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// The result of one checkpoint.
#[derive(Debug)]
pub struct Seen {
    /// The workload's name for it.
    pub label: String,
    /// The areas of the process so far.
    pub areas: Vec<Area>,
    /// Its expectations.
    pub expectations: Vec<Expectation>,
    /// The process, read and judged.
    pub look: Look,
}

/// The stage of one workload.
#[derive(Debug)]
pub struct Stage<'g> {
    guest: &'g mut Guest,
    policy: String,
    page: u64,
    block: u64,
    pmd: u64,
    processes: Vec<(ProcessId, Vec<Area>)>,
    /// The kernel's number of each process that there was.
    pids: Vec<(ProcessId, i32)>,
    expected: Vec<(ProcessId, Expectation)>,
    seen: Vec<Seen>,
    /// Each checkpoint's process, and its index in `seen`.
    last: Vec<(ProcessId, usize)>,
    undo: Vec<knobs::Undo>,
    left_out: Option<String>,
    /// The kernel's count of failed large folios at the last check.
    fallbacks: u64,
    /// True if allocations fail because the workload requested it.
    injected: bool,
    /// The error to make at one checkpoint, to test whether a rule names it.
    spoil: Option<Spoil>,
    /// True if allocations have failed by themselves: then it is unknown what must be folded.
    short: bool,
}

/// Result of one workload.
#[derive(Debug)]
pub struct Played {
    /// Its checkpoints, in order.
    pub seen: Vec<Seen>,
    /// The reason why it was not played, where it was not.
    pub left_out: Option<String>,
    /// The reason why it was not completed; the checkpoints before that count.
    pub failed: Option<Error>,
}

impl From<Error> for Played {
    /// Returns one that never began.
    fn from(error: Error) -> Self {
        Self {
            seen: vec![],
            left_out: None,
            failed: Some(error),
        }
    }
}

impl<'g> Stage<'g> {
    /// Sets the guest's knobs for a workload.
    ///
    /// # Errors
    /// If the guest is lost, or a knob that is there cannot be set.
    pub fn new(guest: &'g mut Guest, policy: &str) -> Result<Self, Error> {
        let page = guest.hello().page_size;
        let mut stage = Self {
            page,
            block: block_size(page),
            pmd: page * (page / 8),
            policy: policy.to_owned(),
            processes: vec![],
            pids: vec![],
            expected: vec![],
            seen: vec![],
            last: vec![],
            undo: vec![],
            left_out: None,
            fallbacks: 0,
            injected: false,
            spoil: None,
            short: false,
            guest,
        };
        stage.fallbacks = stage.count_fallbacks()?;
        if stage.guest.hello().anon_order_policy.is_some() {
            stage.guest.set_policy(policy)?;
        }
        // Its background changes to a workload's pages belong to no step.
        if stage.collapses_blocks()? {
            stage.rest_khugepaged()?;
        }
        // If none of our policies decides, the sizes in sysfs do.
        if let Some(size) = stage.size().cloned() {
            let directory = format!("{THP}/hugepages-{}kB", size.size_kib);
            for (knob, there) in [
                ("enabled", &size.enabled),
                ("shmem_enabled", &size.shmem_enabled),
            ] {
                if there.is_some() {
                    stage
                        .guest
                        .write_file(&format!("{directory}/{knob}"), "always", None)?;
                }
            }
        }
        Ok(stage)
    }

    /// Plays a workload, and ends its processes whatever the result.
    pub fn play(mut self, run: fn(&mut Stage<'_>) -> StageResult) -> Played {
        let outcome = run(&mut self);
        self.end_with(outcome)
    }

    /// Ends the workload's processes, and undoes what it set.
    pub fn end_with(mut self, mut outcome: StageResult) -> Played {
        if !outcome.as_ref().is_err_and(Error::lost) {
            let ended = self.end();
            outcome = outcome.and(ended);
        }
        Played {
            seen: self.seen,
            left_out: self.left_out,
            failed: outcome.err(),
        }
    }

    /// Runs a program of the guest to its end, with the knobs set as for a workload.
    ///
    /// # Errors
    /// If it cannot be started or takes longer than a command may, and where the guest is lost.
    pub fn run_program(mut self, argv: &[String]) -> Result<ProgramEnd, Error> {
        let command = Command::Run {
            argv: argv.to_vec(),
            input: None,
            process: None,
        };
        let ended = match self.guest.command(command, self.guest.deadline())? {
            Outcome::Program(ended) => ended,
            other => return Err(unexpected("run", &other)),
        };
        self.undo_all()?;
        Ok(ended)
    }

    fn end(&mut self) -> StageResult {
        for (process, _) in std::mem::take(&mut self.processes) {
            self.guest
                .command(Command::Kill { process }, self.guest.deadline())?;
        }
        self.undo_all()
    }

    /// Spoils one entry, or one page, at one checkpoint.
    #[must_use]
    pub fn spoiling(mut self, spoil: Option<Spoil>) -> Self {
        self.spoil = spoil;
        self
    }

    /// Returns the bytes per page.
    pub fn page(&self) -> u64 {
        self.page
    }

    /// Returns the bytes per level-3 contiguous group.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Returns the order of a folio that fills a block.
    pub fn block_order(&self) -> u32 {
        (self.block / self.page).trailing_zeros()
    }

    /// Returns the bytes that a level-2 descriptor maps.
    pub fn pmd(&self) -> u64 {
        self.pmd
    }

    /// Returns whether the kernel's release is known and at least this one, for behaviour that Linux changed there.
    pub fn since(&self, release: Release) -> bool {
        Release::parse(&self.guest.hello().kernel_release).is_some_and(|found| found >= release)
    }

    /// Returns the mTHP size of a block, as the kernel lists it.
    fn size(&self) -> Option<&MthpSize> {
        self.guest
            .hello()
            .mthp
            .iter()
            .find(|size| size.size_kib * 1024 == self.block)
    }

    /// Returns whether the kernel may set the contiguous bit by itself: one without `CONFIG_ARM64_CONTPTE` never does,
    /// except for hugetlb.
    pub fn folds(&self) -> bool {
        self.guest.contpte() != Some(false)
    }

    /// Returns whether an anonymous fault in a hinted area gives a whole block under the policy of this play.
    pub fn fills_blocks(&self) -> bool {
        match self.policy.as_str() {
            "baseline" => false,
            "sysfs" => self.size().is_some_and(|size| size.enabled.is_some()),
            _ => true,
        }
    }

    /// Returns whether shmem has folios of a block's size.
    pub fn shmem_blocks(&self) -> bool {
        self.size().is_some_and(|size| size.shmem_enabled.is_some())
    }

    /// Returns whether the kernel has transparent huge pages at all.
    pub fn has_huge_pages(&self) -> bool {
        self.guest.hello().thp_enabled.is_some()
    }

    /// Returns whether PMD-sized huge pages are given to hinted areas.
    pub fn pmd_pages(&self) -> bool {
        matches!(
            self.guest.hello().thp_enabled.as_deref(),
            Some("always" | "madvise")
        )
    }

    /// Returns whether allocations can be made to fail.
    pub fn can_fail_allocations(&mut self) -> bool {
        self.guest
            .read_file(&format!("{}/min-order", failing::FAIL))
            .is_ok_and(|found| found.is_some())
    }

    fn areas(&self, process: ProcessId) -> &[Area] {
        self.processes
            .iter()
            .find(|(id, _)| *id == process)
            .map_or(&[], |(_, areas)| areas)
    }

    /// Reads and judges a process, with the expectations since its last checkpoint.
    ///
    /// # Errors
    /// If the process does not reach the checkpoint cleanly.
    pub fn check(&mut self, process: ProcessId, label: &str) -> StageResult {
        let (mine, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.expected)
            .into_iter()
            .partition(|(id, _)| *id == process);
        self.expected = others;
        let expectations: Vec<Expectation> = mine
            .into_iter()
            .map(|(_, expectation)| expectation)
            .collect();
        let fallbacks = self.count_fallbacks()?;
        self.short |= fallbacks > self.fallbacks && !self.injected;
        (self.fallbacks, self.injected) = (fallbacks, false);
        let expectations = if self.short { Vec::new() } else { expectations };
        let mut look = match self.spoil.clone() {
            Some(spoil) if spoil.label == label => self.spoiled(process, &expectations, &spoil)?,
            _ => look(self.guest, process, &expectations, Extent::GETTERS)?,
        };
        if self.short {
            let reason =
                "the guest was short of large folios, so what had to be folded is not known; \
                          give it more memory with --memory or MEM="
                    .to_owned();
            if let Some(verdict) = look.judged.processes.first_mut() {
                verdict.not_judged.push(NotJudged { reason });
            }
        }
        let areas = self.areas(process).to_vec();
        self.last.push((process, self.seen.len()));
        self.seen.push(Seen {
            label: label.into(),
            areas,
            expectations,
            look,
        });
        Ok(())
    }

    /// Returns the look of the last checkpoint.
    pub fn last_look(&self) -> Option<&Look> {
        self.seen.last().map(|seen| &seen.look)
    }

    /// Records the reason why this workload is not played here.
    ///
    /// # Errors
    /// None.
    pub fn leave_out(&mut self, why: &str) -> StageResult {
        self.left_out = Some(why.into());
        Ok(())
    }
}

/// Returns the bytes per level-3 contiguous group, by the bytes of a page: `CONT_PTE_SIZE` of asm/pgtable-hwdef.h.
#[must_use]
pub fn block_size(page: u64) -> u64 {
    page * match page {
        4096 => 16,
        16384 => 128,
        _ => 32,
    }
}
