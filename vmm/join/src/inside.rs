//! The kernel's own structures at one instant of a guest, all of whose memory is there: a live one that stands still, or a
//! core of all RAM.

use std::fmt::Debug;

use linux::folio::{Memcg, Page};
use linux::order::OrderRecords;
use linux::release::Release;
use linux::vma::Vma;
use snapshot::{Cpu, Memory, Notes, Ram};
use stage1::{Half, PhysMemory, Regime};
use structures::pages::Pages;
use structures::tasks::{self, Process};
use structures::unlisted::{self, Doing, InKernel};
use structures::vmas::Layout;
use structures::vmcoreinfo::VmCoreInfo;
use structures::{
    cache, counted, memcg, pages, reverse, spaces, Kernel, Lock, StructureError, View,
};
use verdict::listing::{Maps, Task, Tasks, LISTING_VERSION};
use verdict::{judge, Hex, NotKnown, ProcessInput};

use crate::capture::walk_all;
use crate::cgroups;
use crate::gathered::structures;
use crate::kernel::vectors;
use crate::pages::folios;
use crate::{kernel_half, read_orders, Facts, Gathered};

/// Where a kernel's variables are, what its types look like, and its own tables: none of it changes while it runs.
#[derive(Debug)]
pub struct Inside {
    /// Its symbols and types.
    pub kernel: Kernel,
    /// Its half of the address space.
    pub upper: Regime,
    /// What its pages and its address spaces look like.
    pub layouts: Result<(pages::Layout, spaces::Layout), StructureError>,
    /// Where it counts all of its memory.
    pub counted: counted::Layout,
    /// What leads from a folio to those who may map it.
    pub reverse: Result<reverse::Layout, StructureError>,
    /// What the page cache of a file looks like.
    pub caches: Result<cache::Layout, StructureError>,
    /// What leads from a folio to its memory cgroup.
    pub memcg: Result<memcg::Layout, StructureError>,
    /// How to see who makes or ends an address space that no task has.
    pub unlisted: Result<unlisted::Layout, StructureError>,
}

/// A guest that stands still, whole.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// Its CPUs.
    pub cpus: &'a [Cpu],
    /// All of its RAM.
    pub ram: &'a dyn Ram,
    /// What is known of it.
    pub notes: &'a Notes,
    /// What its kernel says of itself ([`VmCoreInfo::text`]), where that is known.
    pub vmcoreinfo: Option<&'a str>,
}

/// Why nothing can be said of the kernel's structures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInside {
    /// It may be said at another instant.
    #[error("every CPU was at EL0 or on its way there, with what may be KPTI's trampoline in TTBR1_EL1 and VBAR_EL1")]
    NotNow,
    /// It may not.
    #[error(transparent)]
    Never(#[from] StructureError),
}

/// Whether a memory holds all RAM of its guest.
#[must_use]
pub fn is_whole(memory: &Memory) -> bool {
    let regions = memory.regions().iter();
    let held: u64 = regions.map(|region| region.range().bytes).sum();
    let ram: u64 = memory.ram().iter().map(|range| range.bytes).sum();
    held == ram
}

/// Whether [`Inside::find`] has what it begins with.
#[must_use]
pub fn shows_kernel(cpus: &[Cpu]) -> bool {
    kernel_half(cpus).is_some() && vectors(cpus).next().is_some()
}

impl Inside {
    /// Finds symbols and types in the kernel's memory.
    ///
    /// # Errors
    /// Where no CPU shows where, or the kernel has none.
    pub fn find<M: PhysMemory + ?Sized>(memory: &M, cpus: &[Cpu]) -> Result<Self, NotInside> {
        let upper = kernel_half(cpus).ok_or(NotInside::NotNow)?;
        let vbar = vectors(cpus).next().ok_or(NotInside::NotNow)?;
        let kernel = Kernel::find(memory, &upper, vbar)?;
        let view = View {
            memory,
            upper: &upper,
        };
        let layouts = pages::Layout::new(&kernel, view)
            .and_then(|pages| Ok((pages, spaces::Layout::new(&kernel, view)?)));
        Ok(Self {
            counted: counted::Layout::new(&kernel, view),
            reverse: reverse::Layout::new(&kernel),
            caches: cache::Layout::new(&kernel),
            memcg: memcg::Layout::new(&kernel),
            unlisted: unlisted::Layout::new(&kernel),
            kernel,
            upper,
            layouts,
        })
    }

    /// The same, to be kept: `None` where another instant may show it, else why it is not known.
    pub fn look<M: PhysMemory + ?Sized>(memory: &M, cpus: &[Cpu]) -> Option<Result<Self, String>> {
        match Self::find(memory, cpus) {
            Err(NotInside::NotNow) => None,
            found => Some(found.map_err(|error| error.to_string())),
        }
    }

    /// The kernel's memory at this instant.
    pub fn view<'v, M: ?Sized>(&'v self, memory: &'v M) -> View<'v, M> {
        let upper = &self.upper;
        View { memory, upper }
    }

    /// The memory cgroup that a page's folio is charged to: none where it is charged to none, or that is not known.
    pub fn memcg<M: PhysMemory + ?Sized>(&self, memory: &M, page: &Page) -> Option<Memcg> {
        let ((layout, _), view) = (self.layouts.as_ref().ok()?, self.view(memory));
        cgroups::of(
            self.memcg.as_ref().ok(),
            view,
            &Pages::new(layout, view),
            page,
        )
    }

    /// What the kernel says of itself for readers of its dumps.
    ///
    /// # Errors
    /// Where it has none.
    pub fn vmcoreinfo<M: PhysMemory + ?Sized>(
        &self,
        memory: &M,
    ) -> Result<VmCoreInfo, StructureError> {
        VmCoreInfo::read(&self.kernel, self.view(memory))
    }

    /// Whether nobody changes any address space, nor makes or ends one, as far as that is known: what is read then has
    /// entries, VMAs and counts that agree.
    pub fn is_quiet<M: PhysMemory + ?Sized>(&self, memory: &M, cpus: &[Cpu]) -> bool {
        let Ok((_, layout)) = &self.layouts else {
            return true;
        };
        let (lower, spaces) = (lower_half(cpus), layout.spaces(self.view(memory), &[]));
        let (Some(lower), Ok(spaces)) = (lower, spaces) else {
            return false;
        };
        let tables: Vec<u64> = spaces.iter().map(|space| space.table).collect();
        match Gathered::gather(self, memory, cpus, (&lower, &tables)) {
            Ok(gathered) => gathered.is_quiet(),
            Err(error) => !error.later,
        }
    }

    /// Which of these processes are in the middle of what no lock tells of, as far as that is known.
    pub(crate) fn unlisted<'p, M: PhysMemory + ?Sized>(
        &self,
        memory: &M,
        cpus: &[Cpu],
        processes: &'p [Process],
    ) -> Vec<(&'p Process, Doing)> {
        let in_kernel = |cpu: &Cpu| {
            let general = &cpu.general;
            let registers = |task| InKernel {
                task,
                fp: general.x[29],
                lr: general.x[30],
                pc: general.pc,
            };
            match cpu.el() {
                0 => Some(None),
                _ => general.sp_el0.map(|task| Some(registers(task))),
            }
        };
        let cpus: Option<Vec<_>> = cpus.iter().map(in_kernel).collect();
        let Some((unlisted, cpus)) = self.unlisted.as_ref().ok().zip(cpus) else {
            return Vec::new();
        };
        let found = unlisted.find(self.view(memory), processes, &cpus);
        found.unwrap_or_default()
    }
}

/// What a kernel's structures say of its tasks, and more of one process.
#[derive(Debug)]
pub struct Seen {
    /// `uname -r`, where the kernel tells.
    pub release: Option<String>,
    /// All tasks.
    pub tasks: Vec<Process>,
    /// The process that was asked for.
    pub space: Option<Space>,
}

/// The address space of a process.
#[derive(Debug)]
pub struct Space {
    /// Whose.
    pub task: Process,
    /// Its VMAs.
    pub vmas: Vec<Vma>,
    /// The lower half with its own first table: no CPU need run it.
    pub regime: Regime,
    /// Who held its `mmap_lock`.
    pub lock: Lock,
    /// What was read of the pages that it maps, and of all address spaces.
    gathered: Result<Gathered, NotKnown>,
    upper: Regime,
    orders: Option<OrderRecords>,
    contpte: Option<bool>,
    release: Option<String>,
}

/// Why something was not seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unseen {
    /// Why.
    pub why: String,
    /// Whether it may be seen at another instant: what was read may just have been changed.
    pub later: bool,
}

impl From<StructureError> for Unseen {
    fn from(error: StructureError) -> Self {
        Self {
            why: error.to_string(),
            later: error.may_pass(),
        }
    }
}

/// Reads the tasks, and what there is of the process with this pid.
///
/// # Errors
/// Where there is no such process, or it has no memory of its own; where the structures are not to be had.
pub fn see<M: PhysMemory + ?Sized>(
    inside: &Inside,
    view: View<'_, M>,
    cpus: &[Cpu],
    pid: Option<u32>,
) -> Result<Seen, Unseen> {
    let kernel = &inside.kernel;
    let tasks = tasks::processes(kernel, view)?;
    let info = VmCoreInfo::read(kernel, view).ok();
    let release = info.and_then(|info| info.value("OSRELEASE").map(str::to_owned));
    let space = pid.map(|pid| space(inside, view, cpus, &tasks, pid));
    let mut space = space.transpose()?;
    if let Some(space) = &mut space {
        space.release.clone_from(&release);
    }
    Ok(Seen {
        release,
        tasks,
        space,
    })
}

fn space<M: PhysMemory + ?Sized>(
    inside: &Inside,
    view: View<'_, M>,
    cpus: &[Cpu],
    tasks: &[Process],
    pid: u32,
) -> Result<Space, Unseen> {
    let kernel = &inside.kernel;
    let never = |why: String| Unseen { why, later: false };
    let task = tasks.iter().find(|task| task.tgid == pid);
    let task = task.ok_or_else(|| {
        let of = tasks.iter().find(|task| task.threads.contains(&pid));
        never(match of {
            Some(task) => format!(
                "{pid} is a thread of process {} ({}); give that",
                task.tgid, task.name
            ),
            None => format!("the guest has no process {pid}; `folioscope ps` lists those it has"),
        })
    })?;
    let (Some(mm), Some(table)) = (task.mm, task.table) else {
        let name = &task.name;
        return Err(never(format!(
            "process {pid} ({name}) has no memory of its own: it is a thread of the kernel, or has ended"
        )));
    };
    let mut regime = lower_half(cpus).ok_or_else(|| Unseen {
        why: NO_LOWER_HALF.into(),
        later: true,
    })?;
    regime.root = table;
    let layout = Layout::new(kernel, view)?;
    let facts = Facts::new(Some(&kernel.symbols), cpus);
    let rings = facts.rings();
    let orders = rings.and_then(|rings| read_orders(view.memory, view.upper, rings, cpus).ok());
    Ok(Space {
        task: task.clone(),
        vmas: layout.vmas(view, mm)?,
        regime,
        lock: layout.lock(view, mm)?,
        gathered: Gathered::gather(inside, view.memory, cpus, (&regime, &[table.0])),
        upper: *view.upper,
        orders,
        contpte: facts.contpte,
        release: None,
    })
}

/// Why no process's table can be walked.
pub(crate) const NO_LOWER_HALF: &str = "no CPU shows how the lower half is translated";

/// How the lower half is translated, whosever it is.
pub(crate) fn lower_half(cpus: &[Cpu]) -> Option<Regime> {
    let regimes = cpus.iter();
    let regimes = regimes.filter_map(|cpu| Regime::new(&cpu.system, Half::Lower).ok());
    let regimes: Vec<Regime> = regimes.filter(|regime| !regime.epd).collect();
    let mut regime = regimes.first().copied()?;
    // Any CPU may run it: what one of them updates by itself, no entry can be blamed for.
    regime.ha = regimes.iter().any(|regime| regime.ha);
    regime.hd = regimes.iter().any(|regime| regime.hd);
    Some(regime)
}

impl Space {
    /// Reads its tables: what [`Space::maps`] will read of a copy.
    pub fn touch<M: PhysMemory + ?Sized>(&self, memory: &M) {
        walk_all(memory, &self.regime);
    }

    pub(crate) fn gathered(&self) -> &Result<Gathered, NotKnown> {
        &self.gathered
    }

    pub(crate) fn upper(&self) -> Regime {
        self.upper
    }

    pub(crate) fn orders(&self) -> Option<&OrderRecords> {
        self.orders.as_ref()
    }

    pub(crate) fn release(&self) -> Option<&str> {
        self.release.as_deref()
    }

    /// Its VMAs, with what its tables have in each.
    pub fn maps<M: PhysMemory + ?Sized + Debug>(&self, memory: &M) -> Maps {
        let process = verdict::Process {
            pid: self.task.tgid,
            name: self.task.name.clone(),
        };
        let release = self.release.as_deref();
        let folios = folios(memory, Some(&self.upper), &self.gathered);
        let input = ProcessInput {
            process: &process,
            regime: &self.regime,
            vmas: &self.vmas,
            orders: self.orders.as_ref(),
            expectations: &[],
            release: release.and_then(Release::parse),
            contpte: self.contpte,
            structures: structures(&self.gathered, &folios, &self.regime),
        };
        let verdict = judge(memory, &input);
        let mut maps = Maps::new(
            self.release.clone(),
            listed(&self.task),
            &self.vmas,
            verdict,
        );
        if let Ok(gathered) = &self.gathered {
            for vma in &mut maps.vmas {
                vma.cache = gathered.cache_of(self.regime.root.0, vma.map.start.0, maps.page_size);
            }
        }
        if self.lock.is_held() {
            maps.notes.push("somebody held its mmap_lock at this instant: VMAs that are being changed need not fit its tables".into());
        }
        maps
    }
}

impl Seen {
    /// Whether the VMAs of the process may just be changed.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.space
            .as_ref()
            .is_some_and(|space| space.lock.is_held())
    }

    /// For [`Tasks::write`] and JSON.
    #[must_use]
    pub fn listing(&self) -> Tasks {
        Tasks {
            schema_version: LISTING_VERSION,
            kernel: self.release.clone(),
            tasks: self.tasks.iter().map(listed).collect(),
        }
    }
}

fn listed(task: &Process) -> Task {
    Task {
        pid: task.tgid,
        name: task.name.clone(),
        started_ns: task.started_ns,
        threads: task.threads.clone(),
        mm: task.mm.map(Hex),
        table: task.table.map(|table| Hex(table.0)),
    }
}
