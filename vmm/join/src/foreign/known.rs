//! What the kernel's own structures say of the processes that CPUs run: their names, and their VMAs.

use snapshot::{Cpu, Process};
use stage1::{Half, PhysMemory, PhysicalAddress, Regime};
use structures::tasks::{self, processes};
use structures::vmas::Layout;
use structures::{Kernel, StructureError, View};

/// The mark of why the VMAs of a process are not known.
const WHY_NOT: &str = "vmas_not_known";

/// Names each process by its task, and gives it its VMAs, in the words of smaps; what cannot be read, or is being
/// changed, is not there, and the process says why.
pub fn name<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
    cpus: &[Cpu],
    found: &mut [Process],
) {
    let read = processes(kernel, view).and_then(|tasks| Ok((tasks, Layout::new(kernel, view)?)));
    for process in found {
        let known = match &read {
            Ok((tasks, layout)) => task_of(process, cpus, tasks).and_then(|task| {
                process.pid = task.tgid;
                process.name.clone_from(&task.name);
                maps(layout, view, task).map_err(|error| error.to_string())
            }),
            Err(error) => Err(error.to_string()),
        };
        match known {
            Ok(maps) => process.maps = maps,
            Err(why) => drop(process.extra.insert(WHY_NOT.into(), why.into())),
        }
    }
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
    let cpu = cpus.iter().find(|cpu| Some(cpu.index) == process.cpu);
    let root = cpu.and_then(|cpu| Some(Regime::new(&cpu.system, Half::Lower).ok()?.root));
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
) -> Result<String, StructureError> {
    let mm = task
        .mm
        .ok_or_else(|| StructureError::Missing("address space of its own".into()))?;
    if layout.is_locked(view, mm)? {
        return Err(StructureError::Inconsistent {
            what: "an address space",
            va: mm,
            why: "somebody holds its mmap_lock, and may be changing its VMAs".into(),
        });
    }
    let vmas = layout.vmas(view, mm)?;
    Ok(vmas.iter().map(ToString::to_string).collect())
}
