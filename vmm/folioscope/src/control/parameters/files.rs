// SPDX-License-Identifier: GPL-2.0-only
//! Parameters of methods that write files.

use std::path::PathBuf;

use protocol::ProcessId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `snapshot`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The file, as the command's own working directory has it.
    pub path: PathBuf,
    /// The process by the guest's pid; the only one when left out.
    #[serde(default)]
    pub pid: Option<i32>,
}

/// Parameters of `save`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Save {
    /// The file, as the command's own working directory has it.
    pub path: PathBuf,
    /// The agent's number of it.
    pub process: ProcessId,
    /// The kernel half as well.
    #[serde(default)]
    pub kernel: bool,
}

/// Parameters of `save_full`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveFull {
    /// The file, as the command's own working directory has it. It is whole then, or as it was.
    pub path: PathBuf,
    /// The process that waits meanwhile, by the guest's pid. When left out: the only one, if there is one.
    #[serde(default)]
    pub pid: Option<i32>,
    /// The file is empty, and comes open along with the request (`SCM_RIGHTS`, unix(7)): it is written as it is, and the client
    /// puts it at the path when it is whole.
    #[serde(default)]
    pub in_place: bool,
}

/// Parameters of `structures`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Structures {
    /// The file, as the command's own working directory has it.
    pub path: PathBuf,
    /// Any process of the guest, whose VMAs, tables and pages are saved as well.
    #[serde(default)]
    pub pid: Option<u32>,
    /// Page frame numbers of pages that are saved as well, with the tables of all processes that may map them.
    #[serde(default)]
    pub pfns: Vec<u64>,
    /// True if the kernel's own tables, and the areas of vmalloc, are saved as well.
    #[serde(default)]
    pub kernel: bool,
}

/// Parameters of `bundle`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// The directory.
    pub path: PathBuf,
    /// The reason for the bundle, for its reader.
    pub why: String,
    /// True if the last look is kept too (`look.core`), and the one before at the same process (`before.core`).
    #[serde(default)]
    pub looks: bool,
}
