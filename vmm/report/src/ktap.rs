// SPDX-License-Identifier: GPL-2.0-only
//! The report as KTAP version 1 (`Documentation/dev-tools/ktap.rst`): a test per workload, with a
//! subtest per checkpoint.

use std::io::{self, Write};

use crate::format::Format;
use crate::junit::by_workload;
use verdict::{Outcome, Report, Severity, Step};

/// The format.
pub const FORMAT: Format = Format {
    name: "ktap",
    about: "Also write it in the kernel's TAP",
    has_pages: false,
    lists_failures: false,
    write: |mut out, report, _| write(&mut out, report),
};

/// Writes it. What could not be judged is `not ok` with a diagnostic and never a SKIP, which would
/// read as fine; a run that came to no checkpoint has one test that failed.
pub fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out, "KTAP version 1")?;
    let workloads = by_workload(&report.steps);
    let whole = report.steps.is_empty() || !report.not_judged.is_empty();
    writeln!(out, "1..{}", workloads.len() + usize::from(whole))?;
    for (index, (workload, steps)) in workloads.iter().enumerate() {
        writeln!(out, "  KTAP version 1")?;
        writeln!(out, "  # Subtest: {}", name(workload))?;
        writeln!(out, "  1..{}", steps.len())?;
        for (index, step) in steps.iter().enumerate() {
            diagnostics(out, step)?;
            let ok = result(step.outcome() == Outcome::Ok);
            writeln!(out, "  {ok} {} {}", index + 1, name(&step.step))?;
        }
        let ok = result(steps.iter().all(|step| step.outcome() == Outcome::Ok));
        writeln!(out, "{ok} {} {}", index + 1, name(workload))?;
    }
    if whole {
        for not_judged in &report.not_judged {
            writeln!(out, "# not judged: {}", line(&not_judged.reason))?;
        }
        writeln!(out, "not ok {} judged as a whole", workloads.len() + 1)?;
    }
    Ok(())
}

fn diagnostics(out: &mut impl Write, step: &Step) -> io::Result<()> {
    for finding in step.findings().filter(|f| f.severity == Severity::Error) {
        writeln!(out, "  # {}", line(&finding.line()))?;
    }
    for not_judged in step.reasons() {
        writeln!(out, "  # not judged: {}", line(&not_judged.reason))?;
    }
    Ok(())
}

fn result(ok: bool) -> &'static str {
    if ok {
        "ok"
    } else {
        "not ok"
    }
}

/// A description has no `#`, which would begin a directive, and stays on its line.
fn name(text: &str) -> String {
    line(text).replace('#', "")
}

fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
