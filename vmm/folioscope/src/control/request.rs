//! What a client may ask.

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

/// What a request may take where it does not say.
const DEADLINE_MS: u64 = 20_000;

/// The most that a request may take, in milliseconds: a day. Nothing else is served meanwhile.
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
    /// What to do.
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
    /// A command of the guest's agent, passed through: what the agent answers.
    Command(Passed),
    /// Lets a workload wait, reads and judges it, lets it go on; or reads and judges any other process: a look.
    Look(LookAt),
    /// Reads and judges a process that is held: a look.
    Judge(Judge),
    /// What happened between two looks, as events: a diff.
    Diff(OfLooks),
    /// What happened to a process between the last two looks at it: a diff; nothing where there was no other.
    Changes(OfSpace),
    /// A page that a process maps, as a look has found it: pages.
    Folio(OfPlace),
    /// All tasks, from the kernel's memory: tasks.
    Tasks(Nothing),
    /// The VMAs of any process, from the kernel's memory, and what its tables have in each: maps.
    Maps(OfSpace),
    /// By what sizes the kernel's own half is mapped, and the areas of vmalloc, from its memory: a kernel map.
    KernelMap(Nothing),
    /// How often each order was decided on, and what became of contiguous blocks, as the patched kernel counts it: counts.
    Counts(Nothing),
    /// From here on what the recorder finds is new, in a guest of `session --record`.
    RecordBegin(Nothing),
    /// What went by since, judged: sequences.
    RecordEnd(Nothing),
    /// Lets a process wait in user mode, for as long as this client stays.
    Hold(OfProcess),
    /// Lets it go on.
    Release(OfProcess),
    /// Every page allocation of the process of at least this order fails from now on.
    FailAllocations(FailAllocations),
    /// They succeed again.
    AllowAllocations(OfProcess),
    /// Plays a workload of the tour: its checkpoints.
    Tour(Tour),
    /// Addresses by the machine's own translation and by ours: pairs.
    Translate(Translate),
    /// Writes words into guest memory, which stay.
    Poke(Pokes),
    /// Words of guest memory.
    Words(Words),
    /// A page and its folio, as the kernel has them: a page.
    Page(OfPage),
    /// What the kernel counts of a process's address space, and where: a space.
    Space(OfSpace),
    /// What the kernel counts of all its memory, and where: counted.
    Counted(Nothing),
    /// The entries of the kernel's half of the tables and what the rules say of them, while this process is held.
    KernelHalf(JudgeKernel),
    /// Takes a process through a checkpoint into a file, with the kernel half and the order records: the file's path.
    Snapshot(Snapshot),
    /// Writes a process that is held into a file: the file's path.
    Save(Save),
    /// Writes all of the guest's RAM into a file, for drgn, crash and ourselves: what that came to.
    SaveFull(SaveFull),
    /// Writes the kernel's list of tasks, and what belongs to one process of any kind, into a file: the file's path.
    Structures(Structures),
    /// Keeps all that is known of the guest in a directory: its path.
    Bundle(Bundle),
    /// What runs the guest.
    Machine(Nothing),
    /// Nothing but what each answer may have: the reports of the guest's kernel since the answer before.
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

/// A process and nothing else.
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
    /// The agent's number of a workload process, which waits meanwhile; or else `pid` is given.
    #[serde(default)]
    pub process: Option<ProcessId>,
    /// Any process, by the guest's pid. A workload waits meanwhile; any other is read by its task, and nothing is known of
    /// its steps.
    #[serde(default)]
    pub pid: Option<i32>,
    /// What is known of the step before.
    #[serde(default)]
    pub expectations: Vec<Expectation>,
    /// Read only tables that were written to since the last time that this was said, where the machine records writes.
    /// The verdict is the same.
    #[serde(default)]
    pub again: bool,
    /// Also hold what the kernel says of the process's memory to its tables (L17).
    #[serde(default)]
    pub getters: bool,
}

/// Parameters of [`Call::Judge`].
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judge {
    /// The agent's number of it.
    pub process: ProcessId,
    /// What is known of the step before.
    #[serde(default)]
    pub expectations: Vec<Expectation>,
    /// As for `look`.
    #[serde(default)]
    pub again: bool,
    /// As for `look`.
    #[serde(default)]
    pub getters: bool,
    /// Words that are in guest memory only while it stands still to be read.
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
    /// Something that is wrong at one checkpoint, which a rule must name.
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
    /// In guest memory while both are asked.
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
    /// How many, at most 262144.
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
    /// What is wrong with it.
    pub why: String,
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, with its id where that could be read.
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

/// A sentence with text of the client's in it, no longer than is good to read.
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
