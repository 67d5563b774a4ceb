// SPDX-License-Identifier: GPL-2.0-only
//! One instant of a guest, copied: registers, the tables of one process, the order records.
//!
//! The guest stands still only while this copies; whatever is asked of the instant afterwards is
//! asked of the copy, live or reloaded from a file.

use std::time::Duration;

use linux::expectation::{Expectation, Expected};
use linux::structures::NotKnown;
use snapshot::{Cpu, Memory, RangeSet, Recording, Region, Snapshot};
use stage1::{Half, PhysMemory, Regime};
use untrusted::Text;

use crate::contents::read_clean;
use crate::cpus::kernel_half;
use crate::inside::Inside;
use crate::order_records::touch_orders;
use crate::page_reader::folios;
use crate::tables::walk_all;
use crate::{Error, Facts, Gathered, Work};

/// A copy of one instant, and how long the guest was stopped for it.
#[derive(Debug)]
pub struct Capture {
    /// The copy.
    pub snapshot: Snapshot,
    /// Other processes whose tables are in the copy as well.
    pub companions: Vec<Companion>,
    /// From the first CPU stopped to the last one running again.
    pub stopped: Duration,
    /// How far each CPU was.
    pub work: Work,
    /// How much of the guest it holds.
    pub extent: Extent,
}

/// A process that did nothing while another was captured, and whose tables were captured with it.
#[derive(Clone, Debug)]
pub struct Companion {
    /// Its pid.
    pub pid: u32,
    /// Its name.
    pub name: Text,
    /// Its `smaps` at that time.
    pub maps: String,
    /// A CPU as it was when it ran the process in user mode.
    pub cpu: Cpu,
}

/// The processes and the kernel at the instant of a copy.
#[derive(Clone, Copy, Debug)]
pub struct CaptureRequest<'a> {
    /// The CPU that runs the process.
    pub root: &'a Cpu,
    /// Processes whose tables are wanted as well.
    pub companions: &'a [Companion],
    /// Facts from the kernel's symbols.
    pub facts: Facts,
    /// The layouts of its structures, or the reason that they are not known.
    pub structures: Result<&'a Inside, &'a str>,
}

/// How much of the guest a capture holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// The kernel half's tables as well.
    pub kernel: bool,
    /// Values of the process's procfs files, read inside right before.
    pub getters: bool,
    /// Contents of shmem's folios that are not dirty.
    pub contents: bool,
}

impl Extent {
    /// With the kernel half's tables.
    pub const KERNEL: Self = Self {
        kernel: true,
        getters: false,
        contents: false,
    };
    /// With the values of the process's procfs files.
    pub const GETTERS: Self = Self {
        kernel: false,
        getters: true,
        contents: false,
    };

    /// The same, with what these expectations ask for.
    #[must_use]
    pub fn with(self, expectations: &[Expectation]) -> Self {
        let asked = expectations.iter().any(|it| it.what == Expected::Unheld);
        Self {
            contents: self.contents || asked,
            ..self
        }
    }
}

/// Reads, through `memory`, everything that will be asked of the copy, and says which pages that was.
///
/// Where the kernel half or the records cannot be read, the reason is found again when the copy is
/// judged; here it only ends the reading.
#[must_use]
pub fn pages<M: PhysMemory + ?Sized>(
    memory: &M,
    cpus: &[Cpu],
    root: Option<&Cpu>,
    facts: Facts,
    extent: Extent,
) -> RangeSet {
    let recording = Recording::new(memory);
    if let Some(cpu) = root {
        walk_lower(&recording, cpu);
    }
    if let Some(upper) = kernel_half(cpus) {
        if extent.kernel {
            walk_all(&recording, &upper);
            let _ = facts.stays_in_pages(&recording, &upper);
            let _ = facts.splits_on_demand(&recording, &upper);
        }
        if let Some(rings) = facts.rings() {
            let _ = touch_orders(&recording, &upper, rings, cpus);
        }
    }
    recording.into_ranges()
}

/// The pages of the user tables alone that `cpu` had in TTBR0_EL1.
#[must_use]
pub fn user_pages<M: PhysMemory + ?Sized>(memory: &M, cpu: &Cpu) -> RangeSet {
    let recording = Recording::new(memory);
    walk_lower(&recording, cpu);
    recording.into_ranges()
}

/// Everything that will be asked of a copy with the process at its checkpoint, and with its companions; and what was
/// read of the kernel's structures.
pub fn pages_seen<M: PhysMemory + ?Sized + std::fmt::Debug>(
    memory: &M,
    cpus: &[Cpu],
    seen: &CaptureRequest<'_>,
    extent: Extent,
) -> (RangeSet, Result<Gathered, NotKnown>) {
    let mut all = pages(memory, cpus, None, seen.facts, extent);
    let companions = seen.companions.iter().map(|companion| &companion.cpu);
    let processes = || std::iter::once(seen.root).chain(companions.clone());
    let recording = Recording::new(memory);
    let inside = seen
        .structures
        .map_err(|why| NotKnown::from(why.to_owned()));
    let lower = |cpu: &Cpu| Regime::new(&cpu.system, Half::Lower).ok();
    let halves: Vec<Regime> = processes().filter_map(lower).collect();
    let gathered = inside.and_then(|inside| gather(inside, &recording, cpus, &halves));
    if extent.contents {
        let upper = kernel_half(cpus);
        if let Ok(folios) = folios(&recording, upper.as_ref(), &gathered) {
            read_clean(&recording, &folios, &halves);
        }
    }
    extend(&mut all, &recording.into_ranges());
    // What was gathered has walked the tables of all that it knows.
    let known = |cpu: &&Cpu| {
        let table = Regime::new(&cpu.system, Half::Lower).map(|lower| lower.root.0);
        let gathered = gathered.as_ref().ok();
        table.is_ok_and(|table| gathered.is_some_and(|it| it.space(table).is_some()))
    };
    for cpu in processes().filter(|cpu| !known(cpu)) {
        extend(&mut all, &user_pages(memory, cpu));
    }
    (all, gathered)
}

/// Reads the kernel's structures for the processes with these halves.
///
/// # Errors
/// If they cannot be read.
pub fn gather<M: PhysMemory + ?Sized>(
    inside: &Inside,
    memory: &M,
    cpus: &[Cpu],
    halves: &[Regime],
) -> Result<Gathered, NotKnown> {
    let tables: Vec<u64> = halves.iter().map(|half| half.root.0).collect();
    let lower = halves.first().ok_or("no process showed its tables")?;
    Gathered::gather(inside, memory, cpus, (lower, &tables))
}

/// The tables of every CPU, both halves, and the order records.
#[must_use]
pub fn pages_of_all<M: PhysMemory + ?Sized>(memory: &M, cpus: &[Cpu], facts: Facts) -> RangeSet {
    let mut all = RangeSet::new();
    for cpu in cpus {
        // Each CPU's own upper half: which one is the kernel's is not for this to say.
        let (only, extent) = (std::slice::from_ref(cpu), Extent::KERNEL);
        extend(&mut all, &pages(memory, only, Some(cpu), facts, extent));
    }
    // The records of all.
    extend(
        &mut all,
        &pages(memory, cpus, None, facts, Extent::default()),
    );
    all
}

fn extend(all: &mut RangeSet, more: &RangeSet) {
    for range in more.iter() {
        all.insert(range);
    }
}

fn walk_lower<M: PhysMemory + ?Sized>(memory: &M, cpu: &Cpu) {
    if let Ok(regime) = Regime::new(&cpu.system, Half::Lower) {
        walk_all(memory, &regime);
    }
}

/// Copies `pages` of `memory`; the copy knows the machine's RAM as well, so that what was not copied is
/// told from what is not there.
///
/// # Errors
/// Where the pages do not lie in the memory they were read from.
pub fn copy(memory: &Memory, pages: &RangeSet) -> Result<Memory, Error> {
    let mut regions = Vec::with_capacity(pages.len());
    for range in pages.iter() {
        let words = memory
            .words(
                range.base,
                usize::try_from(range.bytes / 8).unwrap_or(usize::MAX),
            )
            .ok_or_else(|| {
                Error::Input(format!(
                    "guest memory {range} was there and is gone; this is a fault of this program"
                ))
            })?;
        regions.push(Region::owned(range.base, words.to_vec()));
    }
    Memory::new(regions, memory.ram().to_vec()).map_err(|error| Error::Input(error.to_string()))
}
