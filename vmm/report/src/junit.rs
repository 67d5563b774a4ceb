// SPDX-License-Identifier: GPL-2.0-only
//! The report as JUnit XML: one suite per workload, one test case per checkpoint.

use std::io::{self, Write};

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use crate::format::Format;
use crate::text::counted_errors;
use verdict::{Finding, Outcome, Report, Severity, Step};

/// The format.
pub const FORMAT: Format = Format {
    name: "junit",
    about: "Also write it as JUnit XML",
    has_pages: false,
    lists_failures: false,
    write: |mut out, report, _| write(&mut out, report),
};

/// Writes it. An error is a failure, and what could not be judged an error in JUnit's sense:
/// neither passes. A run that came to no checkpoint gets one case that says so.
pub fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut junit = quick_junit::Report::new("folioscope");
    for (workload, steps) in by_workload(&report.steps) {
        let mut suite = TestSuite::new(workload);
        for step in steps {
            suite.add_test_case(case(workload, step));
        }
        junit.add_test_suite(suite);
    }
    if report.steps.is_empty() || !report.not_judged.is_empty() {
        let reasons: Vec<&str> = report
            .not_judged
            .iter()
            .map(|n| n.reason.as_str())
            .collect();
        let message = match reasons.is_empty() {
            true => "nothing was judged".to_owned(),
            false => reasons.join("\n"),
        };
        let mut suite = TestSuite::new("run");
        suite.add_test_case(TestCase::new("judged as a whole", error(&message)));
        junit.add_test_suite(suite);
    }
    junit.serialize(out).map_err(io::Error::other)
}

/// Steps by workload, in order of the workloads' first steps.
pub(crate) fn by_workload(steps: &[Step]) -> Vec<(&str, Vec<&Step>)> {
    let mut all: Vec<(&str, Vec<&Step>)> = Vec::new();
    for step in steps {
        match all
            .iter_mut()
            .find(|(workload, _)| *workload == step.workload)
        {
            Some((_, steps)) => steps.push(step),
            None => all.push((&step.workload, vec![step])),
        }
    }
    all
}

fn case(workload: &str, step: &Step) -> TestCase {
    let errors: Vec<String> = step
        .findings()
        .filter(|finding| finding.severity == Severity::Error)
        .map(Finding::line)
        .collect();
    let status = match step.outcome() {
        Outcome::Ok => TestCaseStatus::success(),
        Outcome::Errors => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(counted_errors(step.errors(), errors.len() as u64));
            status.set_description(errors.join("\n"));
            status
        }
        Outcome::NotJudged => {
            let reasons: Vec<String> = step.reasons().into_iter().map(|n| n.reason).collect();
            error(&reasons.join("\n"))
        }
    };
    let mut case = TestCase::new(&*step.step, status);
    case.set_classname(workload);
    if let Some(seconds) = step.seconds {
        case.set_time(std::time::Duration::from_secs_f64(seconds.max(0.0)));
    }
    case
}

fn error(description: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
    status.set_message("could not be judged");
    status.set_description(description);
    status
}
