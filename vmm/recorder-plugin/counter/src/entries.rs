// SPDX-License-Identifier: GPL-2.0-only
//! Instructions of the kernel on one CPU, by the cause of its entry: a state for each task, updated with instants and
//! counts.
//!
//! Instructions from an exception of user code up to the return to it belong to that exception, and stay with the task
//! if it sleeps in between. An interrupt that arrives while the kernel runs belongs to the interrupted work.
//! Instructions that no such exception began (kernel threads, the idle loop) have no cause. A new task's first steps
//! have none either, unless its `task_struct` was an earlier task's, whose last exception gets them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The reason why the kernel is executing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// No exception of user code.
    #[default]
    Own,
    /// A load or store of user code (ESR_ELx.EC 0x24).
    DataAbort,
    /// A fetch of user code (0x20).
    InstructionAbort,
    /// SVC (0x15): the number in x8.
    Syscall(u64),
    /// Another synchronous exception, FIQ or SError.
    Other,
    /// IRQ.
    Interrupt,
}

impl Cause {
    /// Classifies an entry by the vector's offset from VBAR_EL1 (Arm ARM D1.3.1, for a lower exception level in
    /// AArch64), ESR_EL1 and x8.
    pub fn of(vector: u64, esr: u64, x8: u64) -> Self {
        match (vector, esr >> 26 & 0x3f) {
            (0x400, 0x24) => Self::DataAbort,
            (0x400, 0x20) => Self::InstructionAbort,
            (0x400, 0x15) => Self::Syscall(x8),
            (0x480, _) => Self::Interrupt,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => out.write_str("own"),
            Self::DataAbort => out.write_str("data abort"),
            Self::InstructionAbort => out.write_str("instruction abort"),
            Self::Syscall(number) => write!(out, "syscall {number}"),
            Self::Other => out.write_str("other"),
            Self::Interrupt => out.write_str("interrupt"),
        }
    }
}

/// The state, and the sums so far. Counts are the CPU's instructions in the kernel since it came up.
#[derive(Default)]
pub struct Entries {
    /// The address of the running task's `task_struct`.
    task: u64,
    /// The count up to which all instructions are assigned.
    since: u64,
    causes: HashMap<u64, Cause>,
    sums: BTreeMap<Cause, (u64, u64)>,
}

impl Entries {
    /// User code has come to a vector, at this count.
    pub fn entered(&mut self, cause: Cause, count: u64) {
        self.settle(count);
        self.causes.insert(self.task, cause);
        self.sums.entry(cause).or_default().0 += 1;
    }

    /// Handles a switch to this task, which may be the current one.
    pub fn runs(&mut self, task: u64, count: u64) {
        self.settle(count);
        self.task = task;
    }

    /// Handles a return to user code.
    pub fn left(&mut self, count: u64) {
        self.settle(count);
        self.causes.remove(&self.task);
    }

    fn settle(&mut self, count: u64) {
        let more = count - std::mem::replace(&mut self.since, count);
        let cause = self.causes.get(&self.task).copied().unwrap_or_default();
        self.sums.entry(cause).or_default().1 += more;
    }

    /// Returns how often, and how many instructions.
    pub fn sums(&self) -> impl Iterator<Item = (Cause, u64, u64)> + '_ {
        self.sums
            .iter()
            .map(|(cause, (times, count))| (*cause, *times, *count))
    }
}
