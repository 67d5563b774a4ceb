//! `folioscope check`: the rules, over a live guest or a saved snapshot.

use std::io;

use clap::Args;
use snapshot::Snapshot;
use verdict::{NotJudged, Step};

use super::Outcome;
use crate::capture::judge_kernel_half;
use crate::look::judge_process;
use crate::report::{about, ReportFormat, ReportOptions};
use crate::source::{foreign, Need, SourceOptions};
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
        let source = self.source.open(Need::Verdict)?;
        let snapshot = &source.snapshot;
        let step = match foreign::is_foreign(snapshot) {
            true => foreign::step(snapshot, self.source.pid)?,
            false => step(snapshot, self.source.pid)?,
        };
        let mut report = about(snapshot, source.kind);
        report.push(step);
        if self.report.format == ReportFormat::Text {
            let mut text = self.report.text();
            // A map is drawn by VMA.
            text.maps &= !foreign::is_foreign(snapshot);
            verdict::text::write(&mut io::stdout().lock(), &report, &text)
                .map_err(Error::io("write to standard output"))?;
        }
        self.report.finish(&report)
    }
}

/// A process at its checkpoint, and the kernel half.
fn step(snapshot: &Snapshot, pid: Option<u32>) -> Result<Step, Error> {
    let (verdict, _) = judge_process(snapshot, pid, &[])?;
    let mut step = Step {
        workload: "check".into(),
        step: format!("pid {}", verdict.process.pid),
        processes: vec![verdict],
        ..Step::default()
    };
    match judge_kernel_half(snapshot) {
        Ok(kernel) => step.kernel = Some(kernel),
        Err(error) => step.not_judged.push(NotJudged {
            reason: error.to_string(),
        }),
    }
    Ok(step)
}
