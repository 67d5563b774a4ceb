//! Where a workload of the tour is played: it names processes and areas, and says what must be folded.

use join::Look;
use protocol::{Command, MthpSize, Operation, Outcome, ProcessId};
use serde::Serialize;
use verdict::{Expectation, Expected, NotJudged};

use crate::guest::{unexpected, Guest, DEADLINE};
use crate::look::look;
use crate::Error;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const FAIL: &str = "/sys/kernel/debug/fail_page_alloc";

/// How a workload ends, unless the guest is lost.
pub type StageResult = Result<(), Error>;

/// An area of a process, in the order in which the workload mapped them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Area {
    /// Its first byte.
    pub address: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// What was seen at one checkpoint.
#[derive(Debug)]
pub struct Seen {
    /// The workload's name for it.
    pub label: String,
    /// The areas of the process so far.
    pub areas: Vec<Area>,
    /// What was expected of it.
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
    expected: Vec<(ProcessId, Expectation)>,
    seen: Vec<Seen>,
    left_out: Option<String>,
    /// Large folios that could not be had, as the kernel counted them when this was last looked at.
    fallbacks: u64,
    /// Whether allocations fail because the workload wants it so.
    injected: bool,
    /// Whether they have failed by themselves: then nothing is known of what must be folded.
    short: bool,
}

/// What became of one workload.
#[derive(Debug)]
pub struct Played {
    /// Its checkpoints, in order.
    pub seen: Vec<Seen>,
    /// Why it was not played, where it was not.
    pub left_out: Option<String>,
}

impl<'g> Stage<'g> {
    /// Sets the guest's knobs for a workload.
    ///
    /// # Errors
    /// Where the guest is lost, or a knob that is there cannot be set.
    pub fn new(guest: &'g mut Guest, policy: &str) -> Result<Self, Error> {
        let page = guest.hello().page_size;
        let mut stage = Self {
            page,
            block: block_size(page),
            pmd: page * (page / 8),
            policy: policy.to_owned(),
            processes: vec![],
            expected: vec![],
            seen: vec![],
            left_out: None,
            fallbacks: 0,
            injected: false,
            short: false,
            guest,
        };
        stage.fallbacks = stage.count_fallbacks()?;
        if stage.guest.hello().anon_order_policy.is_some() {
            stage.guest.set_policy(policy)?;
        }
        // Where no policy of ours decides, the sizes in sysfs do.
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

    /// Plays a workload, and ends its processes whatever became of it.
    ///
    /// # Errors
    /// Where the guest could not do it.
    pub fn play(mut self, run: fn(&mut Stage<'_>) -> StageResult) -> Result<Played, Error> {
        let outcome = run(&mut self);
        if outcome.as_ref().is_err_and(Error::lost) {
            return Err(outcome.unwrap_err());
        }
        for (process, _) in std::mem::take(&mut self.processes) {
            self.guest.command(Command::Kill { process }, DEADLINE)?;
        }
        outcome.map(|()| Played {
            seen: self.seen,
            left_out: self.left_out,
        })
    }

    /// Bytes per page.
    pub fn page(&self) -> u64 {
        self.page
    }

    /// Bytes per level-3 contiguous group.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// The order of a folio that fills a block.
    pub fn block_order(&self) -> u32 {
        (self.block / self.page).trailing_zeros()
    }

    /// Bytes that a level-2 descriptor maps.
    pub fn pmd(&self) -> u64 {
        self.pmd
    }

    /// The mTHP size of a block, as the kernel lists it.
    fn size(&self) -> Option<&MthpSize> {
        self.guest
            .hello()
            .mthp
            .iter()
            .find(|size| size.size_kib * 1024 == self.block)
    }

    /// Whether an anonymous fault in a hinted area gives a whole block here.
    fn fills_blocks(&self) -> bool {
        match self.policy.as_str() {
            "baseline" => false,
            "sysfs" => self.size().is_some_and(|size| size.enabled.is_some()),
            _ => true,
        }
    }

    /// Whether shmem has folios of a block's size.
    pub fn shmem_blocks(&self) -> bool {
        self.size().is_some_and(|size| size.shmem_enabled.is_some())
    }

    /// Whether PMD-sized huge pages are given to hinted areas.
    pub fn pmd_pages(&self) -> bool {
        matches!(
            self.guest.hello().thp_enabled.as_deref(),
            Some("always" | "madvise")
        )
    }

    /// Whether allocations can be made to fail.
    pub fn can_fail_allocations(&mut self) -> bool {
        self.guest
            .read_file(&format!("{FAIL}/min-order"))
            .is_ok_and(|found| found.is_some())
    }

    /// A process of this workload.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn spawn(&mut self) -> Result<ProcessId, Error> {
        let process = self.guest.spawn("tour")?.process;
        self.processes.push((process, vec![]));
        Ok(process)
    }

    /// A child of `parent`, which has its areas.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn fork(&mut self, parent: ProcessId) -> Result<ProcessId, Error> {
        match self.op(
            parent,
            Operation::Fork {
                name: "child".into(),
            },
        )? {
            Outcome::Spawned(spawned) => {
                let areas = self.areas(parent).to_vec();
                self.processes.push((spawned.process, areas));
                Ok(spawned.process)
            }
            other => Err(unexpected("fork", &other)),
        }
    }

    /// An area, by one of the operations that map.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn map(&mut self, process: ProcessId, op: Operation) -> Result<u64, Error> {
        match self.op(process, op)? {
            Outcome::Mapped { address, length } => {
                if let Some((_, areas)) = self.processes.iter_mut().find(|(id, _)| *id == process) {
                    areas.push(Area { address, length });
                }
                Ok(address)
            }
            other => Err(unexpected("mmap", &other)),
        }
    }

    /// An operation in a process.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn op(&mut self, process: ProcessId, op: Operation) -> Result<Outcome, Error> {
        self.guest.op(process, op)
    }

    fn areas(&self, process: ProcessId) -> &[Area] {
        self.processes
            .iter()
            .find(|(id, _)| *id == process)
            .map_or(&[], |(_, areas)| areas)
    }

    /// Every block of the range must be contiguous at the next checkpoint, under any policy.
    pub fn folded(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Contiguous);
    }

    /// The same for what an anonymous fault filled: under a policy that fills blocks the bit must be there, else
    /// it must not.
    pub fn anon_folded(&mut self, process: ProcessId, start: u64, length: u64) {
        let what = if self.fills_blocks() {
            Expected::Contiguous
        } else {
            Expected::NotContiguous
        };
        self.expect(process, start, length, what);
    }

    /// No entry of the range may carry the bit at the next checkpoint.
    pub fn not_folded(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::NotContiguous);
    }

    /// The range was just faulted in, and nothing has changed it since.
    pub fn fresh(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::FreshlyFaulted);
    }

    /// Every page of the range was written by this process, and not cleaned since.
    pub fn written(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Written);
    }

    /// No page of the range was ever written.
    pub fn not_written(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::NotWritten);
    }

    fn expect(&mut self, process: ProcessId, start: u64, length: u64, what: Expected) {
        self.expected.push((
            process,
            Expectation {
                start,
                end: start + length,
                what,
            },
        ));
    }

    /// Reads and judges a process, with what was expected of it since its last checkpoint.
    ///
    /// # Errors
    /// Where the state cannot be had cleanly.
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
        let mut look = look(self.guest, process, &expectations)?;
        if self.short {
            let reason =
                "the guest was short of large folios, so what had to be folded is not known; \
                          give it more memory with --memory or MEM="
                    .to_owned();
            look.verdict.not_judged.push(NotJudged { reason });
        }
        let areas = self.areas(process).to_vec();
        self.seen.push(Seen {
            label: label.into(),
            areas,
            expectations,
            look,
        });
        Ok(())
    }

    /// How often a fault wanted a folio of a block's or a PMD's size and could not have it.
    fn count_fallbacks(&mut self) -> Result<u64, Error> {
        let mut count = 0;
        for size in [self.block, self.pmd] {
            for counter in ["anon_fault_fallback", "shmem_fallback"] {
                let path = format!("{THP}/hugepages-{}kB/stats/{counter}", size / 1024);
                let text = self.guest.read_file(&path)?;
                count += text
                    .and_then(|text| text.trim().parse::<u64>().ok())
                    .unwrap_or(0);
            }
        }
        Ok(count)
    }

    /// Says why this workload is not played here.
    ///
    /// # Errors
    /// None.
    pub fn leave_out(&mut self, why: &str) -> StageResult {
        self.left_out = Some(why.into());
        Ok(())
    }

    /// Lets every page allocation of the process of at least `order` fail.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn fail_allocations(&mut self, process: ProcessId, order: u32) -> StageResult {
        self.injected = true;
        fail_allocations(self.guest, process, order)
    }

    /// Lets its allocations succeed again.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn allow_allocations(&mut self, process: ProcessId) -> StageResult {
        allow_allocations(self.guest, process)
    }
}

/// Bytes per level-3 contiguous group, by the bytes of a page: `CONT_PTE_SIZE` of asm/pgtable-hwdef.h.
#[must_use]
pub fn block_size(page: u64) -> u64 {
    page * match page {
        4096 => 16,
        16384 => 128,
        _ => 32,
    }
}

/// Lets every page allocation of `process` of at least `order` fail (`mm/fail_page_alloc.c`).
///
/// # Errors
/// As all that asks the guest.
pub fn fail_allocations(guest: &mut Guest, process: ProcessId, order: u32) -> StageResult {
    let order = order.to_string();
    // Anonymous memory is asked for with __GFP_HIGHMEM and, where it may wait, __GFP_DIRECT_RECLAIM: by default
    // both are spared.
    let knobs = [
        ("task-filter", "Y"),
        ("ignore-gfp-wait", "N"),
        ("ignore-gfp-highmem", "N"),
        ("min-order", &order),
        ("interval", "1"),
        ("space", "0"),
        ("verbose", "0"),
        ("times", "-1"),
        ("probability", "100"),
    ];
    for (knob, text) in knobs {
        guest.write_file(&format!("{FAIL}/{knob}"), text, None)?;
    }
    guest.write_file("/proc/{pid}/make-it-fail", "1", Some(process))
}

/// Lets its allocations succeed again.
///
/// # Errors
/// As all that asks the guest.
pub fn allow_allocations(guest: &mut Guest, process: ProcessId) -> StageResult {
    guest.write_file(&format!("{FAIL}/probability"), "0", None)?;
    guest.write_file("/proc/{pid}/make-it-fail", "0", Some(process))
}
