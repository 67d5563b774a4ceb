// SPDX-License-Identifier: GPL-2.0-only
//! Names and VMAs of processes, read from the kernel's structures.

use std::collections::BTreeSet;

use snapshot::{Cpu, Process};
use stage1::{Half, PhysMemory, PhysicalAddress, Regime};
use structures::tasks::{self, processes};
use structures::vmas::Layout;
use structures::{Kernel, StructureError, View};
use untrusted::Text;

use crate::root_table::by_its_task;

/// The mark of why the VMAs of a process are not known.
const WHY_NOT: &str = "vmas_not_known";

/// The mark that another instant may show them.
const LATER: &str = "vmas_known_later";

/// The reason that something is not known, and whether another instant may show it.
type NotNow = (String, bool);

/// The address spaces of all tasks: pid, name and first table.
pub type Spaces = Result<Vec<(u32, Text, u64)>, String>;

/// Names each process by its task, gives it its VMAs, in the words of smaps, and adds the processes that no CPU is in user
/// mode with; all in order of their pids. What cannot be read, or is being changed, is not there, and the process says
/// why. Where two share their tables, as after vfork(), both are meant by the first. Gives the address spaces of all tasks,
/// each once.
pub fn complete<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
    cpus: &[Cpu],
    found: &mut Vec<Process>,
) -> Spaces {
    let read = processes(kernel, view).and_then(|tasks| Ok((tasks, Layout::new(kernel, view)?)));
    let read = read.map_err(|error| (error.to_string(), error.may_pass()));
    let mut roots = BTreeSet::new();
    for process in &mut *found {
        roots.extend(root(process, cpus));
        let known = read.as_ref().map_err(Clone::clone);
        let known = known.and_then(|(tasks, layout)| {
            let task = task_of(process, cpus, tasks)?;
            process.pid = task.tgid;
            process.name.clone_from(&task.name);
            maps(layout, view, task)
        });
        tell(process, known);
    }
    if let Ok((tasks, layout)) = &read {
        for task in tasks {
            let Some(table) = task.table.filter(|table| roots.insert(*table)) else {
                continue;
            };
            let mut process = by_its_task(task.tgid, &task.name, table);
            tell(&mut process, maps(layout, view, task));
            found.push(process);
        }
    }
    found.sort_by_key(|process| process.pid);
    let (tasks, _) = read.map_err(|(why, _)| why)?;
    let mut roots = BTreeSet::new();
    let each = tasks.iter().filter_map(|task| {
        let table = task.table.filter(|table| roots.insert(*table))?;
        Some((task.tgid, task.name.clone(), table.0))
    });
    Ok(each.collect())
}

fn tell(process: &mut Process, maps: Result<String, NotNow>) {
    match maps {
        Ok(maps) => process.maps = maps,
        Err((why, later)) => {
            process.extra.insert(WHY_NOT.into(), why.into());
            process.extra.insert(LATER.into(), later.into());
        }
    }
}

/// Returns TTBR0_EL1 of the CPU that runs a process.
fn root(process: &Process, cpus: &[Cpu]) -> Option<PhysicalAddress> {
    let cpu = cpus.iter().find(|cpu| Some(cpu.index) == process.cpu)?;
    Some(Regime::new(&cpu.system, Half::Lower).ok()?.root)
}

/// Returns the reason that the VMAs of a process are not known, and whether another instant may show them.
pub fn why_not(process: &Process) -> (String, bool) {
    let why = process.extra.get(WHY_NOT).and_then(|why| why.as_str());
    let why = why.unwrap_or(
        "no agent of the guest gives them, and the kernel's own structures were not read",
    );
    let later = process.extra.get(LATER).and_then(|later| later.as_bool());
    (why.to_owned(), later == Some(true))
}

/// The task whose first table is in TTBR0_EL1 of the CPU that runs the process.
fn task_of<'t>(
    process: &Process,
    cpus: &[Cpu],
    tasks: &'t [tasks::Process],
) -> Result<&'t tasks::Process, NotNow> {
    let root = root(process, cpus);
    let has = |task: &&tasks::Process| task.table.is_some() && task.table == root;
    let mut found = tasks.iter().filter(has);
    match (found.next(), found.next()) {
        (Some(task), None) => Ok(task),
        // vfork(), or CLONE_VM without CLONE_THREAD: the VMAs are of the address space, not of the task.
        (Some(one), Some(other)) if one.mm == other.mm => Ok(one),
        (None, _) => Err((
            format!(
                "no task has its first table at {}",
                root.unwrap_or(PhysicalAddress(0))
            ),
            true,
        )),
        (Some(one), Some(other)) => Err((
            format!("tasks {} and {} share its tables", one.tgid, other.tgid),
            false,
        )),
    }
}

fn maps<M: PhysMemory + ?Sized>(
    layout: &Layout,
    view: View<'_, M>,
    task: &tasks::Process,
) -> Result<String, NotNow> {
    let not_now = |error: StructureError| (error.to_string(), error.may_pass());
    let own = "it has no address space of its own";
    let mm = task.mm.ok_or((own.to_owned(), true))?;
    if layout.lock(view, mm).map_err(not_now)?.is_held() {
        let why = "its mmap_lock is held, and its VMAs may be changing";
        return Err((why.into(), true));
    }
    let vmas = layout.vmas(view, mm).map_err(not_now)?;
    Ok(vmas.iter().map(ToString::to_string).collect())
}
