// SPDX-License-Identifier: GPL-2.0-only
//! A process of the guest, as verdicts name it.

use schemars::JsonSchema;
use serde::Serialize;
use untrusted::Text;

/// A process of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Process {
    /// Its id in the initial PID namespace.
    pub pid: u32,
    /// Its name.
    pub name: Text,
}
