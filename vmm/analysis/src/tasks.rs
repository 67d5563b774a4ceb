// SPDX-License-Identifier: GPL-2.0-only
//! A kernel's tasks, and the address space of one process, read from its structures.

use std::fmt::Debug;

use linux::order::OrderRecords;
use linux::release::Release;
use linux::vma::Vma;
use report::listing::{FileCache, Maps, Task, Tasks, LISTING_VERSION};
use snapshot::{Cpu, Notes, Snapshot};
use stage1::{PhysMemory, PhysicalAddress, Regime};
use structures::tasks::{self, Process};
use structures::vmas::Layout;
use structures::{Lock, StructureError, View};
use verdict::{judge, Hex, NotKnown, ProcessInput};

use evidence::{
    folios, inside::Inside, lower_half, read_orders, release, walk_all, Facts, Gathered,
    NO_LOWER_HALF,
};

use crate::counting::structures;
use crate::switches;

/// A kernel's tasks, and more of one process.
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
    /// Its task.
    pub task: Process,
    /// Its VMAs.
    pub vmas: Vec<Vma>,
    /// The lower half with its own first table: no CPU need run it.
    pub regime: Regime,
    /// The holder of its `mmap_lock`.
    pub lock: Lock,
    /// The kernel's structures for the pages that it maps, and for all address spaces.
    gathered: Result<Gathered, NotKnown>,
    upper: Regime,
    orders: Option<OrderRecords>,
    contpte: Option<bool>,
    release: Option<String>,
}

/// The reason that something was not seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unseen {
    /// The reason.
    pub why: String,
    /// True if it may be seen at another instant: what was read may just have been changed.
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
/// If there is no such process, if it has no memory of its own, or if the structures cannot be read.
pub fn see<M: PhysMemory + ?Sized>(
    inside: &Inside,
    view: View<'_, M>,
    cpus: &[Cpu],
    pid: Option<u32>,
) -> Result<Seen, Unseen> {
    see_with(inside, view, cpus, pid, |regime| {
        Gathered::gather(inside, view.memory, cpus, (regime, &[regime.root.0]))
    })
}

/// The same, where `gather` says what was read of the pages that the process maps, by its regime.
fn see_with<M: PhysMemory + ?Sized>(
    inside: &Inside,
    view: View<'_, M>,
    cpus: &[Cpu],
    pid: Option<u32>,
    gather: impl FnOnce(&Regime) -> Result<Gathered, NotKnown>,
) -> Result<Seen, Unseen> {
    let kernel = &inside.kernel;
    let tasks = tasks::processes(kernel, view)?;
    let release = release::find(view, cpus, Some(kernel));
    let release = release.ok().map(|found| found.release);
    let space = pid.map(|pid| space(inside, view, cpus, (&tasks, pid), gather));
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
    (tasks, pid): (&[Process], u32),
    gather: impl FnOnce(&Regime) -> Result<Gathered, NotKnown>,
) -> Result<Space, Unseen> {
    let kernel = &inside.kernel;
    let never = |why: String| Unseen { why, later: false };
    let (task, mm, table) = with_memory(tasks, pid).map_err(never)?;
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
        gathered: gather(&regime),
        upper: *view.upper,
        orders,
        contpte: facts.contpte,
        release: None,
    })
}

/// Finds the process with this pid, its address space and its first table.
fn with_memory(tasks: &[Process], pid: u32) -> Result<(&Process, u64, PhysicalAddress), String> {
    let task = tasks.iter().find(|task| task.tgid == pid);
    let task = task.ok_or_else(|| {
        let of = tasks.iter().find(|task| task.threads.contains(&pid));
        match of {
            Some(task) => format!(
                "{pid} is a thread of process {} ({}); give that",
                task.tgid, task.name
            ),
            None => format!("the guest has no process {pid}; `folioscope ps` lists those it has"),
        }
    })?;
    let (Some(mm), Some(table)) = (task.mm, task.table) else {
        let name = &task.name;
        let why = match (task.is_kernel, task.has_ended) {
            (true, _) => "it is a thread of the kernel",
            (_, true) => "it has ended",
            (false, false) => "it is ending",
        };
        return Err(format!(
            "process {pid} ({name}) has no memory of its own: {why}"
        ));
    };
    Ok((task, mm, table))
}

/// Says why no process of its own stands for this pid in a snapshot of all processes; `None` where one does.
#[must_use]
pub fn why_not(tasks: &[Process], pid: u32) -> Option<String> {
    let table = match with_memory(tasks, pid) {
        Ok((.., table)) => table,
        Err(why) => return Some(why),
    };
    let first = tasks.iter().find(|task| task.table == Some(table))?;
    (first.tgid != pid).then(|| {
        format!(
            "process {pid} has the tables of process {} ({}), as after vfork(); give that",
            first.tgid, first.name
        )
    })
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
        let sizes = self.gathered.as_ref().ok();
        let sizes = sizes.and_then(|gathered| gathered.structure().ok());
        let remark = switches::remark(sizes, self.contpte, &self.vmas, &verdict);
        let mut maps = Maps::new(
            self.release.clone(),
            listed(&self.task),
            &self.vmas,
            verdict,
        );
        if let Ok(gathered) = &self.gathered {
            for vma in &mut maps.vmas {
                vma.cache = cache_of(
                    gathered,
                    self.regime.root.0,
                    vma.map.start.0,
                    maps.page_size,
                );
            }
        }
        maps.notes.extend(remark);
        if self.lock.is_held() {
            maps.notes.push("its mmap_lock was held at this instant: VMAs that are being changed need not fit its tables".into());
        }
        maps
    }
}

/// Returns what [`see`] saw of the instant that a copy was made at, which has [`Seen::keep`] in its notes.
///
/// # Errors
/// As [`see`].
pub fn see_again(inside: &Inside, copy: &Snapshot, pid: Option<u32>) -> Result<Seen, Unseen> {
    let view = inside.view(&copy.memory);
    see_with(inside, view, &copy.cpus, pid, |_| Gathered::of(copy))
}

impl Seen {
    /// Keeps with a copy what it does not hold: page caches, and the pages that no process maps.
    pub fn keep(&self, notes: &mut Notes) {
        if let Some(space) = &self.space {
            Gathered::keep(&space.gathered, notes);
        }
    }

    /// Returns whether the VMAs of the process may be changing.
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
        is_kernel: task.is_kernel,
        has_ended: task.has_ended,
        mm: task.mm.map(Hex),
        table: task.table.map(|table| Hex(table.0)),
    }
}

/// The page cache of the file that the address space with this first table maps at the VMA that begins at `start`.
fn cache_of(gathered: &Gathered, table: u64, start: u64, page: u64) -> Option<FileCache> {
    let mut places = gathered.space(table)?.numbering.iter().flatten();
    let of = places.find(|place| place.start == start)?.of?;
    let mut caches = gathered.caches.as_ref()?.iter().flatten();
    let cache = caches.find(|cache| cache.mapping == of.mapping)?;
    let tree = cache.tree.as_ref().ok()?;
    Some(FileCache {
        mapping: Hex(of.mapping),
        bytes: tree.found.saturating_mul(page),
        gone: tree.values.saturating_mul(page),
    })
}
