//! Messages of the frames that have a content of their own, in JSON.

use serde::{Deserialize, Serialize};

/// The program to run, as if it ran outside: the paths are those of outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// [`super::VERSION`] of the client.
    pub version: u32,
    /// The program, looked for in PATH where it has no slash, and its arguments.
    pub argv: Vec<String>,
    /// The environment, all of it.
    pub env: Vec<(String, String)>,
    /// The working directory.
    pub cwd: String,
}

/// Greeting of the carrier when it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`super::VERSION`] of the carrier.
    pub version: u32,
    /// The release of its kernel.
    pub kernel: String,
    /// Page size in bytes.
    pub page_size: u64,
    /// CPUs that are online.
    pub cpus: u32,
    /// The mode of its KVM; `None` if it has none.
    pub kvm: Option<Mode>,
}

/// The exception level of KVM's host part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The whole host kernel runs at EL2 (FEAT_VHE).
    Vhe,
    /// A small part of it runs at EL2, the rest at EL1.
    Nvhe,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ended {
    /// It exited with this status.
    Exit(u8),
    /// It was killed by this signal.
    Signal(u8),
    /// It never started; the text has the reason.
    NotStarted(String),
    /// From the host side alone: the carrier has ended; the text has the reason.
    Lost(String),
}

/// Returns the payload of a frame that gives credit.
#[must_use]
pub fn credit(bytes: u32) -> [u8; 4] {
    bytes.to_le_bytes()
}

/// Returns the number in a frame that gives credit, or a signal.
#[must_use]
pub fn read_credit(payload: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(payload.try_into().ok()?))
}
