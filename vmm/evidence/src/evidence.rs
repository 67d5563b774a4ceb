// SPDX-License-Identifier: GPL-2.0-only
//! Input of the rules, built from a snapshot in this one place.
//!
//! A live look, a saved core, an external QEMU and a hung guest differ in how a process's root table is proved and in how
//! much is known of the process ([`ProcessEvidence`]). The crate `analysis` treats all of them alike.

use linux::expectation::Expectation;
use linux::process::Process;
use linux::structures::NotKnown;
use snapshot::{Process as Captured, Snapshot};
use stage1::{Half, Regime};

use crate::process::ProcessEvidence;
use crate::root_table::{table_of, IN_KERNEL};
use crate::task_processes::why_not;
use crate::{parse_vmas, procfs, Companion, Error, Gathered, Subject};

/// Evidence of one instant: the snapshot and everything the rules read beside it.
#[derive(Debug)]
pub struct Evidence<'s> {
    /// Registers, memory and notes.
    pub snapshot: &'s Snapshot,
    /// The kernel's structures, or why they are not known.
    pub gathered: Result<Gathered, NotKnown>,
    /// The process at a checkpoint, if there is one. It is the first of `processes`.
    pub waiting: Option<Subject<'s>>,
    /// The processes whose tables are proved to be theirs.
    pub processes: Vec<ProcessEvidence<'s>>,
    /// One sentence for each process whose root table is not proved.
    pub unproved: Vec<String>,
    /// True if the kernel half is to be judged.
    pub kernel_half: bool,
}

impl<'s> Evidence<'s> {
    /// Adds every process whose root table its `task_struct` gives.
    ///
    /// # Errors
    /// If the tables or VMAs of one cannot be read.
    pub fn with_tasks(mut self) -> Result<Self, Error> {
        let others = self.snapshot.notes.processes.iter();
        for other in others.filter(|it| table_of(it).is_some()) {
            self.processes
                .push(unheld(Subject::of(self.snapshot, other)?));
        }
        Ok(self)
    }

    /// Returns the evidence on one process at a checkpoint: the one with this pid, or the only one.
    ///
    /// # Errors
    /// If there is no such process, or no CPU is proved to run it.
    pub fn of_waiting(
        snapshot: &'s Snapshot,
        pid: Option<u32>,
        expectations: &'s [Expectation],
    ) -> Result<Self, Error> {
        let subject = Subject::find(snapshot, pid)?;
        Ok(Self {
            snapshot,
            gathered: Gathered::of(snapshot),
            processes: vec![held(&subject, expectations)],
            waiting: Some(subject),
            unproved: Vec::new(),
            kernel_half: false,
        })
    }

    /// Adds other processes at a checkpoint. Only their tables and VMAs are known.
    ///
    /// # Errors
    /// If their VMAs or registers cannot be read.
    pub fn with_companions(mut self, companions: &[Companion]) -> Result<Self, Error> {
        let (release, contpte) = self
            .waiting
            .as_ref()
            .map_or((None, None), |it| (it.release, it.contpte));
        for companion in companions {
            self.processes.push(ProcessEvidence {
                process: Process {
                    pid: companion.pid,
                    name: companion.name.clone(),
                },
                regime: Regime::new(&companion.cpu.system, Half::Lower)?,
                vmas: Ok(parse_vmas(&companion.maps)?),
                orders: None,
                expectations: &[],
                release,
                contpte,
                getters: None,
                held: true,
                may_be_empty: false,
            });
        }
        Ok(self)
    }

    /// Returns the evidence on a guest without a process at a checkpoint: all its processes and the kernel half.
    pub fn of_guest(snapshot: &'s Snapshot) -> Self {
        let (mut processes, mut unproved) = (Vec::new(), Vec::new());
        for process in &snapshot.notes.processes {
            match Subject::of(snapshot, process) {
                Ok(subject) => processes.push(unheld(subject)),
                Err(error) => {
                    unproved.push(format!("process {} {}: {error}", process.pid, process.name))
                }
            }
        }
        Self {
            snapshot,
            gathered: Gathered::of(snapshot),
            waiting: None,
            processes,
            unproved,
            kernel_half: true,
        }
    }
}

/// A process at a checkpoint.
fn held<'s>(subject: &Subject<'s>, expectations: &'s [Expectation]) -> ProcessEvidence<'s> {
    ProcessEvidence {
        process: process_of(subject.process),
        regime: subject.regime,
        vmas: Ok(subject.vmas.clone()),
        orders: subject.orders.as_ref().ok().cloned(),
        expectations,
        release: subject.release,
        contpte: subject.contpte,
        getters: procfs::kept(subject.process),
        held: true,
        may_be_empty: false,
    }
}

/// A process that runs freely.
fn unheld(subject: Subject<'_>) -> ProcessEvidence<'_> {
    ProcessEvidence {
        process: process_of(subject.process),
        regime: subject.regime,
        vmas: match subject.vmas.is_empty() {
            true => Err(why_not(subject.process)),
            false => Ok(subject.vmas),
        },
        orders: None,
        expectations: &[],
        release: subject.release,
        contpte: subject.contpte,
        getters: None,
        held: false,
        may_be_empty: subject.process.extra.contains_key(IN_KERNEL),
    }
}

fn process_of(process: &Captured) -> Process {
    Process {
        pid: process.pid,
        name: process.name.clone(),
    }
}
