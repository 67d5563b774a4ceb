// SPDX-License-Identifier: GPL-2.0-only
//! Failures of requests, as sent to a client.

use schemars::JsonSchema;
use serde::Serialize;

use crate::Error;

/// The reason why a request was not done.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Failure {
    /// Kind of the failure.
    pub kind: Kind,
    /// One sentence.
    pub message: String,
    /// The answer of the guest's agent, if the agent refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<protocol::Failure>,
    /// True if the guest cannot be used any more.
    pub lost: bool,
}

/// Kinds of failures. The guest's own have the names of the agent's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The guest's kernel refused.
    Errno,
    /// An access to memory raised a signal in the workload process, which lives on.
    Signal,
    /// It did not end in time.
    Deadline,
    /// The workload process is gone.
    ProcessLost,
    /// The process is at work on another request, or waits at a checkpoint; in the first line of a session, the guest
    /// has its maximum of clients.
    Busy,
    /// The request makes no sense.
    BadRequest,
    /// The process did not reach the checkpoint cleanly.
    Checkpoint,
    /// The answer does not fit in a line.
    TooLarge,
    /// The agent itself is at fault, or this command.
    Internal,
    /// The guest is gone, or hangs.
    Lost,
    /// The guest did not come up.
    Boot,
    /// It could not be read or judged.
    NotJudged,
}

impl From<&protocol::Failure> for Kind {
    fn from(failure: &protocol::Failure) -> Self {
        use protocol::Failure as F;
        match failure {
            F::Errno { .. } => Self::Errno,
            F::Signal { .. } => Self::Signal,
            F::Deadline { .. } => Self::Deadline,
            F::ProcessLost { .. } => Self::ProcessLost,
            F::Busy { .. } => Self::Busy,
            F::BadRequest { .. } => Self::BadRequest,
            F::Checkpoint { .. } => Self::Checkpoint,
            F::TooLarge { .. } => Self::TooLarge,
            F::Internal { .. } => Self::Internal,
        }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let guest = match error {
            Error::Guest { failure, .. } => Some(failure.clone()),
            _ => None,
        };
        let kind = match (&guest, error) {
            (Some(failure), _) => Kind::from(failure),
            (None, Error::Input(_)) => Kind::BadRequest,
            _ if error.lost() => Kind::Lost,
            _ => Kind::NotJudged,
        };
        Self {
            kind,
            message: error.to_string(),
            guest,
            lost: error.lost(),
        }
    }
}

impl Failure {
    /// Creates a guest that did not come up.
    #[must_use]
    pub fn boot(error: &Error) -> Self {
        Self {
            kind: Kind::Boot,
            message: error.to_string(),
            guest: None,
            lost: true,
        }
    }

    /// Creates a guest that has as many clients as it serves at once.
    #[must_use]
    pub(super) fn busy(message: String) -> Self {
        Self::of(Kind::Busy, message)
    }

    /// Creates an answer that would be longer than [`super::limits::LONGEST_ANSWER`].
    #[must_use]
    pub(super) fn too_large() -> Self {
        Self::of(
            Kind::TooLarge,
            format!(
                "the answer would have more than {} bytes, which is the most of one answer; ask for less at a time",
                super::limits::LONGEST_ANSWER
            ),
        )
    }

    /// Creates a panic of this command's own.
    #[must_use]
    pub(super) fn fault(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::of(
            Kind::Internal,
            format!(
                "the request met a fault of folioscope itself ({}); the guest goes on, and the place is on standard error: please report it",
                text.unwrap_or_else(|| "without a message".into())
            ),
        )
    }

    fn of(kind: Kind, message: String) -> Self {
        Self {
            kind,
            message,
            guest: None,
            lost: false,
        }
    }

    /// Creates the failure of a line that is no request.
    #[must_use]
    pub fn bad_request(why: String) -> Self {
        Self::from(&Error::Input(why))
    }
}
