//! The agent's table of workload processes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use protocol::{Ended, Failure, ProcessId, ProcessInfo, ProcessState, Request, Spawned};

use crate::link::Link;
use crate::slots::SLOTS;

/// Number of ended processes whose ends are remembered.
const REMEMBERED: usize = 1024;

/// A request that has not been answered.
#[derive(Debug, Clone, Copy)]
pub struct Pending {
    /// Its id.
    pub id: u64,
    /// Its deadline in milliseconds.
    pub deadline_ms: u64,
    /// When that is.
    pub until: Instant,
}

impl Pending {
    /// Returns the deadline counts from now.
    pub fn new(request: &Request) -> Self {
        // A year is as good as never, and cannot overflow.
        let ms = request.deadline_ms.min(365 * 24 * 3600 * 1000);
        Self {
            id: request.id,
            deadline_ms: request.deadline_ms,
            until: Instant::now() + Duration::from_millis(ms),
        }
    }

    /// Returns the failure when it is not answered in time.
    pub fn failure(&self, what: impl Into<String>) -> Failure {
        Failure::Deadline {
            after_ms: self.deadline_ms,
            what: what.into(),
        }
    }
}

/// Current work of a process.
#[derive(Debug)]
pub struct Work {
    /// Its request.
    pub pending: Pending,
    /// Its kind.
    pub kind: Kind,
    /// True if its deadline has passed, and the host was told.
    pub late: bool,
}

/// Kinds of work.
#[derive(Debug)]
pub enum Kind {
    /// It starts.
    Start,
    /// An operation that needs no further attention, of that name.
    Operation(&'static str),
    /// It pins itself to that CPU.
    Pin(u32),
    /// It forks.
    Fork {
        /// The child's number.
        child: ProcessId,
        /// True if the parent has reported that it forked.
        forked: bool,
    },
    /// It exits.
    Exit,
    /// It goes to a checkpoint.
    Checkpoint(Waiting),
    /// It leaves a checkpoint.
    Release,
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Self::Start => "its start",
            Self::Operation(name) => name,
            Self::Pin(_) => "pin",
            Self::Fork { .. } => "fork",
            Self::Exit => "exit",
            Self::Checkpoint(_) => "a checkpoint",
            Self::Release => "the release of a checkpoint",
        }
    }
}

/// A checkpoint.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// Its number, for the slot.
    pub number: u64,
    /// The host's value.
    pub nonce: u64,
    /// The CPU on which the process waits.
    pub cpu: u32,
    /// True if the host wants smaps.
    pub smaps: bool,
    /// The process has announced that it is there.
    pub announced: bool,
}

/// A workload process.
#[derive(Debug)]
pub struct Process {
    /// The agent's number of it.
    pub id: ProcessId,
    /// The kernel's number of it, once it is known.
    pub pid: Option<i32>,
    /// Its name.
    pub name: String,
    /// The process that it was forked from.
    pub parent: Option<ProcessId>,
    /// The CPU that it is pinned to.
    pub cpu: u32,
    /// Its slot.
    pub slot: usize,
    /// Its pipes.
    pub link: Link,
    /// The loop of its checkpoints; unknown until it has started.
    pub range: Option<(u64, u64)>,
    /// Its current work.
    pub work: Option<Work>,
    /// The checkpoint at which it waits.
    pub waiting: Option<Waiting>,
    /// Set if it was sent SIGKILL: the request for that, if its deadline has not passed.
    pub killed: Option<Option<Pending>>,
}

impl Process {
    /// Returns what the host learns at its start.
    pub fn spawned(&self) -> Spawned {
        let (pc_start, pc_end) = self.range.unwrap_or_default();
        Spawned {
            process: self.id,
            pid: self.pid.unwrap_or(0),
            cpu: self.cpu,
            pc_start,
            pc_end,
        }
    }

    /// Returns what it does.
    pub fn state(&self) -> ProcessState {
        if self.killed.is_some() {
            return ProcessState::Ending;
        }
        match &self.work {
            Some(work) if work.late => ProcessState::Stuck,
            Some(work) => match work.kind {
                Kind::Start => ProcessState::Starting,
                Kind::Checkpoint(_) => ProcessState::Arriving,
                Kind::Release => ProcessState::Leaving,
                Kind::Exit => ProcessState::Ending,
                Kind::Operation(_) | Kind::Pin(_) | Kind::Fork { .. } => ProcessState::Busy,
            },
            None if self.range.is_none() => ProcessState::Starting,
            None if self.waiting.is_some() => ProcessState::Waiting,
            None => ProcessState::Idle,
        }
    }

    /// Returns a description for people.
    pub fn info(&self) -> ProcessInfo {
        ProcessInfo {
            process: self.id,
            pid: self.pid.unwrap_or(0),
            name: self.name.clone(),
            parent: self.parent,
            cpu: self.cpu,
            state: self.state(),
        }
    }

    /// Returns what it is at work on, for a failure.
    pub fn current_work(&self) -> String {
        let Some(work) = &self.work else {
            return format!("{}", self.id);
        };
        format!("{} of {}", work.kind.name(), self.id)
    }

    /// Returns whether it can take an operation now.
    pub fn check_idle(&self) -> Result<(), Failure> {
        let doing = match self.state() {
            ProcessState::Idle => return Ok(()),
            ProcessState::Waiting => {
                format!("{} waits at a checkpoint, release it first", self.id)
            }
            ProcessState::Starting => format!("{} starts", self.id),
            ProcessState::Ending => format!("{} was told to end", self.id),
            ProcessState::Stuck => format!("{} missed its deadline", self.current_work()),
            ProcessState::Busy | ProcessState::Arriving | ProcessState::Leaving => {
                self.current_work()
            }
        };
        Err(Failure::Busy { doing })
    }
}

/// The existing processes, and the ends of former ones.
#[derive(Debug, Default)]
pub struct Processes {
    live: BTreeMap<ProcessId, Process>,
    ended: BTreeMap<ProcessId, Ended>,
    last: u32,
}

impl Processes {
    /// Returns a number for a new process, never used before, and a slot that is free.
    pub fn reserve(&mut self) -> Result<(ProcessId, usize), Failure> {
        let slot = (0..SLOTS)
            .find(|&slot| self.live.values().all(|p| p.slot != slot))
            .ok_or_else(|| Failure::bad(format!("there are {SLOTS} processes already")))?;
        self.last += 1;
        Ok((ProcessId(self.last), slot))
    }

    /// Adds a process.
    pub fn add(&mut self, process: Process) {
        self.live.insert(process.id, process);
    }

    /// Returns the process of that number.
    pub fn get(&mut self, id: ProcessId) -> Result<&mut Process, Failure> {
        match self.live.get_mut(&id) {
            Some(process) => Ok(process),
            None => Err(match self.ended.get(&id) {
                Some(how) => Failure::ProcessLost { how: how.clone() },
                None => Failure::bad(format!("there is no {id}, and none ended lately")),
            }),
        }
    }

    /// Returns the number of the process with that pid.
    pub fn with_pid(&self, pid: i32) -> Option<ProcessId> {
        self.live
            .values()
            .find(|p| p.pid == Some(pid))
            .map(|p| p.id)
    }

    /// Returns the number of the process that is forking that child.
    pub fn forking(&self, wanted: ProcessId) -> Option<ProcessId> {
        let forks = |p: &&Process| {
            p.work.as_ref().is_some_and(
                |work| matches!(work.kind, Kind::Fork { child, .. } if child == wanted),
            )
        };
        self.live.values().find(forks).map(|p| p.id)
    }

    /// Takes a process out, and remembers how it ended where it has.
    pub fn remove(&mut self, id: ProcessId, how: Option<Ended>) -> Option<Process> {
        if let Some(how) = how {
            self.ended.insert(id, how);
            if self.ended.len() > REMEMBERED {
                self.ended.pop_first();
            }
        }
        self.live.remove(&id)
    }

    /// Returns all processes.
    pub fn iter(&self) -> impl Iterator<Item = &Process> {
        self.live.values()
    }

    /// Returns all processes, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.live.values_mut()
    }

    /// Returns how many wait, or are about to, at a checkpoint on that CPU.
    pub fn waiting_on(&self, cpu: u32) -> usize {
        let there = |p: &&Process| match (&p.waiting, &p.work) {
            (Some(waiting), _) => waiting.cpu == cpu,
            (None, Some(work)) => matches!(work.kind, Kind::Checkpoint(w) if w.cpu == cpu),
            (None, None) => false,
        };
        self.iter().filter(there).count()
    }
}
