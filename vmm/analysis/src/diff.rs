// SPDX-License-Identifier: GPL-2.0-only
//! Two instants of a guest, brought together with what its kernel says of each, as events.

use changes::{entries, Diff, Frames, Space, View, Who};
use linux::absent::SwapTypes;
use linux::counted::Events;
use linux::order::OrderRecords;
use linux::release::Release;
use snapshot::{Memory, Snapshot};
use stage1::{Half, PhysicalAddress, Regime};
use structures::pages::Layout;
use structures::{tasks, vmas};
use untrusted::Text;
use verdict::{Folios, NotKnown};

use evidence::{
    inside::{is_whole, Inside},
    kernel_half, lower_half, parse_vmas, read_orders, Companion, Facts, Gathered, PageReader,
    Subject, NO_LOWER_HALF,
};

use crate::Error;

/// The reason that VMAs are not compared.
pub(crate) const LOCKED: &str = "its mmap_lock was held, so they may just have been changed";
/// The reason that faults are not known.
pub(crate) const NO_RECORD: &str = "the kernel has no order record, or no CPU shows it";

/// A guest at one instant, and the processes that were looked at beside those in the snapshot's notes.
#[derive(Clone, Copy, Debug)]
pub struct Instant<'s> {
    /// Registers and memory.
    pub snapshot: &'s Snapshot,
    /// Processes that did nothing meanwhile.
    pub companions: &'s [Companion],
}

impl<'s> From<&'s Snapshot> for Instant<'s> {
    fn from(snapshot: &'s Snapshot) -> Self {
        Self {
            snapshot,
            companions: &[],
        }
    }
}

/// Returns the events between two instants of a guest: of all processes that both show, or of the one with this pid.
///
/// # Errors
/// Where they are not of one guest, show no such process, or are of a kernel whose entries are laid out differently.
pub fn diff(before: Instant<'_>, after: Instant<'_>, pid: Option<u32>) -> Result<Diff, Error> {
    of_one_guest(before.snapshot, after.snapshot)?;
    let earlier = Ground::of(before, pid)?;
    let now = Ground::of(after, pid)?;
    if let Some(pid) = pid {
        let mut all = earlier.spaces.iter().chain(&now.spaces);
        if !all.any(|space| space.who.pid == pid) {
            return Err(Error::Input(format!(
                "neither snapshot holds process {pid}; a core of all RAM (save --full) holds all"
            )));
        }
    }
    Ok(compare(
        (&before.snapshot.memory, earlier),
        (&after.snapshot.memory, now),
        pid,
    ))
}

/// Compares what two memories show.
pub(crate) fn compare(
    (earlier, before): (&Memory, Ground),
    (now, after): (&Memory, Ground),
    pid: Option<u32>,
) -> Diff {
    let kernel = |of: &Ground| (of.layout.clone(), of.upper);
    let ((old_layout, old_upper), (new_layout, new_upper)) = (kernel(&before), kernel(&after));
    let old = pages(earlier, &old_layout, old_upper.as_ref());
    let new = pages(now, &new_layout, new_upper.as_ref());
    let (before, after) = (before.view(asked(&old)), after.view(asked(&new)));
    changes::diff(&before, &after, pid)
}

/// Instants that are seen not to fit are not compared.
fn of_one_guest(before: &Snapshot, after: &Snapshot) -> Result<(), Error> {
    let differs = |what: &str, one: String, other: String| {
        Err(Error::Input(format!(
            "expected two snapshots of one guest and found {what} of {one} and of {other}"
        )))
    };
    let release = |it: &Snapshot| it.notes.kernel_release.clone();
    if release(before) != release(after) {
        return differs("a kernel", release(before), release(after));
    }
    let ram = |it: &Snapshot| -> u64 { it.memory.ram().iter().map(|range| range.bytes).sum() };
    if ram(before) != ram(after) {
        let mib = |it| format!("{} MiB", ram(it) >> 20);
        return differs("RAM", mib(before), mib(after));
    }
    let root = |it: &Snapshot| kernel_half(&it.cpus).map(|upper| upper.root.0);
    match (root(before), root(after)) {
        (Some(one), Some(other)) if one != other => {
            differs("kernel tables", format!("{one:#x}"), format!("{other:#x}"))
        }
        _ => Ok(()),
    }
}

/// The contents of a snapshot, before its pages are read.
pub(crate) struct Ground {
    pub upper: Option<Regime>,
    pub layout: Result<Layout, String>,
    pub spaces: Vec<Space>,
    pub listed: Option<Vec<Who>>,
    pub mapped: Frames,
    pub names: SwapTypes,
    pub records: Result<OrderRecords, String>,
    pub events: Result<Events, String>,
    pub release: Option<String>,
    pub page_size: u64,
}

impl Ground {
    fn of(instant: Instant<'_>, pid: Option<u32>) -> Result<Self, Error> {
        let mut ground = match is_whole(&instant.snapshot.memory) {
            true => Self::whole(instant.snapshot, pid)?,
            false => Self::looked_at(instant)?,
        };
        let facts = Facts::of(instant.snapshot);
        let (snapshot, upper) = (instant.snapshot, ground.upper.as_ref());
        ground.records = match (facts.rings(), upper) {
            (Some(rings), Some(upper)) => {
                read_orders(&snapshot.memory, upper, rings, &snapshot.cpus)
                    .map_err(|error| error.to_string())
            }
            _ => Err(NO_RECORD.into()),
        };
        ground.of_this_layout()
    }

    pub fn of_this_layout(self) -> Result<Self, Error> {
        let release = self.release.as_deref().and_then(Release::parse);
        match release.is_some_and(Release::has_this_layout) {
            true => Ok(self),
            false => Err(Error::Input(format!(
                "expected a kernel of 6.11 or later, whose entries are laid out as this program reads them, and found {}",
                self.release.as_deref().unwrap_or("one that does not say its release")
            ))),
        }
    }

    fn empty(snapshot: &Snapshot) -> Self {
        let release = Some(snapshot.notes.kernel_release.clone());
        Self {
            upper: kernel_half(&snapshot.cpus),
            layout: Err(String::new()),
            spaces: Vec::new(),
            listed: None,
            mapped: Frames::default().sorted(true),
            names: SwapTypes::OPEN,
            records: Err(String::new()),
            events: Err("the snapshot does not hold the kernel's counters of events".into()),
            release: release.filter(|release| !release.is_empty()),
            page_size: snapshot.notes.page_size.max(4096),
        }
    }

    /// A core of all RAM: every process.
    fn whole(snapshot: &Snapshot, pid: Option<u32>) -> Result<Self, Error> {
        let (memory, cpus) = (&snapshot.memory, &snapshot.cpus);
        let not_read =
            |why: String| Error::Input(format!("the kernel's structures were not read: {why}"));
        let inside = Inside::find(memory, cpus).map_err(|why| not_read(why.to_string()))?;
        let view = inside.view(memory);
        let wrong = |error: structures::StructureError| not_read(error.to_string());
        let lower = lower_half(cpus).ok_or_else(|| not_read(NO_LOWER_HALF.into()))?;
        let layout = vmas::Layout::new(&inside.kernel, view).map_err(wrong)?;
        let (pages, spaces) = inside
            .layouts
            .as_ref()
            .map_err(|error| wrong(error.clone()))?;
        let mut ground = Self::empty(snapshot);
        ground.layout = Ok(pages.clone());
        ground.names = inside.swap.read(view);
        if ground.release.is_none() {
            let found = inside.release(memory, cpus);
            ground.release = found.ok().map(|found| found.release);
        }
        let page_size = lower.granule.bytes();
        ground.page_size = page_size;
        ground.events = inside.counted.events(view).map_err(|not_read| not_read.why);
        let mut mapped = Frames::default();
        let mut read = Vec::new();
        let all = tasks::processes(&inside.kernel, view).map_err(wrong)?;
        ground.listed = Some(all.iter().map(who).collect());
        for task in &all {
            let (Some(mm), Some(table)) = (task.mm, task.table) else {
                continue;
            };
            let regime = with_root(lower, table.0);
            let (entries, problems) = entries(memory, &regime);
            mapped.add(&entries, page_size);
            read.push(table.0);
            // Of the others only what they map is asked.
            if pid.is_some_and(|pid| pid != task.tgid) {
                continue;
            }
            let lock = layout.lock(view, mm).map_err(wrong)?;
            let vmas = match lock.is_held() {
                true => Err(LOCKED.into()),
                false => layout.vmas(view, mm).map_err(|error| error.to_string()),
            };
            ground.spaces.push(Space {
                who: who(task),
                mm: Some(mm),
                faults: faults(&all, mm),
                entries,
                problems,
                vmas,
            });
        }
        let everyone = spaces.spaces(view, &[]).map_err(wrong)?;
        // Those of processes that are ending.
        for space in everyone.iter().filter(|space| !read.contains(&space.table)) {
            let regime = with_root(lower, space.table);
            mapped.add(&entries(memory, &regime).0, page_size);
        }
        ground.mapped = mapped.sorted(may_fork(&everyone));
        Ok(ground)
    }

    /// The processes that were looked at, and what all others map.
    fn looked_at(instant: Instant<'_>) -> Result<Self, Error> {
        let snapshot = instant.snapshot;
        let memory = &snapshot.memory;
        let mut ground = Self::empty(snapshot);
        let gathered = Gathered::of(snapshot);
        ground.events = events(&gathered);
        if let Ok(gathered) = &gathered {
            ground.names = gathered.swap.clone();
        }
        let mut add = |pid: u32, name: &Text, maps: &str, regime: &Regime| -> Result<(), Error> {
            let (entries, problems) = entries(memory, regime);
            let space = gathered
                .as_ref()
                .ok()
                .and_then(|all| all.space(regime.root.0));
            ground.spaces.push(Space {
                who: Who {
                    pid,
                    name: name.clone(),
                    started_ns: space.and_then(|space| space.started_ns),
                },
                mm: space.map(|space| space.mm),
                faults: space.and_then(|space| space.faults),
                entries,
                problems,
                vmas: match maps.is_empty() {
                    true => Err("nobody in the guest has given them".into()),
                    false => Ok(parse_vmas(maps)?),
                },
            });
            Ok(())
        };
        let mut lower = None;
        for process in &snapshot.notes.processes {
            let subject = Subject::of(snapshot, process)?;
            ground.page_size = subject.regime.granule.bytes();
            lower = Some(subject.regime);
            add(process.pid, &process.name, &process.maps, &subject.regime)?;
        }
        for companion in instant.companions {
            let regime = Regime::new(&companion.cpu.system, Half::Lower)?;
            add(companion.pid, &companion.name, &companion.maps, &regime)?;
        }
        let Some(lower) = lower else {
            return Err(Error::Input(
                "the snapshot holds no process; take it at a checkpoint, or with --full".into(),
            ));
        };
        ground.mapped = mapped(memory, &gathered, lower);
        // A task without memory of its own is in no address space, and none that was looked at.
        let everyone = gathered.as_ref().ok().map(|all| all.spaces.iter());
        ground.listed = everyone.map(|spaces| {
            let who = spaces.map(|space| Who {
                pid: space.pid,
                name: space.name.clone(),
                started_ns: space.started_ns,
            });
            who.collect()
        });
        ground.layout = match gathered {
            Ok(gathered) => Ok(gathered.layout()),
            Err(not_known) => Err(not_known.why.to_string()),
        };
        Ok(ground)
    }

    fn view(self, folios: Result<&dyn Folios, String>) -> View<'_> {
        View {
            kernel: self.release,
            page_size: self.page_size,
            spaces: self.spaces,
            listed: self.listed,
            folios,
            mapped: self.mapped,
            names: self.names,
            records: self.records,
            events: self.events,
        }
    }
}

/// The faults of the process that has this address space; none where several have it.
fn faults(tasks: &[tasks::Process], mm: u64) -> Option<u64> {
    let mut having = tasks.iter().filter(|task| task.mm == Some(mm));
    let one = having.next()?;
    having.next().is_none().then_some(one.faults)
}

/// Returns the kernel's event counters, if a snapshot keeps them.
pub(crate) fn events(gathered: &Result<Gathered, NotKnown>) -> Result<Events, String> {
    let gathered = gathered
        .as_ref()
        .map_err(|not_known| not_known.why.to_string())?;
    let counted = gathered.counted.as_ref();
    let counted = counted.ok_or("the snapshot does not hold the kernel's counters of events")?;
    let events = counted.events.as_ref();
    events.cloned().map_err(|not_read| not_read.why.clone())
}

/// Returns the pages that the address spaces map.
pub(crate) fn mapped(
    memory: &Memory,
    gathered: &Result<Gathered, NotKnown>,
    lower: Regime,
) -> Frames {
    let mut mapped = Frames::default();
    let Ok(all) = gathered else {
        return mapped.sorted(true);
    };
    for table in all.tables() {
        let regime = with_root(lower, table);
        mapped.add(&entries(memory, &regime).0, lower.granule.bytes());
    }
    mapped.sorted(may_fork(&all.spaces))
}

/// Returns whether there may be an address space that is in no list yet.
fn may_fork(spaces: &[structures::spaces::Space]) -> bool {
    spaces.iter().any(|space| space.lock.may_fork())
}

type Readable<'g> = Result<PageReader<'g, Memory>, String>;

fn pages<'g>(
    memory: &'g Memory,
    layout: &'g Result<Layout, String>,
    upper: Option<&'g Regime>,
) -> Readable<'g> {
    let layout = layout.as_ref().map_err(Clone::clone)?;
    let upper = upper.ok_or("no CPU showed the kernel's tables")?;
    let view = structures::View { memory, upper };
    Ok(PageReader::new(layout, view, true))
}

fn asked<'g>(pages: &'g Readable<'g>) -> Result<&'g dyn Folios, String> {
    let pages = pages.as_ref().map_err(Clone::clone);
    pages.map(|pages| pages as &dyn Folios)
}

pub(crate) fn who(task: &tasks::Process) -> Who {
    Who {
        pid: task.tgid,
        name: task.name.clone(),
        started_ns: Some(task.started_ns),
    }
}

fn with_root(mut regime: Regime, table: u64) -> Regime {
    regime.root = PhysicalAddress(table);
    regime
}
