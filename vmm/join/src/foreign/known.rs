//! What the kernel's own structures say of the processes that CPUs run: their names, and their VMAs.

use std::collections::BTreeSet;

use snapshot::{Cpu, Process};
use stage1::{Half, PhysMemory, PhysicalAddress, Regime};
use structures::tasks::{self, processes};
use structures::vmas::Layout;
use structures::{Kernel, View};

use crate::unattended::by_its_task;

/// The mark of why the VMAs of a process are not known.
const WHY_NOT: &str = "vmas_not_known";

/// Names each process by its task, gives it its VMAs, in the words of smaps, and adds the processes that no CPU is in user
/// mode with; all in order of their pids. What cannot be read, or is being changed, is not there, and the process says
/// why. Where two share their tables, as after vfork(), both are meant by the first.
pub fn complete<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
    cpus: &[Cpu],
    found: &mut Vec<Process>,
) {
    let read = processes(kernel, view).and_then(|tasks| Ok((tasks, Layout::new(kernel, view)?)));
    let read = read.map_err(|error| error.to_string());
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
}

fn tell(process: &mut Process, maps: Result<String, String>) {
    match maps {
        Ok(maps) => process.maps = maps,
        Err(why) => drop(process.extra.insert(WHY_NOT.into(), why.into())),
    }
}

/// What is in TTBR0_EL1 of the CPU that runs a process.
fn root(process: &Process, cpus: &[Cpu]) -> Option<PhysicalAddress> {
    let cpu = cpus.iter().find(|cpu| Some(cpu.index) == process.cpu)?;
    Some(Regime::new(&cpu.system, Half::Lower).ok()?.root)
}

/// Why the VMAs of a process are not known.
pub fn why_not(process: &Process) -> Option<&str> {
    process.extra.get(WHY_NOT)?.as_str()
}

/// The task whose first table is in TTBR0_EL1 of the CPU that runs the process.
fn task_of<'t>(
    process: &Process,
    cpus: &[Cpu],
    tasks: &'t [tasks::Process],
) -> Result<&'t tasks::Process, String> {
    let root = root(process, cpus);
    let has = |task: &&tasks::Process| task.table.is_some() && task.table == root;
    let mut found = tasks.iter().filter(has);
    match (found.next(), found.next()) {
        (Some(task), None) => Ok(task),
        (None, _) => Err(format!(
            "no task has its first table at {}",
            root.unwrap_or(PhysicalAddress(0))
        )),
        // vfork(), or CLONE_VM without CLONE_THREAD.
        (Some(one), Some(other)) => Err(format!(
            "tasks {} and {} share its tables",
            one.tgid, other.tgid
        )),
    }
}

fn maps<M: PhysMemory + ?Sized>(
    layout: &Layout,
    view: View<'_, M>,
    task: &tasks::Process,
) -> Result<String, String> {
    let mm = task.mm.ok_or("it has no address space of its own")?;
    let lock = layout.lock(view, mm);
    if lock.map_err(|error| error.to_string())?.is_held() {
        return Err("somebody holds its mmap_lock, and may be changing its VMAs".into());
    }
    let vmas = layout.vmas(view, mm).map_err(|error| error.to_string())?;
    Ok(vmas.iter().map(ToString::to_string).collect())
}
