// SPDX-License-Identifier: GPL-2.0-only
//! A whole run: what was looked at, what was found, and how it ended.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{schema_for, JsonSchema};
use serde::Serialize;

use crate::{
    Basis, BlockState, Expectation, Finding, KernelVerdict, NotJudged, ProcessVerdict, RuleId,
    Severity,
};

/// Version of the JSON format. It goes up when a field changes its meaning or goes away; new
/// fields do not count.
pub const SCHEMA_VERSION: u32 = 2;

/// The result of `folioscope run`, `check` or `dump`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// This program's version.
    pub version: String,
    /// The machine.
    pub machine: Machine,
    /// Its kernel.
    pub kernel: Kernel,
    /// Checkpoints in order.
    pub steps: Vec<Step>,
    /// The table of `folioscope cross`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossing: Option<crate::crossing::Crossing>,
    /// Parts that could not be judged at all: a guest that was lost, input that could not be read.
    pub not_judged: Vec<NotJudged>,
    /// Outputs that were asked for and could not be written, a sentence each. They change the exit status (2), not the
    /// outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_written: Vec<String>,
    /// The first reason why it was not judged, where that is the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Sums.
    pub totals: Totals,
    /// How it ended.
    pub outcome: Outcome,
    /// The program's exit status.
    pub exit_status: u8,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Machine {
    /// `tcg`, `kvm` or `snapshot`.
    pub kind: String,
    /// CPU model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Number of CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Bytes of RAM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Bytes per page.
    pub page_size: u64,
    /// Bits of a virtual address in the lower half.
    pub va_bits: u32,
    /// Bits of an output address.
    pub pa_bits: u32,
    /// TCR_EL1.DS: 52-bit descriptors of the 4K and 16K granules.
    pub ds: bool,
    /// The CPU sets AF (TCR_EL1.HA).
    pub hardware_access: bool,
    /// The CPU manages the dirty state (TCR_EL1.HD).
    pub hardware_dirty: bool,
}

/// The kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Kernel {
    /// `uname -r`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// GNU build id in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Built with `CONFIG_ARM64_CONTPTE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contpte: Option<bool>,
    /// Policy of anonymous folio orders, where the kernel has our patches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Other switches of our patches, by the names of their files below `/sys/kernel/mm/transparent_hugepage`: as it
    /// was when the guest last said so.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub switches: BTreeMap<String, String>,
    /// Its command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
}

/// One checkpoint of one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Step {
    /// Name of the workload.
    pub workload: String,
    /// The step that was just done.
    pub step: String,
    /// Seconds from the workload's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Expectations of the step.
    pub expectations: Vec<Expectation>,
    /// The processes that were looked at.
    pub processes: Vec<ProcessVerdict>,
    /// The upper half, where it was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelVerdict>,
    /// Parts that could not be judged in this step as a whole.
    pub not_judged: Vec<NotJudged>,
    /// The basis of the verdict on this step. Without it the step is not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// Sums over all steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Totals {
    /// Steps.
    pub steps: u64,
    /// Places where a rule is broken.
    pub errors: u64,
    /// Error findings: one for all places of one cause.
    pub findings: u64,
    /// Places of information findings.
    pub information: u64,
    /// Things that could not be judged.
    pub not_judged: u64,
    /// Number of possible errors that were not confirmed by several looks; none of `errors`.
    pub unsettled: u64,
    /// Places of findings, by rule.
    pub rules: BTreeMap<RuleId, u64>,
    /// Valid pages and blocks that were looked at in processes.
    pub entries: u64,
    /// Blocks by state.
    pub blocks: BTreeMap<BlockState, u64>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// At least one address space (or the kernel half, where that alone was asked for) was judged, every rule that was
    /// asked for was in force, and no error was found: exit status 0.
    Ok,
    /// At least one error was found, whatever else could not be judged: exit status 1.
    Errors,
    /// No error was found, and something (or everything) could not be judged: exit status 2.
    NotJudged,
}

impl Outcome {
    /// The program's exit status.
    pub fn exit_status(self) -> u8 {
        match self {
            Outcome::Ok => 0,
            Outcome::Errors => 1,
            Outcome::NotJudged => 2,
        }
    }
}

impl Step {
    /// Findings of all processes and of the kernel.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let processes = self.processes.iter().flat_map(|process| &process.findings);
        processes.chain(self.kernel.iter().flat_map(|kernel| &kernel.findings))
    }

    /// Makes findings of one cause one, in each process and in the kernel.
    pub fn gather(&mut self) {
        self.processes.iter_mut().for_each(ProcessVerdict::gather);
        self.kernel.iter_mut().for_each(KernelVerdict::gather);
    }

    /// Places where a rule is broken, listed or not.
    pub fn errors(&self) -> u64 {
        let processes = self.processes.iter().map(ProcessVerdict::errors);
        processes.sum::<u64>() + self.kernel.as_ref().map_or(0, KernelVerdict::errors)
    }

    /// Returns the number of possible errors that were not confirmed by several looks.
    pub fn unsettled(&self) -> u64 {
        let processes = self.processes.iter().map(|process| process.unsettled);
        processes.sum::<u64>() + self.kernel.as_ref().map_or(0, |kernel| kernel.unsettled)
    }

    /// Everything that could not be judged.
    pub fn all_not_judged(&self) -> impl Iterator<Item = &NotJudged> {
        let processes = self
            .processes
            .iter()
            .flat_map(|process| &process.not_judged);
        let kernel = self.kernel.iter().flat_map(|kernel| &kernel.not_judged);
        self.not_judged.iter().chain(processes).chain(kernel)
    }

    /// Returns the reasons that this step was not judged, or not all of it, the most important first: the step as a
    /// whole, what its basis lacks, its processes, the kernel half. Without any, everything that was asked for was
    /// judged.
    pub fn reasons(&self) -> Vec<NotJudged> {
        let lacks = self.basis.iter().flat_map(Basis::reasons);
        let of_step = self.not_judged.iter().cloned().chain(lacks);
        let others = self.all_not_judged().skip(self.not_judged.len());
        let mut reasons: Vec<NotJudged> = of_step.chain(others.cloned()).collect();
        let is_any = self.basis.as_ref().is_some_and(Basis::is_any);
        if reasons.is_empty() && !is_any {
            reasons.push(NotJudged {
                reason: "nothing was looked at".into(),
            });
        }
        reasons
    }

    /// How this step ended by itself. A step that looked at nothing was not judged, nor was one that does not say what
    /// it stands on.
    pub fn outcome(&self) -> Outcome {
        if self.errors() > 0 {
            Outcome::Errors
        } else if self.reasons().is_empty() {
            Outcome::Ok
        } else {
            Outcome::NotJudged
        }
    }
}

impl Report {
    /// A report of nothing: not judged, until steps come.
    pub fn new(machine: Machine, kernel: Kernel) -> Report {
        Report {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine,
            kernel,
            steps: Vec::new(),
            crossing: None,
            not_judged: Vec::new(),
            not_written: Vec::new(),
            reason: None,
            totals: Totals::default(),
            outcome: Outcome::NotJudged,
            exit_status: Outcome::NotJudged.exit_status(),
        }
    }

    /// Returns the lacks of the bases of its steps, each reason once.
    #[must_use]
    pub fn lacks(&self) -> BTreeSet<&str> {
        let bases = self.steps.iter().filter_map(|step| step.basis.as_ref());
        bases
            .flat_map(|basis| basis.lacks.iter().map(String::as_str))
            .collect()
    }

    /// All that its steps stand on, as one: address spaces and rules of any step.
    #[must_use]
    pub fn basis(&self) -> Basis {
        let mut all = Basis::default();
        for basis in self.steps.iter().filter_map(|step| step.basis.as_ref()) {
            all.add(basis);
        }
        all
    }

    /// Adds a step; its findings of one cause are made one.
    pub fn push(&mut self, mut step: Step) {
        step.gather();
        let totals = &mut self.totals;
        totals.steps += 1;
        totals.errors += step.errors();
        totals.not_judged += step.all_not_judged().count() as u64;
        totals.unsettled += step.unsettled();
        for finding in step.findings() {
            *totals.rules.entry(finding.rule).or_default() += finding.places;
            match finding.severity {
                Severity::Error => totals.findings += 1,
                Severity::Information => totals.information += finding.places,
            }
        }
        let kernel = step.kernel.iter().map(|kernel| &kernel.dropped);
        let dropped = step
            .processes
            .iter()
            .map(|process| &process.dropped)
            .chain(kernel);
        for (rule, count) in dropped.flatten() {
            *totals.rules.entry(*rule).or_default() += count;
            if rule.is_information() {
                totals.information += count;
            }
        }
        for process in &step.processes {
            totals.entries += process.entries.pages + process.entries.blocks.values().sum::<u64>();
            for (state, count) in process.blocks() {
                *totals.blocks.entry(state).or_default() += count;
            }
        }
        // What a guest lacks it lacks in every step, and it counts once.
        let told = self.lacks();
        let lacks = step.basis.iter().flat_map(|basis| &basis.lacks);
        let new = lacks.filter(|lack| !told.contains(lack.as_str())).count();
        self.totals.not_judged += new as u64;
        self.steps.push(step);
        self.conclude();
    }

    /// Adds something that kept the run from being judged as a whole.
    pub fn push_not_judged(&mut self, reason: impl Into<String>) {
        self.not_judged.push(NotJudged {
            reason: reason.into(),
        });
        self.totals.not_judged += 1;
        self.conclude();
    }

    /// Adds an output that could not be written.
    pub fn push_not_written(&mut self, why: impl Into<String>) {
        self.not_written.push(why.into());
        self.conclude();
    }

    fn conclude(&mut self) {
        let of_steps = self.steps.iter().flat_map(Step::reasons);
        let mut reasons = of_steps.chain(self.not_judged.iter().cloned());
        let first = match self.steps.is_empty() && self.not_judged.is_empty() {
            true => Some("nothing was looked at".to_owned()),
            false => reasons.next().map(|first| first.reason),
        };
        self.outcome = match (self.totals.errors, &first) {
            (1.., _) => Outcome::Errors,
            (_, Some(_)) => Outcome::NotJudged,
            (_, None) => Outcome::Ok,
        };
        self.reason = first.filter(|_| self.outcome == Outcome::NotJudged);
        self.exit_status = match self.not_written.is_empty() {
            true => self.outcome.exit_status(),
            false => Outcome::NotJudged.exit_status(),
        };
    }
}

/// The JSON schema of [`Report`].
pub fn schema() -> serde_json::Value {
    schema_for!(Report).to_value()
}
