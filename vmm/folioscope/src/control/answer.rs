// SPDX-License-Identifier: GPL-2.0-only
//! Answers to a client.

use linux::console::ConsoleReport;
use protocol::Hello;
use schemars::JsonSchema;
use serde::Serialize;
use verdict::{Finding, Severity, Step};

use super::failure::Failure;
use super::methods::Done;
use crate::guest::Guest;

/// The first line that a client gets.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Greeting {
    /// The guest is up and takes requests.
    Ready(Box<Ready>),
    /// It did not come up.
    Error(Failure),
}

/// The guest's first line.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Ready {
    /// The version of the session's protocol.
    pub version: u32,
    /// The agent's facts about itself and the kernel.
    pub hello: Hello,
    /// Seconds from starting the machine to the agent's first line.
    pub seconds: f64,
}

impl Ready {
    /// Creates it from a guest that is up.
    #[must_use]
    pub fn of(guest: &Guest) -> Self {
        Self {
            version: super::limits::VERSION,
            hello: guest.hello().clone(),
            seconds: guest.ready_after().as_secs_f64(),
        }
    }
}

/// The answer to a request.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Answer {
    /// The request's id; null if the line had none that could be read.
    pub id: Option<u64>,
    /// Its result.
    #[serde(flatten)]
    pub result: RequestResult,
    /// After a failure: confirmed errors in the tables of a guest that hangs, and of a process that faults for ever.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// The guest kernel's reports on its console since the answer before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub voice: Vec<Report>,
}

/// A report of the guest's kernel: a WARNING, BUG, an oops, a stall, ...
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    /// The line that states the fault.
    pub headline: String,
    /// All of its lines.
    pub lines: Vec<String>,
    /// Microseconds after boot, if the kernel prints them.
    pub at_us: Option<u64>,
}

impl From<ConsoleReport> for Report {
    fn from(spoken: ConsoleReport) -> Self {
        Self {
            headline: spoken.headline().raw().to_owned(),
            lines: spoken
                .lines
                .iter()
                .map(|line| line.raw().to_owned())
                .collect(),
            at_us: spoken.at,
        }
    }
}

/// Returns the errors of the verdicts on a guest without progress.
#[must_use]
pub fn errors(steps: &[Step]) -> Vec<Finding> {
    let findings = steps.iter().flat_map(Step::findings);
    let errors = findings.filter(|finding| finding.severity == Severity::Error);
    errors.cloned().collect()
}

/// The result of a request. It is a `Result` with names that read well in JSON.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestResult {
    /// The request succeeded.
    Ok(Box<Done>),
    /// The request failed.
    Error(Failure),
}
