//! What a request that succeeded gives.

use serde::{Deserialize, Serialize};

use crate::{Content, Ended, Getters, Hello, ProcessId};

/// The content of a successful reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Who the guest is.
    Hello(Box<Hello>),
    /// The answer to a ping.
    Pong {
        /// Milliseconds since the kernel's clock started.
        uptime_ms: u64,
    },
    /// It was done, and there is nothing more to say.
    Done {},
    /// A process started, by spawn or fork, and waits for operations.
    Spawned(Spawned),
    /// A process or program is gone, as was asked.
    Ended {
        /// How.
        how: Ended,
    },
    /// The mapping that is there now.
    Mapped {
        /// Its address.
        address: u64,
        /// Its length as it was asked for.
        length: u64,
    },
    /// What a touch did.
    Touched(Touched),
    /// What a verification found.
    Verified(Verified),
    /// Words of memory.
    Words {
        /// The words.
        words: Vec<u64>,
    },
    /// Where pages are.
    Nodes {
        /// For each page of the range its NUMA node, or the errno (negative) that `move_pages(2)` gave for it:
        /// -2 (ENOENT) where none is there.
        nodes: Vec<i32>,
    },
    /// What `file_read` read.
    Read {
        /// How many bytes before the end of the file.
        bytes: u64,
    },
    /// The process waits in user mode.
    Checkpoint(Box<Checkpoint>),
    /// A process's memory areas.
    Maps {
        /// `/proc/PID/maps`.
        maps: String,
        /// `/proc/PID/smaps`, where it was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        smaps: Option<String>,
    },
    /// Entries of `/proc/PID/pagemap`.
    Pagemap {
        /// The virtual address of the first entry.
        address: u64,
        /// The entries, fewer than were asked for where the address space ends.
        entries: Vec<u64>,
    },
    /// What the kernel's getters say of a process.
    Getters(Box<Getters>),
    /// The workload processes.
    Processes {
        /// In the order in which they were started.
        processes: Vec<ProcessInfo>,
    },
    /// A file's content.
    File(FileRead),
    /// What a program did.
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
    /// Where the loop of its checkpoints starts.
    pub pc_start: u64,
    /// The end of that loop, exclusive.
    pub pc_end: u64,
}

/// What a touch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Touched {
    /// How many steps it made.
    pub steps: u64,
    /// Minor faults of the process during it; the workload's own code makes none then.
    pub minor_faults: u64,
    /// Major faults of the process during it.
    pub major_faults: u64,
    /// How long it took.
    pub nanoseconds: u64,
    /// The exclusive or of all words that were loaded.
    pub loaded: u64,
}

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verified {
    /// How many words were compared.
    pub words: u64,
    /// How many were wrong.
    pub wrong: u64,
    /// The first of those.
    pub first: Vec<Mismatch>,
}

/// A word that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mismatch {
    /// Its address.
    pub address: u64,
    /// What should be there.
    pub expected: u64,
    /// What is there.
    pub found: u64,
}

/// A process that waits in user mode. All texts were read after it had arrived in its loop, in
/// which it makes no system call and no fault of its own until it is released.
///
/// Whoever stops the machine now proves that a CPU runs this process by that CPU's registers: EL0,
/// the program counter in `pc_start..pc_end`, x19 the nonce and x20 the pid. Where the kernel has
/// `CONFIG_PID_IN_CONTEXTIDR`, CONTEXTIDR_EL1 is the pid too. A CPU that serves an interrupt at that
/// moment is not in EL0: let the machine run on for a moment and stop it again. More waiting
/// processes than CPUs take turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Checkpoint {
    /// Which process.
    pub process: ProcessId,
    /// The kernel's number of it, as in x20.
    pub pid: i32,
    /// The request's value, as in x19.
    pub nonce: u64,
    /// Where the loop starts.
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
    /// `/proc/PID/smaps`, where it was asked for.
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
    /// What it does.
    pub state: ProcessState,
}

/// What a workload process does.
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
    /// It was asked to end.
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
    /// Whether the end of the file was seen. If not, ask again from `offset` plus what came.
    pub end: bool,
}

/// What a program did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramEnd {
    /// The kernel's number of it; `None` from an agent that is older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How it ended.
    pub how: Ended,
    /// What it wrote to its standard output.
    pub stdout: Content,
    /// What it wrote to its standard error.
    pub stderr: Content,
    /// Whether more was written to one of the two than is given here.
    pub truncated: bool,
}
