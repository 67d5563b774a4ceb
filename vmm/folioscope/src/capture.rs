//! One instant of a guest, copied: registers, the tables of one process, the order records.
//!
//! The guest stands still only while this copies; whatever is asked of the instant afterwards is
//! asked of the copy, live or reloaded from a file.

use std::time::Duration;

use linux::order::{OrderError, OrderRecords, RingAddresses};
use linux::release::Release;
use linux::symbols::Symbols;
use serde::{Deserialize, Serialize};
use snapshot::{Cpu, Memory, Notes, Process, RangeSet, Recording, Region, Snapshot};
use stage1::{Half, PhysMemory, Regime, VirtualAddress, Visitor};

use verdict::{judge_kernel, KernelLayout, KernelVerdict};

use crate::source::foreign;
use crate::Error;

/// What was taken, and how long the guest stood still for it.
#[derive(Debug)]
pub struct Capture {
    /// The copy.
    pub snapshot: Snapshot,
    /// Other processes whose tables are in the copy as well.
    pub companions: Vec<Companion>,
    /// From the first CPU stopped to the last one running again.
    pub stopped: Duration,
}

/// A process that did nothing while another was captured, and whose tables were captured with it.
#[derive(Clone, Debug)]
pub struct Companion {
    /// Its pid.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its `smaps` at that time.
    pub maps: String,
    /// A CPU as it was when it ran the process in user mode.
    pub cpu: Cpu,
}

/// How much of the guest a capture holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// The kernel half's tables as well.
    pub kernel: bool,
}

struct Nothing;
impl Visitor<'_> for Nothing {}

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
            let _ = rodata_full(&recording, &upper, facts);
        }
        if let Some(rings) = facts.rings() {
            let _ = touch_orders(&recording, &upper, rings, cpus.len());
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

fn walk_lower<M: PhysMemory + ?Sized>(memory: &M, cpu: &Cpu) {
    if let Ok(regime) = Regime::new(&cpu.system, Half::Lower) {
        walk_all(memory, &regime);
    }
}

fn walk_all<M: PhysMemory + ?Sized>(memory: &M, regime: &Regime) {
    stage1::walk(memory, regime, regime.first, regime.last, &mut Nothing);
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

/// The upper half as the kernel itself sees it.
///
/// A CPU at EL0 may have KPTI's trampoline in TTBR1_EL1, so a CPU at EL1 is preferred; where all
/// are at EL0, one whose VBAR_EL1 leads to mapped memory outside the fixmap serves as well, since the
/// trampoline's vectors are at the top of the half (`TRAMP_VALIAS`, asm/fixmap.h) and the kernel's are not.
#[must_use]
pub fn kernel_half(cpus: &[Cpu]) -> Option<Regime> {
    /// The fixmap lies within the last GiB of the half.
    const FIXMAP: u64 = !0 << 30;
    let in_kernel = cpus.iter().filter(|cpu| cpu.el() == 1);
    let by_vectors = cpus
        .iter()
        .filter(|cpu| cpu.el() == 0 && cpu.system.vbar_el1.is_some_and(|vbar| vbar < FIXMAP));
    in_kernel
        .chain(by_vectors)
        .find_map(|cpu| Regime::new(&cpu.system, Half::Upper).ok())
}

/// What of the kernel's symbols a snapshot keeps, so that it can be judged without the vmlinux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// `anon_order_rings`, as it runs.
    pub order_rings: Option<u64>,
    /// `__per_cpu_offset`, as it runs.
    pub per_cpu_offset: Option<u64>,
    /// Whether the kernel folds at all (`CONFIG_ARM64_CONTPTE`).
    pub contpte: Option<bool>,
    /// `_text` to `_end`, as they run.
    pub image: Option<(u64, u64)>,
    /// The variable `rodata_full` (arch/arm64/mm/pageattr.c), as it runs.
    pub rodata_full: Option<u64>,
    /// Whether the kernel has nothing else that may keep the linear map in pages: the other terms of
    /// `can_set_direct_map()`.
    #[serde(default)]
    pub rodata_alone: bool,
}

/// The notes' key of [`Facts`].
const FACTS: &str = "kernel_facts";

impl Facts {
    /// From the symbols, moved by the slide that a CPU's VBAR_EL1 shows.
    #[must_use]
    pub fn new(symbols: Option<&Symbols>, cpus: &[Cpu]) -> Self {
        let Some(symbols) = symbols else {
            return Self::default();
        };
        let slide = cpus
            .iter()
            .find_map(|cpu| symbols.slide(cpu.system.vbar_el1?));
        let runs = |name| Some(symbols.address(name)?.wrapping_add(slide?));
        Self {
            order_rings: runs("anon_order_rings"),
            per_cpu_offset: runs("__per_cpu_offset"),
            contpte: Some(symbols.has_contpte()),
            image: runs("_text").zip(runs("_end")),
            rodata_full: runs("rodata_full"),
            rodata_alone: ["_debug_pagealloc_enabled", "__kfence_pool", "rsi_present"]
                .iter()
                .all(|name| symbols.address(name).is_none()),
        }
    }

    /// As a snapshot keeps them; nothing is known where it keeps none.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        snapshot
            .notes
            .extra
            .get(FACTS)
            .and_then(|facts| serde_json::from_value(facts.clone()).ok())
            .unwrap_or_default()
    }

    /// Keeps them.
    pub fn keep(self, notes: &mut Notes) {
        notes
            .extra
            .insert(FACTS.into(), serde_json::to_value(self).unwrap_or_default());
    }

    fn rings(self) -> Option<RingAddresses> {
        Some(RingAddresses {
            rings: self.order_rings?,
            per_cpu_offset: self.per_cpu_offset?,
        })
    }
}

/// Whether the linear map must stay changeable page by page (`can_set_direct_map()`); `None` where that
/// cannot be told.
fn rodata_full<M: PhysMemory + ?Sized>(memory: &M, upper: &Regime, facts: Facts) -> Option<bool> {
    let mut byte = [0];
    linux::kernel_memory::read(memory, upper, facts.rodata_full?, &mut byte).ok()?;
    (byte == [1] || facts.rodata_alone).then_some(byte == [1])
}

/// Judges the kernel half of a snapshot.
///
/// # Errors
/// Where no CPU shows it.
pub fn judge_kernel_half(snapshot: &Snapshot) -> Result<KernelVerdict, Error> {
    let upper = kernel_half(&snapshot.cpus).ok_or_else(|| Error::Input("the kernel half was not judged: every CPU was at EL0, with what may be KPTI's trampoline in TTBR1_EL1".into()))?;
    let facts = Facts::of(snapshot);
    let release = Release::parse(&snapshot.notes.kernel_release);
    let image = facts.image.map(|(start, end)| start..end);
    let layout = KernelLayout::new(
        &upper,
        release,
        image,
        rodata_full(&snapshot.memory, &upper, facts),
    );
    Ok(judge_kernel(&snapshot.memory, &upper, layout.as_ref()))
}

/// Reads what [`read_orders`] will read of the copy.
fn touch_orders<M: PhysMemory + ?Sized>(
    memory: &M,
    upper: &Regime,
    rings: RingAddresses,
    cpus: usize,
) -> Result<(), OrderError> {
    let mut read =
        |va: u64, buffer: &mut [u8]| linux::kernel_memory::read(memory, upper, va, buffer);
    OrderRecords::touch(&mut read, rings, u32::try_from(cpus).unwrap_or(u32::MAX))
}

/// Reads the order rings of a snapshot.
///
/// # Errors
/// Where they are not as the patch writes them.
pub fn read_orders<M: PhysMemory + ?Sized>(
    memory: &M,
    upper: &Regime,
    rings: RingAddresses,
    cpus: usize,
) -> Result<OrderRecords, OrderError> {
    let mut read =
        |va: u64, buffer: &mut [u8]| linux::kernel_memory::read(memory, upper, va, buffer);
    OrderRecords::read(&mut read, rings, u32::try_from(cpus).unwrap_or(u32::MAX))
}

/// Everything that the judge needs of one process in a snapshot.
#[derive(Debug)]
pub struct Subject<'s> {
    /// The snapshot's own entry for it.
    pub process: &'s Process,
    /// The lower half, from the CPU that the checkpoint proves to run it.
    pub regime: Regime,
    /// Its VMAs.
    pub vmas: Vec<linux::vma::Vma>,
    /// The order records, or why there are none.
    pub orders: Result<OrderRecords, String>,
    /// Whether the kernel is known to keep order records.
    pub has_records: bool,
    /// Whether the kernel folds at all, where that is known.
    pub contpte: Option<bool>,
    /// The kernel's release.
    pub release: Option<Release>,
}

impl<'s> Subject<'s> {
    /// Finds a process in a snapshot: by pid, or the only one.
    ///
    /// # Errors
    /// Where there is none such, or no CPU is proved to run it.
    pub fn find(snapshot: &'s Snapshot, pid: Option<u32>) -> Result<Self, Error> {
        let listed = || {
            snapshot
                .notes
                .processes
                .iter()
                .map(|process| format!("{} ({})", process.pid, process.name))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let process = match (pid, snapshot.notes.processes.as_slice()) {
            (None, [only]) => only,
            (None, []) => {
                return Err(Error::Input(
                    "the snapshot holds no process; take it at a checkpoint".into(),
                ))
            }
            (None, _) => {
                return Err(Error::Input(format!(
                    "the snapshot holds several processes ({}); choose one with --pid",
                    listed()
                )))
            }
            (Some(pid), all) => all
                .iter()
                .find(|process| process.pid == pid)
                .ok_or_else(|| {
                    Error::Input(format!(
                        "the snapshot holds no process {pid}; it has {}",
                        listed()
                    ))
                })?,
        };
        Self::of(snapshot, process)
    }

    /// The same for one of the snapshot's processes.
    ///
    /// # Errors
    /// Where no CPU is proved to run it.
    pub fn of(snapshot: &'s Snapshot, process: &'s Process) -> Result<Self, Error> {
        let cpu = snapshot
            .root_of(process)
            .or_else(|| foreign::root_of(snapshot, process));
        let cpu = cpu.ok_or_else(|| {
            Error::Input(format!(
                "no CPU is proved to run process {} (EL0, inside the wait loop, with the nonce), so its tables are not judged; save the snapshot at a checkpoint",
                process.pid
            ))
        })?;
        let mut regime = Regime::new(&cpu.system, Half::Lower)?;
        // Any CPU may have run the process: what one of them updates by itself, no entry can be blamed for.
        for other in &snapshot.cpus {
            if let Ok(other) = Regime::new(&other.system, Half::Lower) {
                regime.ha |= other.ha;
                regime.hd |= other.hd;
            }
        }
        let vmas = parse_vmas(&process.maps)?;
        let facts = Facts::of(snapshot);
        let orders = match (facts.rings(), kernel_half(&snapshot.cpus)) {
            (Some(rings), Some(upper)) => read_orders(&snapshot.memory, &upper, rings, snapshot.cpus.len()).map_err(|error| error.to_string()),
            (None, _) => Err("the kernel's symbols hold no order record (an unpatched kernel, or no vmlinux)".into()),
            (_, None) => Err("no CPU was in the kernel when the snapshot was taken, and TTBR1_EL1 may be the trampoline's".into()),
        };
        Ok(Self {
            process,
            regime,
            vmas,
            orders,
            has_records: facts.order_rings.is_some(),
            contpte: facts.contpte,
            release: Release::parse(&snapshot.notes.kernel_release),
        })
    }

    /// The lowest and highest VA of the process's half.
    #[must_use]
    pub fn bounds(&self) -> (VirtualAddress, VirtualAddress) {
        (self.regime.first, self.regime.last)
    }
}

/// VMAs from either file: `smaps` has a `VmFlags:` line in each block; `maps` has none.
///
/// # Errors
/// Where a line is not the kernel's.
pub fn parse_vmas(text: &str) -> Result<Vec<linux::vma::Vma>, Error> {
    let parse = if text.contains("\nVmFlags:") {
        linux::vma::parse_smaps
    } else {
        linux::vma::parse_maps
    };
    Ok(parse(text)?)
}
