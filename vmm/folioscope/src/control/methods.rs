// SPDX-License-Identifier: GPL-2.0-only
//! The methods of a session. A method is one entry of this table: its description, its name, its parameters, its answer,
//! the process whose holder must agree, and its function. [`Call`], [`Done`], [`METHODS`] and the schema are made from it.

use std::fs::File;
use std::time::Duration;

use changes::Diff;
use protocol::{Command, Operation, Outcome, ProcessId};
use report::frames::Frames;
use report::kernel_map::KernelMap;
use report::listing::{Maps, Tasks};
use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::execute;
use super::keep;
use super::kernel_answers::{CountedAnswer, CountsAnswer, PageAnswer, SpaceAnswer};
use super::looks;
use super::parameters::{
    Bundle, FailAllocations, Judge, JudgeKernel, LookAt, Nothing, OfLooks, OfPage, OfPlace,
    OfProcess, OfSpace, Passed, Pokes, Save, SaveFull, Snapshot, Structures, Tour, Translate,
    Words,
};
use super::results::{
    Empty, Full, Kept, KernelHalf, LookAnswer, MachineAnswer, OrNothing, Pairs, TourAnswer,
    WordsAnswer,
};
use super::structures;
use super::translate::translate;
use crate::guest::Guest;
use crate::recorded::Sequences;
use crate::stage::{allow_allocations, fail_allocations};
use crate::Error;

/// The deadline and the file of a call.
#[derive(Debug)]
pub(super) struct Sent {
    /// The time that the guest has for it.
    pub(super) deadline: Duration,
    /// The file that was sent along, if there is one.
    pub(super) file: Option<File>,
}

/// The effect of a call on the wait of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// The process waits from now on, held by this client.
    Begins,
    /// The process waits as it did.
    Stays,
    /// The process waits no longer.
    Ends,
}

/// A process that another client may hold, which refuses the call, and the effect of the call on its wait.
type OfHeld = Option<(ProcessId, Hold)>;

macro_rules! methods {
    ($(
        $(#[$($doc:tt)+])+
        $variant:ident $name:tt ($parameters:ty) -> $answer:ty {
            held: $held:expr,
            run: $run:expr,
        }
    )+) => {
        /// The methods. The answer that a success gives is named in each; `{}` where none is.
        #[derive(Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "method", content = "params")]
        pub enum Call {
            $($(#[$($doc)+])+ #[serde(rename = $name)] $variant($parameters),)+
        }

        /// The methods' names, for errors: serde's own error for an unknown one contains names of Rust items.
        pub(super) const METHODS: &[&str] = &[$($name),+];

        /// The data of a request that succeeded; each method names its kind.
        #[derive(Debug, Serialize)]
        #[serde(untagged)]
        #[allow(missing_docs)] // the methods' are theirs
        pub enum Done {
            $($variant(Box<$answer>),)+
        }

        impl Call {
            /// Returns the process whose holder must agree, if there is one.
            pub(super) fn held(&self) -> OfHeld {
                match self {
                    $(Call::$variant(parameters) => {
                        let held: fn(&$parameters) -> OfHeld = $held;
                        held(parameters)
                    })+
                }
            }

            /// Executes it.
            pub(super) fn execute(self, guest: &mut Guest, sent: Sent) -> Result<Done, Error> {
                match self {
                    $(Call::$variant(parameters) => {
                        let run: fn(&mut Guest, $parameters, Sent) -> Result<$answer, Error> = $run;
                        run(guest, parameters, sent).map(|answer| Done::$variant(Box::new(answer)))
                    })+
                }
            }
        }

        /// Returns the schema of each method's answer.
        fn answers(generator: &mut SchemaGenerator) -> Vec<Schema> {
            vec![$(generator.subschema_for::<$answer>()),+]
        }
    };
}

methods! {
    /// A command of the guest's agent, passed through: the agent's answer.
    Command "command" (Passed) -> Outcome {
        held: |p| of_command(&p.command),
        run: |guest, p, sent| guest.command(p.command, sent.deadline),
    }
    /// Lets a workload wait, reads and judges it, and releases it; or reads and judges any other process: a look.
    Look "look" (LookAt) -> LookAnswer {
        held: |p| p.process.map(|process| (process, Hold::Stays)),
        run: |guest, p, _| execute::look_at(guest, &p),
    }
    /// Reads and judges a process that is held: a look.
    Judge "judge" (Judge) -> LookAnswer {
        held: |_| None,
        run: |guest, p, _| execute::judge(guest, &p),
    }
    /// The events between two looks: a diff.
    Diff "diff" (OfLooks) -> Diff {
        held: |_| None,
        run: |guest, p, _| looks::compare(guest, &p),
    }
    /// The events of a process between the last two looks at it: a diff; nothing if there was no other.
    Changes "changes" (OfSpace) -> OrNothing<Diff> {
        held: |_| None,
        run: |guest, p, _| looks::changes(guest, &p).map(OrNothing::from),
    }
    /// A page that a process maps, as a look has found it: pages.
    Folio "folio" (OfPlace) -> OrNothing<Frames> {
        held: |_| None,
        run: |guest, p, _| looks::folio(guest, &p).map(OrNothing::from),
    }
    /// All tasks, from the kernel's memory: tasks.
    Tasks "tasks" (Nothing) -> Tasks {
        held: |_| None,
        run: |guest, _, _| structures::tasks(guest),
    }
    /// The VMAs of any process, from the kernel's memory, and the entries of its tables in each: maps.
    Maps "maps" (OfSpace) -> Maps {
        held: |_| None,
        run: |guest, p, _| structures::maps(guest, &p),
    }
    /// The sizes by which the kernel half is mapped, and the areas of vmalloc, from its memory: a kernel map.
    KernelMap "kernel_map" (Nothing) -> KernelMap {
        held: |_| None,
        run: |guest, _, _| guest.kernel_map(),
    }
    /// The patched kernel's counts of decided orders and of events of contiguous blocks: counts.
    Counts "counts" (Nothing) -> CountsAnswer {
        held: |_| None,
        run: |guest, _, _| structures::counts(guest),
    }
    /// Begins a new record of the recorder's findings, in a guest of `session --record`.
    RecordBegin "record_begin" (Nothing) -> Empty {
        held: |_| None,
        run: |guest, _, _| guest.begin_sequences().map(Empty::from),
    }
    /// Judges the events since then: sequences.
    RecordEnd "record_end" (Nothing) -> Sequences {
        held: |_| None,
        run: |guest, _, _| guest.end_sequences(),
    }
    /// Lets a process wait in user mode, until it is released or this client closes.
    Hold "hold" (OfProcess) -> Empty {
        held: |p| Some((p.process, Hold::Begins)),
        run: |guest, p, _| guest.hold(p.process).map(Empty::from),
    }
    /// Releases it.
    Release "release" (OfProcess) -> Empty {
        held: |p| Some((p.process, Hold::Ends)),
        run: |guest, p, _| guest.release(p.process).map(Empty::from),
    }
    /// Every page allocation of the process of at least this order fails from now on.
    FailAllocations "fail_allocations" (FailAllocations) -> Empty {
        held: |_| None,
        run: |guest, p, _| fail_allocations(guest, p.process, p.order).map(Empty::from),
    }
    /// Lets allocations succeed again.
    AllowAllocations "allow_allocations" (OfProcess) -> Empty {
        held: |_| None,
        run: |guest, p, _| allow_allocations(guest, p.process).map(Empty::from),
    }
    /// Plays a workload of the tour: its checkpoints.
    Tour "tour" (Tour) -> TourAnswer {
        held: |_| None,
        run: |guest, p, _| execute::play(guest, p),
    }
    /// Translates addresses by the machine's own translation and by ours: pairs.
    Translate "translate" (Translate) -> Pairs {
        held: |_| None,
        run: |guest, p, _| translate(guest, &p),
    }
    /// Writes words into guest memory, which stay.
    Poke "poke" (Pokes) -> Empty {
        held: |_| None,
        run: |guest, p, _| execute::poke(guest, &p.pokes).map(Empty::from),
    }
    /// Words of guest memory.
    Words "words" (Words) -> WordsAnswer {
        held: |_| None,
        run: |guest, p, _| execute::words(guest, &p),
    }
    /// A page and its folio, as the kernel has them: a page.
    Page "page" (OfPage) -> PageAnswer {
        held: |_| None,
        run: |guest, p, _| structures::page(guest, &p),
    }
    /// The kernel's counts of a process's address space, and their addresses: a space.
    Space "space" (OfSpace) -> SpaceAnswer {
        held: |_| None,
        run: |guest, p, _| structures::space(guest, &p),
    }
    /// The kernel's counts of all its memory, and their addresses: counted.
    Counted "counted" (Nothing) -> CountedAnswer {
        held: |_| None,
        run: |guest, _, _| structures::counted(guest),
    }
    /// The entries of the kernel half of the tables and the rules' findings on them, while this process is held.
    KernelHalf "kernel_half" (JudgeKernel) -> KernelHalf {
        held: |_| None,
        run: |guest, p, _| execute::kernel_half(guest, &p),
    }
    /// Takes a process through a checkpoint into a file, with the kernel half and the order records: the file's path.
    Snapshot "snapshot" (Snapshot) -> Kept {
        held: |_| None,
        run: |guest, p, _| execute::snapshot(guest, &p),
    }
    /// Writes a process that is held into a file: the file's path.
    Save "save" (Save) -> Kept {
        held: |_| None,
        run: |guest, p, _| execute::save(guest, p),
    }
    /// Writes all of the guest's RAM into a file, for drgn, crash and ourselves: its result.
    SaveFull "save_full" (SaveFull) -> Full {
        held: |_| None,
        run: |guest, p, sent| execute::save_full(guest, p, sent.file),
    }
    /// Writes the kernel's list of tasks, and all that belongs to one process of any kind, into a file: the file's
    /// path.
    Structures "structures" (Structures) -> Kept {
        held: |_| None,
        run: |guest, p, _| execute::structures(guest, p),
    }
    /// Keeps all that is known of the guest in a directory: its path.
    Bundle "bundle" (Bundle) -> Kept {
        held: |_| None,
        run: |guest, p, _| keep::bundle(guest, &p).map(|path| Kept { path }),
    }
    /// The machine that runs the guest.
    Machine "machine" (Nothing) -> MachineAnswer {
        held: |_| None,
        run: |guest, _, _| Ok(execute::machine(guest)),
    }
    /// Nothing but the data of every answer: the reports of the guest's kernel since the answer before.
    Voice "voice" (Nothing) -> Empty {
        held: |_| None,
        run: |_, _, _| Ok(Empty {}), // the server adds the reports to every answer
    }
    /// Ends this connection.
    Quit "quit" (Nothing) -> Empty {
        held: |_| None,
        run: |_, _, _| Ok(Empty {}), // the server ends the connection
    }
}

impl JsonSchema for Done {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Done".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut kinds = Vec::new();
        for answer in answers(generator) {
            let any = answer.get("anyOf").and_then(Value::as_array).cloned();
            for kind in any.unwrap_or_else(|| vec![answer.to_value()]) {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
        }
        json_schema!({
            "description": "The data of a request that succeeded; each method names its kind.",
            "anyOf": kinds,
        })
    }
}

/// Returns the process that a command of the agent uses and that a client may hold.
fn of_command(command: &Command) -> OfHeld {
    match command {
        Command::Kill { process } | Command::Release { process } => Some((*process, Hold::Ends)),
        Command::Op { process, op } => {
            let hold = match matches!(op, Operation::Exit { .. }) {
                true => Hold::Ends,
                false => Hold::Stays,
            };
            Some((*process, hold))
        }
        Command::Hello {}
        | Command::Ping {}
        | Command::Spawn { .. }
        | Command::Checkpoint { .. }
        | Command::Maps { .. }
        | Command::Pagemap { .. }
        | Command::Getters { .. }
        | Command::Processes {}
        | Command::ReadFile { .. }
        | Command::WriteFile { .. }
        | Command::SwapOn { .. }
        | Command::SwapOff { .. }
        | Command::MountErofs { .. }
        | Command::Unmount { .. }
        | Command::Run { .. }
        | Command::Poweroff {}
        | Command::Panic {} => None,
    }
}
