// SPDX-License-Identifier: GPL-2.0-only
//! One instant of a guest in which no process waits for us, while it stands still: what has to be read of it.

use linux::structures::NotKnown;
use snapshot::{Cpu, Notes, Process};
use stage1::{Half, PhysMemory, Regime};
use structures::View;

use crate::cpus::{kernel_half, lower_with};
use crate::gathered::NO_KERNEL;
use crate::inside::Inside;
use crate::root_table::{processes, table_of, KnownProcess};
use crate::tables::walk_all;
use crate::task_processes::{complete, Spaces};
use crate::{gather, guest_notes, pages, Extent, Facts, Gathered};

/// The processes of an instant, and what was read of the kernel's structures.
#[derive(Debug)]
pub struct Found {
    /// The processes that CPUs are in user mode with, and all that are known by their tasks.
    pub processes: Vec<Process>,
    /// The kernel's structures, or the reason that they were not read.
    pub gathered: Result<Gathered, NotKnown>,
    /// The address spaces of all tasks, or why these are not known.
    spaces: Spaces,
}

impl Found {
    /// Keeps it with a snapshot of this instant.
    pub fn keep(self, notes: &mut Notes) {
        notes.processes = self.processes;
        guest_notes::keep_spaces(notes, self.spaces);
        Gathered::keep(&self.gathered, notes);
    }
}

/// Reads, through `memory`, all that will be asked of a copy: both halves' tables, the order records, the structures.
/// `attended`: the processes whose tables a checkpoint has shown.
pub fn read<M: PhysMemory + ?Sized>(
    memory: &M,
    cpus: &[Cpu],
    facts: Facts,
    inside: Result<&Inside, NotKnown>,
    attended: &[KnownProcess],
) -> Found {
    let _ = pages(memory, cpus, None, facts, Extent::KERNEL);
    let mut processes = processes(cpus, attended);
    let spaces = match (&inside, kernel_half(cpus)) {
        (Ok(inside), Some(upper)) => {
            let view = View {
                memory,
                upper: &upper,
            };
            complete(&inside.kernel, view, cpus, &mut processes)
        }
        (Err(why), _) => Err(why.why.clone().into()),
        (_, None) => Err(NO_KERNEL.into()),
    };
    let half = |process: &Process| match table_of(process) {
        Some(table) => lower_with(cpus, table),
        None => {
            let cpu = process.cpu.and_then(|index| cpus.get(index))?;
            Regime::new(&cpu.system, Half::Lower).ok()
        }
    };
    let halves: Vec<Regime> = processes.iter().filter_map(half).collect();
    let gathered = inside.and_then(|inside| gather(inside, memory, cpus, &halves));
    // What was gathered has walked the tables of all that it knows.
    let walked = |half: &&Regime| {
        let gathered = gathered.as_ref().ok();
        gathered.is_some_and(|it| it.space(half.root.0).is_some())
    };
    for half in halves.iter().filter(|half| !walked(half)) {
        walk_all(memory, half);
    }
    Found {
        processes,
        gathered,
        spaces,
    }
}
