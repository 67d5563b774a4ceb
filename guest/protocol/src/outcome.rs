//! The outcome of a request that succeeded.

use serde::{Deserialize, Serialize};

use crate::{Content, Ended, Failure, Getters, Hello, ProcessId};

/// The result of a request. It is a `Result` with names that read well in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request succeeded.
    Ok(Outcome),
    /// The request failed, or was not completed.
    Error(Failure),
}

impl From<Result<Outcome, Failure>> for Answer {
    fn from(result: Result<Outcome, Failure>) -> Self {
        match result {
            Ok(outcome) => Self::Ok(outcome),
            Err(failure) => Self::Error(failure),
        }
    }
}

impl From<Answer> for Result<Outcome, Failure> {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Ok(outcome) => Ok(outcome),
            Answer::Error(failure) => Err(failure),
        }
    }
}

/// The content of a successful reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Facts about the guest.
    Hello(Box<Hello>),
    /// The answer to a ping.
    Pong {
        /// Milliseconds since the kernel's clock started.
        uptime_ms: u64,
    },
    /// It was done, and there are no further data.
    Done {},
    /// A process started, by spawn or fork, and waits for operations.
    Spawned(Spawned),
    /// A process or program has ended, as was requested.
    Ended {
        /// How it ended.
        how: Ended,
    },
    /// The mapping that is there now.
    Mapped {
        /// Its address.
        address: u64,
        /// Its requested length.
        length: u64,
    },
    /// The result of a touch.
    Touched(Touched),
    /// The result of a verification.
    Verified(Verified),
    /// The rest of a copy of page tables.
    Mirrored(Mirrored),
    /// Pages of a range.
    Pages {
        /// Their addresses, in their order.
        pages: Vec<u64>,
    },
    /// The results of several operations.
    Several {
        /// One for each, in their order.
        answers: Vec<Answer>,
    },
    /// Words of memory.
    Words {
        /// The words.
        words: Vec<u64>,
    },
    /// The nodes of pages.
    Nodes {
        /// For each page of the range its NUMA node, or the errno (negative) that `move_pages(2)` returned for it: -2
        /// (ENOENT) if there is no page.
        nodes: Vec<i32>,
    },
    /// The result of `file_read`.
    Read {
        /// Number of bytes before the end of the file.
        bytes: u64,
    },
    /// The process waits in user mode.
    Checkpoint(Box<Checkpoint>),
    /// A process's memory areas.
    Maps {
        /// `/proc/PID/maps`.
        maps: String,
        /// `/proc/PID/smaps`, if it was requested.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        smaps: Option<String>,
    },
    /// Entries of `/proc/PID/pagemap`.
    Pagemap {
        /// The virtual address of the first entry.
        address: u64,
        /// The entries, fewer than were requested if the address space ends.
        entries: Vec<u64>,
    },
    /// The kernel's own data on a process.
    Getters(Box<Getters>),
    /// The workload processes.
    Processes {
        /// In the order in which they were started.
        processes: Vec<ProcessInfo>,
    },
    /// A file's content.
    File(FileRead),
    /// The result of a program.
    Program(ProgramEnd),
}

/// A process that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spawned {
    /// The agent's number of it.
    pub process: ProcessId,
    /// The kernel's number of it.
    pub pid: i32,
    /// The CPU that it is pinned to.
    pub cpu: u32,
    /// Start of the loop of its checkpoints.
    pub pc_start: u64,
    /// The end of that loop, exclusive.
    pub pc_end: u64,
}

/// The result of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Touched {
    /// Number of its steps.
    pub steps: u64,
    /// Minor faults of the process during it; the workload's own code makes none then.
    pub minor_faults: u64,
    /// Major faults of the process during it.
    pub major_faults: u64,
    /// Its duration.
    pub nanoseconds: u64,
    /// The exclusive or of all words that were loaded.
    pub loaded: u64,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verified {
    /// Number of words that were compared.
    pub words: u64,
    /// Number of words that were wrong.
    pub wrong: u64,
    /// The first of those.
    pub first: Vec<Mismatch>,
}

/// The rest of a copy of page tables that MMU notifiers keep up to date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mirrored {
    /// Pages that were copied.
    pub copied: u64,
    /// Pages of those that notifiers have dropped since.
    pub dropped: u64,
    /// Pages that the process can no longer access as the copy has them.
    pub stale: u64,
    /// The first of those, in the order of their addresses.
    pub first: Vec<StalePage>,
}

/// A page that a copy of page tables has, and that the process can no longer access so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StalePage {
    /// Its virtual address.
    pub address: u64,
    /// The page frame in the copy.
    pub copied: MirroredPage,
    /// The page that is there now, if the process can read it.
    pub now: Option<MirroredPage>,
}

/// A page that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MirroredPage {
    /// The page frame.
    pub pfn: u64,
    /// True if it can be written too.
    pub writable: bool,
}

/// A word that differs from the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mismatch {
    /// Its address.
    pub address: u64,
    /// The expected word.
    pub expected: u64,
    /// The word found.
    pub found: u64,
}

/// A process that waits in user mode. All texts were read after it had arrived in its loop, in which it makes no system
/// call and no fault of its own until it is released.
///
/// A host that now stops the machine proves that a CPU runs this process by that CPU's registers: EL0, the program
/// counter in `pc_start..pc_end`, x19 the nonce and x20 the pid. If the kernel has `CONFIG_PID_IN_CONTEXTIDR`,
/// CONTEXTIDR_EL1 is the pid too. A CPU that serves an interrupt at that moment is not in EL0: let the machine run on
/// for a moment and stop it again. More waiting processes than CPUs take turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Checkpoint {
    /// The process.
    pub process: ProcessId,
    /// The kernel's number of it, as in x20.
    pub pid: i32,
    /// The request's value, as in x19.
    pub nonce: u64,
    /// Start of the loop.
    pub pc_start: u64,
    /// The end of the loop, exclusive.
    pub pc_end: u64,
    /// The CPU that it is pinned to while it waits.
    pub cpu: u32,
    /// The CPU that it ran on last, of `/proc/PID/stat`.
    pub last_cpu: Option<u32>,
    /// `State` of `/proc/PID/status`, such as `R (running)`.
    pub state: String,
    /// `/proc/PID/maps`.
    pub maps: String,
    /// `/proc/PID/smaps`, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smaps: Option<String>,
}

/// A workload process, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessInfo {
    /// The agent's number of it.
    pub process: ProcessId,
    /// The kernel's number of it.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// The process that it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ProcessId>,
    /// The CPU that it is pinned to.
    pub cpu: u32,
    /// Its state.
    pub state: ProcessState,
}

/// State of a workload process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// It was started and has not reported yet.
    Starting,
    /// It waits for a command.
    Idle,
    /// It does an operation.
    Busy,
    /// It is on its way to a checkpoint, or into it.
    Arriving,
    /// It waits at a checkpoint.
    Waiting,
    /// It is on its way out of a checkpoint.
    Leaving,
    /// It missed a deadline and has not answered since.
    Stuck,
    /// It was told to end.
    Ending,
}

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileRead {
    /// The offset of its first byte.
    pub offset: u64,
    /// Its bytes.
    pub content: Content,
    /// True if the end of the file was reached. If not, read again from `offset` plus the length of this part.
    pub end: bool,
}

/// The result of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramEnd {
    /// The kernel's number of it; `None` from an agent that is older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How it ended.
    pub how: Ended,
    /// Its standard output.
    pub stdout: Content,
    /// Its standard error.
    pub stderr: Content,
    /// True if one of the two had more output than is kept here.
    pub truncated: bool,
}
