// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope check`: the rules, over a live guest or a saved snapshot.

use analysis::unattended::is_unattended;
use clap::Args;

use super::output::stdout;
use super::Outcome;
use crate::report::{about, ReportFormat, ReportOptions};
use crate::source::{SourceOptions, Wanted};
use crate::Error;

/// Judge a process and the kernel half, live or from a saved snapshot
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope check saved.core --information --json verdict.json")]
pub struct Check {
    #[command(flatten)]
    pub source: SourceOptions,
    #[command(flatten)]
    report: ReportOptions,
}

impl Check {
    pub fn run(self) -> Outcome {
        let source = self.source.open(Wanted::Verdict)?;
        let snapshot = &source.snapshot;
        let mut report = about(snapshot, &source.kind);
        let mut picture = self.report.picture();
        picture.snapshot(report.steps.len(), snapshot);
        let step = analysis::step(snapshot, self.source.pid)?;
        let several = step.processes.len() > 1;
        report.push(step);
        if self.report.format == ReportFormat::Text {
            let mut text = self.report.text();
            // A map is drawn by VMA, and of one process.
            text.maps &= !is_unattended(snapshot) && !several;
            report::text::write(&mut stdout(), &report, &text)
                .map_err(Error::io("write to standard output"))?;
        }
        self.report.finish(&mut report, &picture)
    }
}
