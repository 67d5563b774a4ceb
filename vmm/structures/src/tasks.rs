// SPDX-License-Identifier: GPL-2.0-only
//! All processes and their threads, from `init_task` on.

use stage1::{PhysMemory, PhysicalAddress};
use untrusted::Text;

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
    pub name: Text,
    /// When its leader was started, in nanoseconds since boot, of `CLOCK_BOOTTIME`: with the id it names the process for ever.
    pub started_ns: u64,
    /// The ids of its threads, the leader's first.
    pub threads: Vec<u32>,
    /// The addresses of their `struct task_struct`, in the same order.
    pub tasks: Vec<u64>,
    /// The address of its `struct mm_struct`, of whichever of its threads has one; none for a thread of the kernel, nor
    /// for a process that has ended.
    pub mm: Option<u64>,
    /// Where it has none: the one that it last ran with, or borrowed (`active_mm`). While a process ends that may still
    /// be its own.
    pub last_mm: Option<u64>,
    /// The physical address of its first table (`mm->pgd`).
    pub table: Option<PhysicalAddress>,
    /// A thread of the kernel (`PF_KTHREAD`).
    pub is_kernel: bool,
    /// It has ended, and its parent has not asked how (`exit_state`).
    pub has_ended: bool,
    /// Faults of all its threads, those that have ended too (`min_flt`, `maj_flt`).
    pub faults: u64,
}

/// Layout of this kernel's tasks.
#[derive(Debug)]
pub struct Layout {
    tasks: Member,
    pid: Member,
    tgid: Member,
    comm: Member,
    started: Member,
    mm: Member,
    active_mm: Member,
    signal: Member,
    thread_head: Member,
    thread_node: Member,
    next: Member,
    pgd: Member,
    flags: Member,
    exit_state: Member,
    faults: [Member; 2],
    faults_of_ended: [Member; 2],
    init_task: u64,
}

/// A thread of the kernel (include/linux/sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let task = |path| kernel.types.member("task_struct", path);
        Ok(Layout {
            tasks: task("tasks")?,
            pid: task("pid")?,
            tgid: task("tgid")?,
            comm: task("comm")?,
            started: task("start_boottime")?,
            mm: task("mm")?,
            active_mm: task("active_mm")?,
            signal: task("signal")?,
            thread_head: kernel.types.member("signal_struct", "thread_head")?,
            thread_node: task("thread_node")?,
            next: kernel.types.member("list_head", "next")?,
            pgd: kernel.types.member("mm_struct", "pgd")?,
            flags: task("flags")?,
            exit_state: task("exit_state")?,
            faults: [task("min_flt")?, task("maj_flt")?],
            faults_of_ended: [
                kernel.types.member("signal_struct", "min_flt")?,
                kernel.types.member("signal_struct", "maj_flt")?,
            ],
            init_task: kernel.variable("init_task")?,
        })
    }

    /// All processes at one instant, as the kernel lists them; the idle task is not among them.
    ///
    /// # Errors
    /// Where the list cannot be followed to its end.
    pub fn processes<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Vec<Process>, StructureError> {
        let head = self.init_task.wrapping_add(self.tasks.offset);
        let nodes = view.list("the list of tasks", (head, self.next), MOST)?;
        nodes
            .into_iter()
            .map(|node| process(self, view, node.wrapping_sub(self.tasks.offset)))
            .collect()
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
    Layout::new(kernel)?.processes(view)
}

fn process<M: PhysMemory + ?Sized>(
    layout: &Layout,
    view: View<'_, M>,
    task: u64,
) -> Result<Process, StructureError> {
    let what = "a task";
    let signal = view.number(what, task, layout.signal)?;
    let head = signal.wrapping_add(layout.thread_head.offset);
    let threads = view.list("a process's list of threads", (head, layout.next), MOST)?;
    let threads = threads.into_iter();
    let threads: Vec<u64> = threads
        .map(|node| node.wrapping_sub(layout.thread_node.offset))
        .collect();
    // The leader may have ended before its threads.
    let (mut mm, mut last_mm) = (None, None);
    for &thread in std::iter::once(&task).chain(&threads) {
        let own = view.number(what, thread, layout.mm)?;
        if own != 0 {
            mm = Some(own);
            break;
        }
        let active = view.number(what, thread, layout.active_mm)?;
        last_mm = last_mm.or((active != 0).then_some(active));
    }
    let tasks = threads;
    let threads = tasks
        .iter()
        .map(|thread| view.number(what, *thread, layout.pid));
    let threads: Vec<u32> = threads
        .map(|pid| pid.map(|pid| pid as u32))
        .collect::<Result<_, _>>()?;
    let mut faults = 0u64;
    for (at, member) in layout
        .faults_of_ended
        .iter()
        .map(|member| (signal, *member))
        .chain(
            tasks
                .iter()
                .flat_map(|task| layout.faults.map(|it| (*task, it))),
        )
    {
        faults = faults.wrapping_add(view.number(what, at, member)?);
    }
    let table = mm.map(|mm| {
        let pgd = view.number("an address space", mm, layout.pgd)?;
        view.physical("a process's first table", pgd)
    });
    let comm = task.wrapping_add(layout.comm.offset);
    Ok(Process {
        task,
        tgid: view.number(what, task, layout.tgid)? as u32,
        name: view.text(what, comm, layout.comm.size)?,
        started_ns: view.number(what, task, layout.started)?,
        threads,
        tasks,
        mm,
        last_mm: last_mm.filter(|_| mm.is_none()),
        table: table.transpose()?,
        is_kernel: view.number(what, task, layout.flags)? & PF_KTHREAD != 0,
        has_ended: mm.is_none() && view.number(what, task, layout.exit_state)? != 0,
        faults,
    })
}
