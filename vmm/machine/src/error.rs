// SPDX-License-Identifier: GPL-2.0-only
//! Everything that can go wrong with a machine, each with its own sentence.

use std::path::PathBuf;
use std::time::Duration;

use snapshot::MemoryError;
use untrusted::{escaped, Text};

/// The reason why a machine did not do what was requested.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The request makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// QEMU is not installed.
    #[error("{} was not found: install Debian's qemu-system-arm, version 10 or later (on Debian 12: from bookworm-backports), or name another one", .0.display())]
    NoQemu(PathBuf),
    /// The file in QEMU's place is not a program that can be started.
    #[error("expected QEMU (qemu-system-aarch64) at {} and found {found}; name another one with --qemu", .program.display())]
    UnfitQemu {
        /// The file.
        program: PathBuf,
        /// A noun phrase for the file.
        found: String,
    },
    /// The program runs, and is not QEMU.
    #[error("{} ended before the guest started, with {status}, and is no QEMU by its --version; it said: {stderr}; name another one with --qemu", .program.display())]
    NotQemu {
        /// The program.
        program: PathBuf,
        /// The exit status or signal.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// QEMU lacks a function that the rig needs.
    #[error("QEMU {found} is too old: version {expected} or later is needed (on Debian 12: qemu-system-arm from bookworm-backports)")]
    TooOld {
        /// The version found.
        found: String,
        /// The oldest that does.
        expected: String,
    },
    /// A system call failed while the machine was set up.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted operation.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// QEMU refused to start.
    #[error("QEMU ended before the guest started, with {status}; it said: {stderr}")]
    NotStarted {
        /// The exit status or signal.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// QEMU ended while the guest ran.
    #[error("the guest is lost: QEMU ended with {status}; it said: {stderr}")]
    Lost {
        /// The exit status or signal.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// The guest's kernel panicked.
    #[error("the guest's kernel panicked, and its console ends with: {}", escaped(last_words(.console)))]
    Panicked {
        /// The end of the console.
        console: String,
    },
    /// The guest ended by itself.
    #[error("the guest {} by itself, and its console ends with: {}", if *.reset { "restarted" } else { "powered off" }, escaped(last_words(.console)))]
    Ended {
        /// True if it requested a reset rather than power-off.
        reset: bool,
        /// The end of the console.
        console: String,
    },
    /// QEMU's monitor.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// QEMU's gdb stub.
    #[error(transparent)]
    Gdb(#[from] GdbError),
    /// The gdb stub is lent to a debugger.
    #[error("a debugger has QEMU's gdb stub at {}: registers can be read when it has detached and the stub is taken back", .0.display())]
    GdbLent(PathBuf),
    /// The channel to the agent.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// Guest memory is not laid out as it can be.
    #[error("the guest's memory is not what it should be: {0}")]
    Memory(#[from] MemoryError),
    /// Guest memory is not at the address that QEMU was given.
    #[error("expected {expected:#x} bytes of RAM in the guest's memory map, found {found:#x}")]
    Ram {
        /// The requested address.
        expected: u64,
        /// The address in the memory map.
        found: u64,
    },
    /// An error of a machine on KVM, whose errors are its own crate's.
    #[error(transparent)]
    Kvm(Box<dyn std::error::Error + Send + Sync>),
    /// The machine has no such function.
    #[error("a machine of kind {kind} cannot {what}")]
    Unsupported {
        /// The machine.
        kind: &'static str,
        /// The requested function.
        what: &'static str,
    },
}

impl MachineError {
    /// Returns whether the guest can no longer be used: it has ended, or its machine has ended or does not answer.
    /// After a refused request that makes no sense the guest runs on.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Self::NotStarted { .. }
            | Self::NotQemu { .. }
            | Self::Lost { .. }
            | Self::Panicked { .. }
            | Self::Ended { .. }
            | Self::Qmp(_)
            | Self::Gdb(_)
            | Self::Channel(_)
            | Self::Kvm(_) => true,
            Self::Config(_)
            | Self::NoQemu(_)
            | Self::UnfitQemu { .. }
            | Self::TooOld { .. }
            | Self::System { .. }
            | Self::GdbLent(_)
            | Self::Memory(_)
            | Self::Ram { .. }
            | Self::Unsupported { .. } => false,
        }
    }
}

/// The request makes no sense. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Memory that no guest boots in, or that the host does not have.
    #[error("a guest with {bytes} bytes of memory makes no sense: expected {least} to {most}, the memory of this host")]
    MemorySize {
        /// The requested size.
        bytes: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Memory that cannot be cut into nodes of whole 2 MiB blocks.
    #[error("{bytes} bytes of memory cannot be given to {nodes} NUMA node(s): expected a multiple of 2 MiB for each")]
    MemoryGrain {
        /// The requested size.
        bytes: u64,
        /// Into how many parts.
        nodes: u32,
    },
    /// A number of CPUs that QEMU's `virt` machine cannot have.
    #[error("a guest with {0} CPUs makes no sense: expected 1 to {most}", most = crate::limits::MOST_CPUS)]
    Cpus(u32),
    /// Several NUMA nodes were requested. The recorder's plugin knows the memory of one only.
    #[error("a recorded guest with {0} NUMA nodes makes no sense: expected 1")]
    RecordedNodes(u32),
    /// A number of NUMA nodes that cannot be.
    #[error("a guest with {nodes} NUMA nodes and {cpus} CPUs makes no sense: expected 1 to {most} nodes, and a CPU in each", most = crate::limits::MOST_NODES)]
    Nodes {
        /// The requested nodes.
        nodes: u32,
        /// The requested CPUs.
        cpus: u32,
    },
    /// A kernel or initrd that cannot be read.
    #[error("cannot read the {what} {}: {source}", path.display())]
    Unreadable {
        /// The file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A kernel that QEMU would load but no arm64 CPU would run.
    #[error("{} is not an arm64 Image: expected 41 52 4d 64 at offset 56, found {found:02x?}; a compressed or EFI kernel has to be unpacked first", path.display())]
    NotAnImage {
        /// The file.
        path: PathBuf,
        /// The bytes found there.
        found: Vec<u8>,
    },
    /// A path that QEMU's monitor would misread.
    #[error("{} cannot be a debugger's socket: expected a path of letters, digits and /._-+ only", .0.display())]
    SocketPath(PathBuf),
    /// A text that cannot be part of a command line.
    #[error("the {0} holds a zero byte")]
    ZeroByte(&'static str),
}

/// An error on QEMU's monitor.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// No answer in time.
    #[error("QEMU's monitor did not answer {command} within {waited:?}")]
    Timeout {
        /// The command.
        command: String,
        /// The time waited.
        waited: Duration,
    },
    /// QEMU closed it.
    #[error("QEMU closed its monitor during {0}")]
    Closed(String),
    /// The socket failed.
    #[error("QEMU's monitor failed during {command}: {source}")]
    Io {
        /// The command.
        command: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// QEMU refused the command.
    #[error("QEMU refused {command}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's words.
        reason: Text,
    },
    /// The answer is not QMP.
    #[error("QEMU's monitor answered {command} with what is no QMP: {found}")]
    Garbage {
        /// The command.
        command: String,
        /// The start of the answer.
        found: Text,
    },
}

/// An error of QEMU's gdb stub.
#[derive(Debug, thiserror::Error)]
pub enum GdbError {
    /// No answer in time.
    #[error("QEMU's gdb stub did not answer {request} within {waited:?}")]
    Timeout {
        /// The request.
        request: String,
        /// The time waited.
        waited: Duration,
    },
    /// QEMU closed it.
    #[error("QEMU closed its gdb stub during {0}")]
    Closed(String),
    /// The socket failed.
    #[error("QEMU's gdb stub failed during {request}: {source}")]
    Io {
        /// The request.
        request: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A packet that breaks the protocol.
    #[error("QEMU's gdb stub broke the protocol: expected {expected}, found {found:?}")]
    Protocol {
        /// The expected answer.
        expected: String,
        /// The start of the bytes received.
        found: String,
    },
    /// A register that the walk cannot do without.
    #[error("QEMU's gdb stub knows no register {0} of this CPU; use another CPU model or QEMU")]
    NoRegister(&'static str),
    /// A register that is there but could not be read.
    #[error("QEMU's gdb stub cannot read {name} of CPU {cpu}: it answered {answer:?}")]
    Unreadable {
        /// The register.
        name: Text,
        /// The CPU.
        cpu: usize,
        /// The answer.
        answer: String,
    },
    /// The stub has another number of CPUs than was requested.
    #[error("expected {expected} CPUs in QEMU's gdb stub, found {found}")]
    Cpus {
        /// The configured number.
        expected: usize,
        /// The listed number.
        found: usize,
    },
}

/// An error on the channel to the agent.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// No bytes, or only a part of a line, arrived in time.
    #[error("the guest's agent said nothing for {waited:?}{}", if .partial.is_empty() { String::new() } else { format!(", but for the start of a line: {:?}", .partial) })]
    Timeout {
        /// The time waited.
        waited: Duration,
        /// The start of the line that never ended.
        partial: String,
    },
    /// The guest does not take the bytes sent.
    #[error("the guest's agent took nothing of what was sent to it for {0:?}")]
    NotTaken(Duration),
    /// No stream has sent bytes yet, so the stream to use is unknown.
    #[error("the guest's agent has not spoken yet, so nothing can be sent to it")]
    NotOpen,
    /// QEMU closed it.
    #[error("the channel to the guest's agent is closed")]
    Closed,
    /// A line without end.
    #[error(
        "the guest's agent sent {0} bytes without a line end, starting with {1:?}: that is garbage"
    )]
    TooLong(usize, String),
    /// The socket failed.
    #[error("the channel to the guest's agent failed: {0}")]
    Io(std::io::Error),
}

/// Returns the most informative line of a console about an end: the panic's own, else the last that is not empty.
fn last_words(console: &str) -> &str {
    let panic = console
        .lines()
        .rev()
        .find(|line| line.contains("Kernel panic"));
    let last = console.lines().rev().find(|line| !line.trim().is_empty());
    panic.or(last).unwrap_or("nothing").trim()
}

/// Returns the start of arbitrary bytes, for a sentence.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 120;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned();
    if bytes.len() > MOST {
        format!("{text}... ({} bytes)", bytes.len())
    } else {
        text
    }
}
