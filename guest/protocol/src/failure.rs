//! Failures of requests, and ends of processes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The end of a process or a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It exited.
    Exit {
        /// Its exit status.
        status: i32,
    },
    /// It was killed by a signal.
    Signal {
        /// The signal's name, such as `SIGKILL` (which is also what the kernel's OOM killer sends).
        name: String,
        /// The signal's number.
        number: i32,
    },
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit { status } => write!(f, "ended with status {status}"),
            Self::Signal { name, number } => write!(f, "was ended by {name} ({number})"),
        }
    }
}

/// The reason why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The kernel refused.
    Errno {
        /// The error's name, such as `ENOMEM`.
        name: String,
        /// The error's number.
        number: i32,
        /// The system call that failed, with the path where it has one.
        call: String,
    },
    /// An access to memory raised a signal in the workload process, which lives on.
    Signal {
        /// `SIGSEGV` or `SIGBUS`.
        name: String,
        /// The reason: `SEGV_MAPERR`, `SEGV_ACCERR`, `BUS_ADRERR`, ... or the bare number.
        code: String,
        /// The address that was accessed.
        address: u64,
        /// Number of accesses of this operation that succeeded before.
        done: u64,
    },
    /// It did not end in time. A process that was at work on it is *stuck* now, until it answers after all
    /// ([`Event::LateReply`](crate::Event::LateReply)) or is killed.
    Deadline {
        /// The request's deadline in milliseconds.
        after_ms: u64,
        /// The awaited event.
        what: String,
    },
    /// The workload process is gone.
    ProcessLost {
        /// How it ended.
        how: Ended,
    },
    /// The process is at work on another request, waits at a checkpoint, or is stuck.
    Busy {
        /// Its current work.
        doing: String,
    },
    /// The request makes no sense.
    BadRequest {
        /// The error in it.
        why: String,
    },
    /// The process did not reach the checkpoint cleanly.
    Checkpoint {
        /// The reason.
        why: String,
    },
    /// The answer does not fit in a line: request less at once.
    TooLarge {
        /// The bytes that it takes.
        bytes: u64,
        /// The bytes that a line may have.
        limit: u64,
    },
    /// The agent itself is at fault.
    Internal {
        /// The error.
        why: String,
    },
}

impl Failure {
    /// Creates a [`Failure::BadRequest`].
    pub fn bad(why: impl Into<String>) -> Self {
        Self::BadRequest { why: why.into() }
    }

    /// Returns the errno's name, where it is one.
    pub fn errno(&self) -> Option<&str> {
        match self {
            Self::Errno { name, .. } => Some(name),
            Self::Signal { .. }
            | Self::Deadline { .. }
            | Self::ProcessLost { .. }
            | Self::Busy { .. }
            | Self::BadRequest { .. }
            | Self::Checkpoint { .. }
            | Self::TooLarge { .. }
            | Self::Internal { .. } => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno { name, number, call } => {
                write!(f, "{call}: {name} ({number})")
            }
            Self::Signal {
                name,
                code,
                address,
                done,
            } => write!(
                f,
                "the access to {address:#x} raised {name} ({code}), after {done} that succeeded"
            ),
            Self::Deadline { after_ms, what } => {
                write!(f, "{what}: not done after {after_ms} ms")
            }
            Self::ProcessLost { how } => write!(f, "the workload process {how}"),
            Self::Busy { doing } => write!(f, "the workload process is busy: {doing}"),
            Self::BadRequest { why } => write!(f, "bad request: {why}"),
            Self::Checkpoint { why } => write!(f, "no clean checkpoint: {why}"),
            Self::TooLarge { bytes, limit } => write!(
                f,
                "the answer takes {bytes} bytes, a line may have {limit}: ask for less at once"
            ),
            Self::Internal { why } => write!(f, "the guest's agent failed: {why}"),
        }
    }
}

impl std::error::Error for Failure {}
