//! Commands of the host to the agent.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Operation;

/// Maximum number of pages whose `/proc/PID/pagemap` entries one [`Command::Pagemap`] may read, so that the reply fits
/// in a line.
pub const MAX_PAGEMAP_PAGES: u64 = 1 << 18;

/// The most bytes that one [`Command::ReadFile`] gives, and the default.
pub const MAX_READ: u64 = 1 << 20;

/// The agent's own number of a workload process. Never used twice in one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct ProcessId(
    /// The number.
    pub u32,
);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.0)
    }
}

/// The name of the one file that [`Command::MountErofs`] makes.
pub const EROFS_FILE: &str = "file";

/// A request's content. The reply that a success gives is named in each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Repeats the greeting: [`Outcome::Hello`](crate::Outcome::Hello). It is for a host that attaches to a running
    /// guest.
    Hello {},
    /// [`Outcome::Pong`](crate::Outcome::Pong).
    Ping {},
    /// Starts a workload process: [`Outcome::Spawned`](crate::Outcome::Spawned).
    Spawn {
        /// A name for people. It becomes the process's `comm`, cut to 15 bytes.
        #[serde(default)]
        name: String,
        /// The CPU that it is pinned to; else the agent chooses one, not its own if there is another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cpu: Option<u32>,
        /// Keeps the kernel's address space randomization. Off by default, so that a run repeats.
        #[serde(default)]
        randomize: bool,
    },
    /// Does one operation inside a workload process. The reply is the operation's.
    Op {
        /// The process.
        process: ProcessId,
        /// The operation.
        op: Operation,
    },
    /// Lets the process wait in user mode at the known instruction: [`Outcome::Checkpoint`](crate::Outcome::Checkpoint)
    /// once it is there.
    Checkpoint {
        /// The process.
        process: ProcessId,
        /// The value that it holds in register x19 while it waits.
        nonce: u64,
        /// Also gives `/proc/PID/smaps`.
        #[serde(default)]
        smaps: bool,
    },
    /// Ends the wait of a checkpoint: [`Outcome::Done`](crate::Outcome::Done) when the process is
    /// out of the loop.
    Release {
        /// The process.
        process: ProcessId,
    },
    /// `/proc/PID/maps` of a process in any state: [`Outcome::Maps`](crate::Outcome::Maps).
    Maps {
        /// The process.
        process: ProcessId,
        /// Also gives `/proc/PID/smaps`.
        #[serde(default)]
        smaps: bool,
    },
    /// Raw entries of `/proc/PID/pagemap`: [`Outcome::Pagemap`](crate::Outcome::Pagemap).
    Pagemap {
        /// The process.
        process: ProcessId,
        /// The first virtual address; rounded down to a page.
        address: u64,
        /// Number of pages, up to [`MAX_PAGEMAP_PAGES`].
        pages: u64,
    },
    /// Reads pagemap, kpageflags, kpagecount, PAGEMAP_SCAN, smaps and the counters of sizes for a process, for up to
    /// [`MAX_GETTER_PAGES`](crate::MAX_GETTER_PAGES) pages: [`Outcome::Getters`](crate::Outcome::Getters).
    Getters {
        /// The process.
        process: ProcessId,
    },
    /// Ends a process by SIGKILL: [`Outcome::Ended`](crate::Outcome::Ended) once it is gone.
    Kill {
        /// The process.
        process: ProcessId,
    },
    /// Lists the existing workload processes: [`Outcome::Processes`](crate::Outcome::Processes).
    Processes {},
    /// Reads a file of the guest: [`Outcome::File`](crate::Outcome::File).
    ReadFile {
        /// Its path, in which `{pid}` stands for the process's id.
        path: String,
        /// The process for `{pid}`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessId>,
        /// The first byte.
        #[serde(default)]
        offset: u64,
        /// The most bytes; [`MAX_READ`] when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<u64>,
    },
    /// Writes a text to a file with one `write(2)`, as sysfs, debugfs and procfs need it:
    /// [`Outcome::Done`](crate::Outcome::Done).
    WriteFile {
        /// Its path, in which `{pid}` stands for the process's id.
        path: String,
        /// The text, in which `{pid}` stands for the same.
        text: String,
        /// The process for `{pid}`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessId>,
        /// Makes the file, or empties the one that is there.
        #[serde(default)]
        create: bool,
    },
    /// `swapon(2)`: swaps to a block device or a file: [`Outcome::Done`](crate::Outcome::Done).
    SwapOn {
        /// Its path.
        path: String,
        /// Writes a swap area's header first, for all of its size.
        #[serde(default)]
        format: bool,
    },
    /// Calls `swapoff(2)`, which swaps all pages in: [`Outcome::Done`](crate::Outcome::Done).
    SwapOff {
        /// Its path.
        path: String,
    },
    /// Makes a file system (EROFS) on a block device and mounts it read-only: [`Outcome::Done`](crate::Outcome::Done).
    /// It has one file, [`EROFS_FILE`], with the pattern of salt 0 by the offset in the file.
    MountErofs {
        /// The device's path; its contents are lost.
        device: String,
        /// The mount point; created if there is no such directory.
        directory: String,
        /// Bytes of the file, whole 4 KiB.
        length: u64,
    },
    /// `umount2(2)`: [`Outcome::Done`](crate::Outcome::Done).
    Unmount {
        /// The mount point.
        directory: String,
    },
    /// Runs a program of the initramfs to its end: [`Outcome::Program`](crate::Outcome::Program).
    /// At the deadline its process group is killed.
    Run {
        /// The program and its arguments, in which `{pid}` stands for the process's id.
        argv: Vec<String>,
        /// Its standard input; empty when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
        /// The process for `{pid}`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessId>,
    },
    /// Switches the machine off, after [`Outcome::Done`](crate::Outcome::Done).
    Poweroff {},
    /// Makes the kernel panic, after [`Outcome::Done`](crate::Outcome::Done). To test the host.
    Panic {},
}
