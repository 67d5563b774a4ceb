// SPDX-License-Identifier: GPL-2.0-only
//! Results of methods.

use std::path::PathBuf;

use analysis::Look;
use evidence::{Capture, ReadAgain, Subject};
use linux::order::OrderRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict::{Basis, Hex, KernelVerdict, ProcessVerdict};

use crate::rows::{rows, Row};
use crate::stage::{Area, Played};
use crate::Error;

/// The request was done, and there are no further data.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Empty {}

impl From<()> for Empty {
    fn from((): ()) -> Self {
        Self {}
    }
}

/// Data, or none.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
#[allow(missing_docs)] // they are as their names say
pub enum OrNothing<T> {
    Found(T),
    Nothing(Empty),
}

impl<T> From<Option<T>> for OrNothing<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or(Self::Nothing(Empty {}), Self::Found)
    }
}

/// The answer of `look` and `judge`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LookAnswer {
    /// The process, judged.
    pub verdict: ProcessVerdict,
    /// The processes that were looked at beside it, at the same instant.
    pub companions: Vec<ProcessVerdict>,
    /// The basis of the verdicts: what it lacks could not be judged.
    pub basis: Basis,
    /// Every descriptor of the process that is not zero and leads to no table, by address.
    pub entries: Vec<Row>,
    /// The process's own order records, oldest first.
    pub records: Vec<OrderRecord>,
    /// For how many microseconds the guest was stopped.
    pub stopped_us: u64,
    /// The result of a look that was to read only tables written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    /// Its number, for `diff`; the last 16 looks are kept. None if it is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}

/// A look at tables written to since the one before.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// Number of tables that were read.
    Read {
        /// Tables that are new or were written to.
        tables: u64,
        /// Number of all tables.
        of: u64,
    },
    /// All were read.
    Whole {
        /// The reason.
        because: String,
    },
}

impl From<&ReadAgain> for Again {
    fn from(read_again: &ReadAgain) -> Self {
        match &read_again.tables {
            Ok(tables) => Self::Read {
                tables: tables.tables,
                of: tables.of,
            },
            Err(because) => Self::Whole {
                because: because.clone(),
            },
        }
    }
}

impl LookAnswer {
    /// Creates it from a look and its copy; `driven` is the guest's own basis ([`crate::guest::Guest::driven`]).
    #[must_use]
    pub fn of(seen: Look, driven: &Basis) -> (Self, Capture) {
        let again = seen.read_again.as_ref();
        let mut basis = seen.basis;
        basis.add(driven);
        let mut companions = seen.judged.processes;
        let verdict = companions.remove(0);
        let (answer, capture) = Self::of_any((verdict, basis), seen.capture, again);
        let answer = Self {
            companions,
            records: seen.judged.orders,
            ..answer
        };
        (answer, capture)
    }

    /// Creates it from a process's verdict and basis, and their instant.
    #[must_use]
    pub fn of_any(
        (verdict, basis): (ProcessVerdict, Basis),
        capture: Capture,
        again: Option<&ReadAgain>,
    ) -> (Self, Capture) {
        let snapshot = &capture.snapshot;
        let entries = Subject::find(snapshot, None)
            .map(|subject| rows(&snapshot.memory, &subject.regime))
            .unwrap_or_default();
        let answer = Self {
            entries,
            stopped_us: u64::try_from(capture.stopped.as_micros()).unwrap_or(u64::MAX),
            again: again.map(Again::from),
            verdict,
            companions: Vec::new(),
            basis,
            records: Vec::new(),
            number: None,
        };
        (answer, capture)
    }
}

/// The answer of `tour`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TourAnswer {
    /// The reason why the workload was not played, where it was not.
    pub left_out: Option<String>,
    /// Its checkpoints, in order.
    pub checkpoints: Vec<CheckpointAnswer>,
}

/// One checkpoint of a workload.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CheckpointAnswer {
    /// The workload's name for it.
    pub label: String,
    /// The areas of the process so far, in the order in which they were mapped.
    pub areas: Vec<Area>,
    /// The process, read and judged.
    pub look: LookAnswer,
}

impl TourAnswer {
    /// # Errors
    /// The error that ended the workload early.
    pub fn of(played: Played, driven: &Basis) -> Result<Self, Error> {
        if let Some(error) = played.failed {
            return Err(error);
        }
        let checkpoints = played.seen.into_iter().map(|seen| CheckpointAnswer {
            label: seen.label,
            areas: seen.areas,
            look: LookAnswer::of(seen.look, driven).0,
        });
        Ok(Self {
            left_out: played.left_out,
            checkpoints: checkpoints.collect(),
        })
    }
}

/// The answer of `translate`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Pairs {
    /// The CPU that translated in the lower half.
    pub lower_cpu: usize,
    /// The CPU that translated in the upper half, if one was at EL1.
    pub upper_cpu: Option<usize>,
    /// In the order of the requested addresses.
    pub pairs: Vec<Pair>,
}

/// One address, by two translations.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Pair {
    /// The virtual address.
    pub va: u64,
    /// Its physical address by our walk; null if it is not mapped.
    pub ours: Option<u64>,
    /// Its physical address by the machine's own translation of a load at the CPU's exception level.
    pub machine: Option<u64>,
    /// The descriptor that maps it.
    pub word: Option<u64>,
    /// Lookup level of that descriptor.
    pub level: Option<i8>,
    /// True if EL0 may read it, by our decoding.
    pub el0_read: Option<bool>,
    /// True if EL1 may read it, by our decoding.
    pub el1_read: Option<bool>,
}

/// The answer of `words`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WordsAnswer {
    /// The words.
    pub words: Vec<Hex>,
}

/// The answer of `kernel_half`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KernelHalf {
    /// The half's first address.
    pub first: u64,
    /// Every descriptor that is not zero and leads to no table, by address.
    pub entries: Vec<Row>,
    /// The rules' verdict on them.
    pub verdict: KernelVerdict,
}

/// The answer of `save_full`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Full {
    /// The file.
    pub path: PathBuf,
    /// The guest's RAM, in bytes.
    pub ram_bytes: u64,
    /// Its CPUs.
    pub cpus: usize,
    /// The process that waited meanwhile, by its pid.
    pub pid: Option<u32>,
    /// The reason why the kernel's own description (VMCOREINFO) is not in the file, without which drgn takes it for no
    /// kernel's; null where it is.
    pub without_vmcoreinfo: Option<String>,
}

/// The answer of `save`, `snapshot` and `bundle`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Kept {
    /// The file or directory.
    pub path: PathBuf,
}

/// The answer of `machine`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MachineAnswer {
    /// `tcg` or `kvm`.
    pub kind: String,
    /// The shell command that starts the same machine by hand.
    pub command_line: String,
    /// Its state, for people.
    pub status: String,
    /// The end of the guest's console.
    pub console: String,
    /// Seconds from starting the machine to the agent's first line.
    pub ready_after_s: f64,
}
