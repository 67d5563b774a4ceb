// SPDX-License-Identifier: GPL-2.0-only
//! Requests of a client.

use protocol::{Command, ProcessId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use stage1::PhysicalAddress;
use verdict::Expectation;

pub use self::files::{Bundle, Save, SaveFull, Snapshot, Structures};
use self::methods::METHODS;
use super::word::Word;
use crate::guest::Poke;
use crate::stage::Spoil;

/// Default deadline of a request.
const DEADLINE_MS: u64 = 20_000;

/// Maximum deadline of a request, in milliseconds: a day. Nothing else is served meanwhile.
const MOST_DEADLINE_MS: u64 = 24 * 60 * 60 * 1000;

/// Bytes of a request's own text that its refusal shows.
const SHOWN: usize = 400;

/// A line from a client.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Request {
    /// Comes back in the answer; the client's to choose.
    pub id: u64,
    /// After how many milliseconds the guest gives up; 20000 when left out, a day at most.
    #[schemars(default = "deadline_ms")]
    pub deadline_ms: u64,
    /// The call.
    #[serde(flatten)]
    pub call: Call,
}

fn deadline_ms() -> u64 {
    DEADLINE_MS
}

/// The methods. The answer that a success gives is named in each; `{}` where none is.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "method", content = "params")]
pub enum Call {
    /// A command of the guest's agent, passed through: the agent's answer.
    Command(Passed),
    /// Lets a workload wait, reads and judges it, and releases it; or reads and judges any other process: a look.
    Look(LookAt),
    /// Reads and judges a process that is held: a look.
    Judge(Judge),
    /// The events between two looks: a diff.
    Diff(OfLooks),
    /// The events of a process between the last two looks at it: a diff; nothing if there was no other.
    Changes(OfSpace),
    /// A page that a process maps, as a look has found it: pages.
    Folio(OfPlace),
    /// All tasks, from the kernel's memory: tasks.
    Tasks(Nothing),
    /// The VMAs of any process, from the kernel's memory, and the entries of its tables in each: maps.
    Maps(OfSpace),
    /// The sizes by which the kernel half is mapped, and the areas of vmalloc, from its memory: a kernel map.
    KernelMap(Nothing),
    /// The patched kernel's counts of decided orders and of events of contiguous blocks: counts.
    Counts(Nothing),
    /// Begins a new record of the recorder's findings, in a guest of `session --record`.
    RecordBegin(Nothing),
    /// Judges the events since then: sequences.
    RecordEnd(Nothing),
    /// Lets a process wait in user mode, until it is released or this client closes.
    Hold(OfProcess),
    /// Releases it.
    Release(OfProcess),
    /// Every page allocation of the process of at least this order fails from now on.
    FailAllocations(FailAllocations),
    /// Lets allocations succeed again.
    AllowAllocations(OfProcess),
    /// Plays a workload of the tour: its checkpoints.
    Tour(Tour),
    /// Translates addresses by the machine's own translation and by ours: pairs.
    Translate(Translate),
    /// Writes words into guest memory, which stay.
    Poke(Pokes),
    /// Words of guest memory.
    Words(Words),
    /// A page and its folio, as the kernel has them: a page.
    Page(OfPage),
    /// The kernel's counts of a process's address space, and their addresses: a space.
    Space(OfSpace),
    /// The kernel's counts of all its memory, and their addresses: counted.
    Counted(Nothing),
    /// The entries of the kernel half of the tables and the rules' findings on them, while this process is held.
    KernelHalf(JudgeKernel),
    /// Takes a process through a checkpoint into a file, with the kernel half and the order records: the file's path.
    Snapshot(Snapshot),
    /// Writes a process that is held into a file: the file's path.
    Save(Save),
    /// Writes all of the guest's RAM into a file, for drgn, crash and ourselves: its result.
    SaveFull(SaveFull),
    /// Writes the kernel's list of tasks, and all that belongs to one process of any kind, into a file: the file's
    /// path.
    Structures(Structures),
    /// Keeps all that is known of the guest in a directory: its path.
    Bundle(Bundle),
    /// The machine that runs the guest.
    Machine(Nothing),
    /// Nothing but the data of every answer: the reports of the guest's kernel since the answer before.
    Voice(Nothing),
    /// Ends this connection.
    Quit(Nothing),
}

/// No parameters.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Parameters of [`Call::Command`].
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

/// Parameters of [`Call::Look`].
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

/// Parameters of [`Call::Judge`].
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

/// Parameters of [`Call::Diff`].
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

/// Parameters of [`Call::Folio`].
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfPlace {
    /// The number of the look.
    pub look: u64,
    /// The virtual address, of the process that was looked at.
    pub va: u64,
}

/// Parameters of [`Call::KernelHalf`].
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

/// Parameters of [`Call::FailAllocations`].
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailAllocations {
    /// The agent's number of it.
    pub process: ProcessId,
    /// The smallest order that fails.
    pub order: u32,
}

/// Parameters of [`Call::Tour`].
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

/// Parameters of [`Call::Translate`].
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

/// Parameters of [`Call::Poke`].
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pokes {
    /// The words.
    pub pokes: Vec<RawPoke>,
}

/// Parameters of [`Call::Words`].
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// The first one's physical address, 8-byte aligned.
    pub address: Word,
    /// Number of words, at most 262144.
    pub count: usize,
}

/// Parameters of [`Call::Page`].
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfPage {
    /// Its page frame number.
    pub pfn: u64,
}

/// Parameters of [`Call::Space`].
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfSpace {
    /// The process, by the guest's pid.
    pub pid: u32,
}

/// A line that is no request.
#[derive(Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its id, where one could be read.
    pub id: Option<u64>,
    /// The error in it.
    pub why: String,
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    /// Parses a line. The error has its id if that could be read.
    pub fn read(line: &str) -> Result<Self, Unread> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Line {
            id: u64,
            method: String,
            #[serde(default = "deadline_ms")]
            deadline_ms: u64,
            #[serde(default)]
            params: Option<Value>,
        }
        let Line {
            id,
            method,
            deadline_ms,
            params,
        } = serde_json::from_str(line).map_err(|error| Unread {
            id: None,
            why: shown(format!(
                "expected a request as one JSON object and found {error}"
            )),
        })?;
        if deadline_ms > MOST_DEADLINE_MS {
            return Err(Unread {
                id: Some(id),
                why: format!(
                    "expected a deadline_ms of at most {MOST_DEADLINE_MS} (a day) and found {deadline_ms}"
                ),
            });
        }
        let params = params.unwrap_or_else(|| json!({}));
        let call = Call::deserialize(json!({"method": method, "params": params}));
        let call = call.map_err(|error| Unread {
            id: Some(id),
            why: shown(match METHODS.contains(&method.as_str()) {
                true => format!("the parameters of {method} make no sense: {error}"),
                false => format!("there is no method {method:?} in this session"),
            }),
        })?;
        Ok(Self {
            id,
            deadline_ms,
            call,
        })
    }
}

/// Returns a sentence with text of the client's in it, no longer than is good to read.
fn shown(mut text: String) -> String {
    if text.len() > SHOWN {
        let end = (0..=SHOWN).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

mod files;
mod methods;
#[cfg(test)]
mod tests;
