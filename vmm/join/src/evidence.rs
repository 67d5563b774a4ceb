//! What was read of one instant and is judged: the one way from a snapshot to what the rules are asked.
//!
//! A look at a guest with our agent, a saved core, a guest in a QEMU of the user's own and one that hangs differ in how a
//! process is found and in what is known of it ([`One`]). What the rules then are asked is the same ([`crate::judge`]).

use snapshot::{Process as Captured, Snapshot};
use stage1::{Half, Regime};
use verdict::basis::{Input, Known};
use verdict::{Expectation, NotKnown, Process};

use crate::basis::{known, records, with_gathered};
use crate::one::One;
use crate::proof::{table_of, IN_KERNEL};
use crate::task_processes::why_not;
use crate::{getters, parse_vmas, Companion, Error, Gathered, Subject};

/// One instant of a guest, with all that the rules are asked of it.
#[derive(Debug)]
pub(crate) struct Evidence<'s> {
    /// Registers, memory and notes.
    pub snapshot: &'s Snapshot,
    /// What the kernel's own structures say, or why that is not known.
    pub gathered: Result<Gathered, NotKnown>,
    /// The process that waits for us, where one does. It is the first of `processes`.
    pub waiting: Option<Subject<'s>>,
    /// The processes whose tables are proved to be theirs.
    pub processes: Vec<One<'s>>,
    /// Those whose are not, and why, a sentence each.
    pub unproved: Vec<String>,
    /// Whether the kernel half is to be judged.
    pub kernel_half: bool,
}

impl<'s> Evidence<'s> {
    /// Adds all processes that are known by their tasks.
    ///
    /// # Errors
    /// Where the tables or VMAs of one cannot be read.
    pub fn with_tasks(mut self) -> Result<Self, Error> {
        let others = self.snapshot.notes.processes.iter();
        for other in others.filter(|it| table_of(it).is_some()) {
            self.processes
                .push(unheld(Subject::of(self.snapshot, other)?));
        }
        Ok(self)
    }

    /// Of one process that waits for us: the one with this pid, or the only one.
    ///
    /// # Errors
    /// Where there is none such, or its tables are not proved to be its own.
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

    /// Adds processes that wait as well, of which no more is known than tables and VMAs.
    ///
    /// # Errors
    /// Where their VMAs or registers cannot be read.
    pub fn with_companions(mut self, companions: &[Companion]) -> Result<Self, Error> {
        let (release, contpte) = self
            .waiting
            .as_ref()
            .map_or((None, None), |it| (it.release, it.contpte));
        for companion in companions {
            self.processes.push(One {
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

    /// Of a guest in which nobody waits for us.
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

    /// What is known beside what the rules will say, where the process `pid` or all of it is asked for.
    pub fn known(&self, pid: Option<u32>) -> Known {
        let known = known(self.snapshot, pid);
        let Some(waiting) = &self.waiting else {
            return known;
        };
        let (gathered, unread) = (self.gathered.as_ref().ok(), self.gathered.as_ref().err());
        let asked = self.processes.first();
        Known {
            expectations: match asked.is_some_and(|it| !it.expectations.is_empty()) {
                true => Input::Given,
                false => Input::NotAsked,
            },
            records: records(waiting, unread.filter(|why| !why.later)),
            getters: match asked.and_then(|it| it.getters) {
                Some(_) => Input::Given,
                None => Input::NotAsked,
            },
            ..with_gathered(known, gathered)
        }
    }
}

/// A process that waits for us.
fn held<'s>(subject: &Subject<'s>, expectations: &'s [Expectation]) -> One<'s> {
    One {
        process: process_of(subject.process),
        regime: subject.regime,
        vmas: Ok(subject.vmas.clone()),
        orders: subject.orders.as_ref().ok().cloned(),
        expectations,
        release: subject.release,
        contpte: subject.contpte,
        getters: getters::kept(subject.process),
        held: true,
        may_be_empty: false,
    }
}

/// A process that nobody holds.
fn unheld(subject: Subject<'_>) -> One<'_> {
    One {
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
