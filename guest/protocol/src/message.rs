//! The lines of both directions.

use serde::{Deserialize, Serialize};

use crate::hello::check_version;
use crate::{Answer, Command, Ended, Hello, LineError, ProcessId, VersionMismatch};

/// The deadline of a request that names none.
pub const DEFAULT_DEADLINE_MS: u64 = 10_000;

/// A line from the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Comes back in the reply. The host's to choose; the agent compares it with nothing.
    pub id: u64,
    /// After how many milliseconds the agent gives up; [`DEFAULT_DEADLINE_MS`] when left out.
    #[serde(default = "default_deadline")]
    pub deadline_ms: u64,
    /// The command.
    pub command: Command,
}

fn default_deadline() -> u64 {
    DEFAULT_DEADLINE_MS
}

/// A line from the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Facts about the guest: its first line, and the first after each time that a host connects.
    Hello(Box<Hello>),
    /// The answer to a request.
    Reply(Reply),
    /// An unsolicited message.
    Event(Event),
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reply {
    /// The request's id; `null` if the line from the host had none that could be read.
    pub id: Option<u64>,
    /// Its result.
    pub result: Answer,
}

/// An unsolicited message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A workload process ended while no request was at work on it.
    ProcessEnded {
        /// The agent's number of it.
        process: ProcessId,
        /// The kernel's number of it.
        pid: i32,
        /// How it ended.
        how: Ended,
    },
    /// A process that missed its deadline has answered after all, and can be used again.
    LateReply {
        /// The process.
        process: ProcessId,
        /// The request whose deadline passed.
        id: u64,
        /// Its result.
        result: Answer,
    },
}

/// Reads a line from the guest. A hello of another version is a [`VersionMismatch`] even where the
/// rest of it cannot be read.
pub fn read_message(line: &str) -> Result<Result<Message, VersionMismatch>, LineError> {
    #[derive(Deserialize)]
    struct AnyHello {
        hello: OnlyVersion,
    }
    #[derive(Deserialize)]
    struct OnlyVersion {
        protocol: u32,
    }
    if line.trim_start().starts_with("{\"hello\"") {
        if let Ok(any) = serde_json::from_str::<AnyHello>(line) {
            if let Err(mismatch) = check_version(any.hello.protocol) {
                return Ok(Err(mismatch));
            }
        }
    }
    match serde_json::from_str(line) {
        Ok(message) => Ok(Ok(message)),
        Err(error) => Err(LineError::not_a_message(line, &error)),
    }
}

/// A line from the host that is no request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadRequest {
    /// Its id, where one could be read.
    pub id: Option<u64>,
    /// The error in it.
    pub error: LineError,
}

/// Reads a line from the host.
pub fn read_request(line: &str) -> Result<Request, UnreadRequest> {
    #[derive(Deserialize)]
    struct OnlyId {
        id: u64,
    }
    serde_json::from_str(line).map_err(|error| UnreadRequest {
        id: serde_json::from_str::<OnlyId>(line)
            .ok()
            .map(|only| only.id),
        error: LineError::not_a_message(line, &error),
    })
}
