// SPDX-License-Identifier: GPL-2.0-only
//! Parameters of methods.

use protocol::{Command, ProcessId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stage1::PhysicalAddress;
use verdict::Expectation;

pub use self::files::{Bundle, Save, SaveFull, Snapshot, Structures};
use super::word::Word;
use crate::guest::Poke;
use crate::stage::Spoil;

mod files;

/// No parameters.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Parameters of `command`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Passed {
    /// The command.
    pub command: Command,
}

/// A process.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfProcess {
    /// The agent's number of it.
    pub process: ProcessId,
}

/// Parameters of `look`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookAt {
    /// The agent's number of a workload process, which waits meanwhile; otherwise `pid` is given.
    #[serde(default)]
    pub process: Option<ProcessId>,
    /// Any process, by the guest's pid. A workload waits meanwhile; any other is read by its task, and nothing is known of
    /// its steps.
    #[serde(default)]
    pub pid: Option<i32>,
    /// Expectations from the step before.
    #[serde(default)]
    pub expectations: Vec<Expectation>,
    /// Reads only tables that were written to since the last look with this flag, if the machine records writes. The
    /// verdict is the same.
    #[serde(default)]
    pub again: bool,
    /// Also compares the kernel's own interfaces for the process's memory with its tables (L17).
    #[serde(default)]
    pub getters: bool,
}

/// Parameters of `judge`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judge {
    /// The agent's number of it.
    pub process: ProcessId,
    /// Expectations from the step before.
    #[serde(default)]
    pub expectations: Vec<Expectation>,
    /// As for `look`.
    #[serde(default)]
    pub again: bool,
    /// As for `look`.
    #[serde(default)]
    pub getters: bool,
    /// Words that are in guest memory only while it is stopped to be read.
    #[serde(default)]
    pub pokes: Vec<RawPoke>,
}

/// Parameters of `diff`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfLooks {
    /// The number of the earlier look.
    pub before: u64,
    /// The number of the later one.
    pub after: u64,
    /// The process, by the guest's pid; all that both show when left out.
    #[serde(default)]
    pub pid: Option<u32>,
}

/// Parameters of `folio`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfPlace {
    /// The number of the look.
    pub look: u64,
    /// The virtual address, of the process that was looked at.
    pub va: u64,
}

/// Parameters of `kernel_half`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeKernel {
    /// The agent's number of the process.
    pub process: ProcessId,
    /// As for `judge`.
    #[serde(default)]
    pub pokes: Vec<RawPoke>,
}

/// A word for guest memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawPoke {
    /// The physical address, 8-byte aligned.
    pub address: Word,
    /// The word.
    pub word: Word,
}

impl From<&RawPoke> for Poke {
    fn from(poke: &RawPoke) -> Self {
        Self {
            address: PhysicalAddress(poke.address.0),
            word: poke.word.0,
        }
    }
}

/// Parameters of `fail_allocations`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailAllocations {
    /// The agent's number of it.
    pub process: ProcessId,
    /// The smallest order that fails.
    pub order: u32,
}

/// Parameters of `tour`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tour {
    /// The workload.
    pub name: String,
    /// The order policy; `variable` when left out.
    #[serde(default)]
    pub policy: Option<String>,
    /// An error that is made at one checkpoint, which a rule must name.
    #[serde(default)]
    pub spoil: Option<Spoil>,
}

/// Parameters of `translate`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Translate {
    /// A process that is held.
    pub process: ProcessId,
    /// Virtual addresses of either half, at most 4096.
    pub addresses: Vec<u64>,
    /// Words in guest memory while both translate.
    #[serde(default)]
    pub pokes: Vec<RawPoke>,
}

/// Parameters of `poke`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pokes {
    /// The words.
    pub pokes: Vec<RawPoke>,
}

/// Parameters of `words`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// The first one's physical address, 8-byte aligned.
    pub address: Word,
    /// Number of words, at most 262144.
    pub count: usize,
}

/// Parameters of `page`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfPage {
    /// Its page frame number.
    pub pfn: u64,
}

/// Parameters of `space`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfSpace {
    /// The process, by the guest's pid.
    pub pid: u32,
}
