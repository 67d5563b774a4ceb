//! All processes and their threads, from `init_task` on.

use stage1::{lookup, Lookup, PhysMemory, PhysicalAddress, VirtualAddress};

use crate::kernel::View;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// More than there can be: `PID_MAX_LIMIT`.
const MOST: usize = 4 << 20;

/// One thread group: a process, or a thread of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The address of its leader's `struct task_struct`.
    pub task: u64,
    /// Its id in the initial PID namespace.
    pub tgid: u32,
    /// The leader's name (`comm`).
    pub name: String,
    /// When its leader was started, in nanoseconds since boot, of `CLOCK_BOOTTIME`: with the id it names the process for ever.
    pub started_ns: u64,
    /// The ids of its threads, the leader's first.
    pub threads: Vec<u32>,
    /// The address of its `struct mm_struct`; none for a thread of the kernel, nor for a process that has ended.
    pub mm: Option<u64>,
    /// The physical address of its first table (`mm->pgd`).
    pub table: Option<PhysicalAddress>,
}

struct Layout {
    tasks: Member,
    pid: Member,
    tgid: Member,
    comm: Member,
    started: Member,
    mm: Member,
    signal: Member,
    thread_head: Member,
    thread_node: Member,
    next: Member,
    pgd: Member,
}

impl Layout {
    fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let task = |path| kernel.types.member("task_struct", path);
        Ok(Layout {
            tasks: task("tasks")?,
            pid: task("pid")?,
            tgid: task("tgid")?,
            comm: task("comm")?,
            started: task("start_boottime")?,
            mm: task("mm")?,
            signal: task("signal")?,
            thread_head: kernel.types.member("signal_struct", "thread_head")?,
            thread_node: task("thread_node")?,
            next: kernel.types.member("list_head", "next")?,
            pgd: kernel.types.member("mm_struct", "pgd")?,
        })
    }
}

/// All processes at one instant, as the kernel lists them; the idle task is not among them.
///
/// # Errors
/// Where the list cannot be followed to its end, or the kernel has no such structures.
pub fn processes<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
) -> Result<Vec<Process>, StructureError> {
    let layout = Layout::new(kernel)?;
    let head = kernel.variable("init_task")? + layout.tasks.offset;
    let nodes = list(view, "the list of tasks", head, layout.next)?;
    nodes
        .into_iter()
        .map(|node| process(&layout, view, node - layout.tasks.offset))
        .collect()
}

fn process<M: PhysMemory + ?Sized>(
    layout: &Layout,
    view: View<'_, M>,
    task: u64,
) -> Result<Process, StructureError> {
    let what = "a task";
    let signal = view.number(what, task, layout.signal)?;
    let head = signal.wrapping_add(layout.thread_head.offset);
    let threads = list(view, "a process's list of threads", head, layout.next)?;
    let threads = threads
        .into_iter()
        .map(|node| view.number(what, node - layout.thread_node.offset, layout.pid));
    let threads: Vec<u32> = threads
        .map(|pid| pid.map(|pid| pid as u32))
        .collect::<Result<_, _>>()?;
    let mm = view.number(what, task, layout.mm)?;
    let mm = (mm != 0).then_some(mm);
    let table = mm.map(|mm| {
        let pgd = view.number("an address space", mm, layout.pgd)?;
        match lookup(view.memory, view.upper, VirtualAddress(pgd)) {
            Lookup::Mapped { pa, .. } => Ok(pa),
            other => Err(StructureError::Unreadable {
                what: "a process's first table",
                va: pgd,
                why: format!("{other:?}"),
            }),
        }
    });
    let comm = task.wrapping_add(layout.comm.offset);
    Ok(Process {
        task,
        tgid: view.number(what, task, layout.tgid)? as u32,
        name: view.text(what, comm, layout.comm.size)?,
        started_ns: view.number(what, task, layout.started)?,
        threads,
        mm,
        table: table.transpose()?,
    })
}

/// The nodes of a list of the kernel's (`struct list_head`) behind its head.
fn list<M: PhysMemory + ?Sized>(
    view: View<'_, M>,
    what: &'static str,
    head: u64,
    next: Member,
) -> Result<Vec<u64>, StructureError> {
    let mut nodes = Vec::new();
    let mut at = view.number(what, head, next)?;
    while at != head {
        if nodes.len() == MOST || at == 0 {
            let why = format!(
                "it does not come back to its head after {} nodes",
                nodes.len()
            );
            let va = head;
            return Err(StructureError::Inconsistent { what, va, why });
        }
        nodes.push(at);
        at = view.number(what, at, next)?;
    }
    Ok(nodes)
}
