//! What the frames with a content of their own say, in JSON.

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

/// What the carrier says of itself when it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`super::VERSION`] of the carrier.
    pub version: u32,
    /// The release of its kernel.
    pub kernel: String,
    /// In bytes.
    pub page_size: u64,
    /// CPUs that are online.
    pub cpus: u32,
    /// How its KVM runs; `None` where it has none.
    pub kvm: Option<Mode>,
}

/// Where KVM's host part runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The whole host kernel runs at EL2 (FEAT_VHE).
    Vhe,
    /// A small part of it runs at EL2, the rest at EL1.
    Nvhe,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ended {
    /// By itself, with this status.
    Exit(u8),
    /// By this signal.
    Signal(u8),
    /// It never started; the text says why.
    NotStarted(String),
    /// From the host side alone: the carrier is gone; the text says how.
    Lost(String),
}

/// The payload of a frame that gives credit.
#[must_use]
pub fn credit(bytes: u32) -> [u8; 4] {
    bytes.to_le_bytes()
}

/// The number in a frame that gives credit, or a signal.
#[must_use]
pub fn read_credit(payload: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(payload.try_into().ok()?))
}
