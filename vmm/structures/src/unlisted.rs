// SPDX-License-Identifier: GPL-2.0-only
//! Tasks in the middle of what no lock shows: of making an address space that no task has yet, of ending one that none
//! has any more, of exec(), of making
//! a file's pages into one. It is on its kernel stack, which is read frame by frame.

use std::collections::BTreeSet;
use std::ops::Range;

use stage1::PhysMemory;

use crate::kernel::View;
use crate::tasks::Process;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// More frames than a kernel stack has room for.
const MOST_FRAMES: usize = 1 << 10;

/// Functions that do so in what they call, and that every kernel has: `copy_process()` adds the child to the list at its end
/// (kernel/fork.c), `exit_mmap()` gets what no task has any more (mm/mmap.c).
const FUNCTIONS: [(&str, Doing); 2] = [("copy_process", Doing::Fork), ("exit_mmap", Doing::End)];
/// Those that a compiler may have made part of others. The callers of the first two, as a function that was interrupted before
/// its first instructions has left no frame; and `acct_arg_size()`'s, which counts the pages of arguments as the caller's own
/// (fs/exec.c).
const MORE: [(&str, Doing); 42] = [
    ("kernel_clone", Doing::Fork),
    ("__mmput", Doing::End),
    ("mmput", Doing::End),
    ("do_execveat_common", Doing::Exec),
    // mm/khugepaged.c; the first is a part of the others in some kernels, whose names have changed.
    ("collapse_file", Doing::Collapse),
    ("hpage_collapse_scan_file", Doing::Collapse),
    ("collapse_scan_file", Doing::Collapse),
    // mm/shmem.c; some are a part of others.
    ("__shmem_file_setup", Doing::Promise),
    ("shmem_charge", Doing::Promise),
    ("shmem_evict_inode", Doing::Promise),
    ("shmem_fallocate", Doing::Promise),
    ("shmem_get_folio_gfp", Doing::Promise),
    ("shmem_mfill_atomic_pte", Doing::Promise),
    ("shmem_recalc_inode", Doing::Promise),
    ("shmem_setattr", Doing::Promise),
    ("shmem_swapin_folio", Doing::Promise),
    ("shmem_uncharge", Doing::Promise),
    ("shmem_undo_range", Doing::Promise),
    // mm/swapfile.c: all of the area is promised for a moment.
    ("__arm64_sys_swapoff", Doing::Promise),
    // mm/vmstat.c
    ("refresh_cpu_vm_stats", Doing::Fold),
    ("vmstat_update", Doing::Fold),
    ("quiet_vmstat", Doing::Fold),
    // kernel/sched/core.c: preempted anywhere in the kernel.
    ("preempt_schedule", Doing::Fold),
    ("preempt_schedule_notrace", Doing::Fold),
    ("preempt_schedule_irq", Doing::Fold),
    // mm/vmscan.c
    ("balance_pgdat", Doing::Isolate),
    ("shrink_node", Doing::Isolate),
    ("shrink_lruvec", Doing::Isolate),
    ("do_try_to_free_pages", Doing::Isolate),
    // mm/compaction.c, mm/migrate.c, mm/page_alloc.c
    ("compact_zone", Doing::Isolate),
    ("migrate_pages", Doing::Isolate),
    ("do_pages_move", Doing::Isolate),
    ("migrate_misplaced_folio", Doing::Isolate),
    ("alloc_contig_range", Doing::Isolate),
    ("alloc_contig_range_noprof", Doing::Isolate),
    // mm/page_reporting.c
    ("page_reporting_process", Doing::Isolate),
    // mm/mempolicy.c, mm/khugepaged.c, mm/memory-failure.c, mm/gup.c
    ("do_mbind", Doing::Isolate),
    ("do_migrate_pages", Doing::Isolate),
    ("collapse_huge_page", Doing::Isolate),
    ("soft_offline_page", Doing::Isolate),
    ("memory_failure", Doing::Isolate),
    ("__gup_longterm_locked", Doing::Isolate),
];
/// Where a CPU without a task waits for an interrupt (arch/arm64/kernel/idle.c).
const IDLE: &str = "cpu_do_idle";
/// In a kernel with PREEMPT_RT a task may be preempted with what is a spinlock elsewhere.
const RT: &str = "rt_spin_lock";
/// Behind a `kernel_clone()` that has done all that, in the parent of a `vfork()`.
const WAITING: &str = "wait_for_vfork_done";

/// An operation that a task is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// fork(): the child's entries are counted before it is in any list.
    Fork,
    /// An address space is taken down, which need not be of any task any more.
    End,
    /// exec(): pages of arguments are counted as the process's own before they are.
    Exec,
    /// Pages of a file are made into one folio, and counted in its page cache before they are there.
    Collapse,
    /// A file of shmem gets or gives back pages, which are promised before it has them, and after.
    Promise,
    /// A CPU's part of counters is on its way to those of all CPUs; or the task was preempted in the kernel, maybe between a
    /// change and its count.
    Fold,
    /// Folios are taken from the lists of the LRU, to be reclaimed, migrated or collapsed; or free pages from those of a zone, to
    /// be migrated to or reported.
    Isolate,
}

impl Doing {
    /// Returns whether it may be done in what another one calls.
    fn is_aside(self) -> bool {
        matches!(self, Doing::Fold | Doing::Isolate)
    }
}

/// Layout of this kernel's tasks.
#[derive(Debug)]
pub struct Layout {
    on_cpu: Member,
    fp: Member,
    pc: Member,
    functions: Vec<(Range<u64>, Doing)>,
    waiting: Option<Range<u64>>,
    /// Where a CPU is idle; none in a kernel whose tasks may be preempted anywhere.
    idle: Option<Range<u64>>,
}

/// The registers of a CPU that is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InKernel {
    /// The address of its task's `struct task_struct` (SP_EL0); something else on the way into the kernel.
    pub task: u64,
    /// The frame pointer, X29.
    pub fp: u64,
    /// The link register, X30.
    pub lr: u64,
    /// The program counter.
    pub pc: u64,
}

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let task = |path| kernel.types.member("task_struct", path);
        let range = |name| {
            let range = kernel.symbols.range(name);
            range.ok_or_else(|| StructureError::Missing(format!("function {name}")))
        };
        let functions = FUNCTIONS
            .iter()
            .map(|&(name, doing)| Ok((range(name)?, doing)));
        let mut functions: Vec<_> = functions.collect::<Result<_, _>>()?;
        functions.extend(
            MORE.iter()
                .filter_map(|&(name, doing)| Some((kernel.symbols.range(name)?, doing))),
        );
        Ok(Layout {
            on_cpu: task("on_cpu")?,
            fp: task("thread.cpu_context.fp")?,
            pc: task("thread.cpu_context.pc")?,
            functions,
            waiting: kernel.symbols.range(WAITING),
            idle: match kernel.symbols.address(RT) {
                Some(_) => None,
                None => kernel.symbols.range(IDLE),
            },
        })
    }

    /// Returns how many CPUs may be in the middle of changing counters, among `cpus`: each CPU's registers, if it is in the
    /// kernel; `found` is what [`Layout::find`] has found.
    pub fn counting(&self, cpus: &[Option<InKernel>], found: &[(&Process, Doing)]) -> usize {
        let Some(idle) = &self.idle else {
            return cpus.len();
        };
        if found.iter().any(|(_, doing)| *doing == Doing::Fold) {
            return cpus.len();
        }
        let counts = |cpu: &&InKernel| !idle.contains(&cpu.pc);
        cpus.iter().flatten().filter(counts).count()
    }

    /// Finds the tasks in the middle of one. `cpus`: each CPU's registers, if it is in the kernel.
    ///
    /// # Errors
    /// Where a task cannot be read.
    pub fn find<'p, M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        processes: &'p [Process],
        cpus: &[Option<InKernel>],
    ) -> Result<Vec<(&'p Process, Doing)>, StructureError> {
        let at = |task: &u64| cpus.iter().flatten().find(|cpu| cpu.task == *task);
        let all = || processes.iter().flat_map(|process| &process.tasks);
        let elsewhere = cpus.len() - all().filter_map(at).count();
        let running = |task: u64| Ok(view.number("a task", task, self.on_cpu)? != 0);
        let mut in_user_mode = 0;
        for task in all().filter(|task| at(task).is_none()) {
            in_user_mode += usize::from(running(*task)?);
        }
        let mut found = Vec::new();
        for process in processes {
            for task in &process.tasks {
                let all = match at(task) {
                    Some(cpu) => self.doing(view, cpu.fp, [cpu.pc, cpu.lr]),
                    // On the other CPUs, none of which is in the kernel for it; unless one is being switched.
                    None if running(*task)? && in_user_mode <= elsewhere => Vec::new(),
                    None => {
                        let fp = view.number("a task", *task, self.fp)?;
                        let pc = view.number("a task", *task, self.pc)?;
                        self.doing(view, fp, [pc, pc])
                    }
                };
                found.extend(all.into_iter().map(|doing| (process, doing)));
            }
        }
        Ok(found)
    }

    /// Returns what is done on a stack whose newest frame record is at `fp`: pairs of the next one and a return address (AAPCS64 6.4.6).
    fn doing<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        mut fp: u64,
        newest: [u64; 2],
    ) -> Vec<Doing> {
        let (mut found, mut aside) = (None, BTreeSet::new());
        let mut look = |address: u64| {
            // Without a signature (FEAT_PAuth).
            let address = address | view.upper.first.0;
            let within = |range: &&(Range<u64>, Doing)| range.0.contains(&address);
            match self.functions.iter().find(within).map(|(_, doing)| *doing) {
                Some(doing) if doing.is_aside() => drop(aside.insert(doing)),
                here => found = with_outer(found, here),
            }
            self.waiting
                .as_ref()
                .is_some_and(|it| it.contains(&address))
        };
        if newest.into_iter().any(&mut look) {
            return Vec::new();
        }
        for _ in 0..MOST_FRAMES {
            let Ok(record) = view.bytes("a kernel stack", fp, 16) else {
                break;
            };
            let word =
                |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| record[at + byte]));
            if look(word(8)) {
                return Vec::new();
            }
            fp = word(0);
        }
        found.into_iter().chain(aside).collect()
    }
}

/// Returns the operation by the calls up to `found`, and that of the next outer one: the innermost, but exec() reads a file of
/// shmem, and a collapse of pages charges one.
fn with_outer(found: Option<Doing>, outer: Option<Doing>) -> Option<Doing> {
    match found {
        None | Some(Doing::Promise) => outer.or(found),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_shmem_is_a_part_of_other_operations() {
        let of = |calls: &[Option<Doing>]| calls.iter().copied().fold(None, with_outer);
        let promise = Some(Doing::Promise);
        assert_eq!(of(&[None, promise, None]), promise);
        for outer in [Doing::Exec, Doing::Collapse, Doing::End] {
            assert_eq!(of(&[promise, None, Some(outer)]), Some(outer));
            assert_eq!(of(&[Some(outer), None, promise]), Some(outer));
        }
        assert_eq!(
            of(&[Some(Doing::Fork), Some(Doing::End)]),
            Some(Doing::Fork)
        );
    }
}
