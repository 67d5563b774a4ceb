//! How a request can fail, and how a process can end.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a process or a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// By itself.
    Exit {
        /// Its exit status.
        status: i32,
    },
    /// By a signal.
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

/// Why a request was not done.
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
        /// Why: `SEGV_MAPERR`, `SEGV_ACCERR`, `BUS_ADRERR`, ... or the bare number.
        code: String,
        /// The address that was accessed.
        address: u64,
        /// How many accesses of this operation had succeeded before.
        done: u64,
    },
    /// It did not end in time. A process that was at work on it is *stuck* now, until it answers
    /// after all ([`Event::LateReply`](crate::Event::LateReply)) or is killed.
    Deadline {
        /// The request's deadline in milliseconds.
        after_ms: u64,
        /// What was waited for.
        what: String,
    },
    /// The workload process is gone.
    ProcessLost {
        /// How it ended.
        how: Ended,
    },
    /// The process is at work on something else, waits at a checkpoint, or is stuck.
    Busy {
        /// At what.
        doing: String,
    },
    /// The request makes no sense.
    BadRequest {
        /// What is wrong with it.
        why: String,
    },
    /// The checkpoint could not be had cleanly.
    Checkpoint {
        /// Why.
        why: String,
    },
    /// The answer does not fit in a line: ask for less at once.
    TooLarge {
        /// The bytes that it takes.
        bytes: u64,
        /// The bytes that a line may have.
        limit: u64,
    },
    /// The agent itself is at fault.
    Internal {
        /// What went wrong.
        why: String,
    },
}

impl Failure {
    /// A [`Failure::BadRequest`].
    pub fn bad(why: impl Into<String>) -> Self {
        Self::BadRequest { why: why.into() }
    }

    /// The errno's name, where it is one.
    pub fn errno(&self) -> Option<&str> {
        match self {
            Self::Errno { name, .. } => Some(name),
            _ => None,
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
