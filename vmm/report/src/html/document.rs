// SPDX-License-Identifier: GPL-2.0-only
//! The page itself: what can be read without a script, and the data and script for what cannot.

use std::borrow::Cow;
use std::io::{self, Write};

use quick_xml::escape::escape;
use verdict::{Finding, Outcome, Report, Severity, Step};

use super::data::{is_of_entries, Data};
use super::{matrix, timeline, Pages};

/// Findings that are listed above the picture, of each severity.
const LISTED: usize = 500;

const STYLE: &str = include_str!("../../assets/page.css");
const EXPLORER: &str = include_str!("../../assets/explorer.html");
/// One script, in the order of its parts.
const SCRIPT: [&str; 7] = [
    include_str!("../../assets/decode.js"),
    include_str!("../../assets/space.js"),
    include_str!("../../assets/layout.js"),
    include_str!("../../assets/draw.js"),
    include_str!("../../assets/rows.js"),
    include_str!("../../assets/controls.js"),
    include_str!("../../assets/main.js"),
];
/// Nothing is loaded, and nothing sent: the page is all there is.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'";

/// Text of anybody's, to stand in HTML.
fn text(text: &str) -> Cow<'_, str> {
    escape(text)
}

/// Writes the page of a run.
///
/// # Errors
/// Where it cannot be written.
pub fn write(out: &mut dyn Write, report: &Report, pages: &Pages) -> io::Result<()> {
    let (word, class) = match report.outcome {
        Outcome::Ok => ("no error found", "ok"),
        Outcome::Errors => ("errors found", "error"),
        Outcome::NotJudged => ("could not be judged", "open"),
    };
    let release = report.kernel.release.as_deref().unwrap_or("a kernel");
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{word}: {}, {} checkpoints - Folioscope</title>\n<style>\n{STYLE}</style>\n</head>\n<body>",
        text(release),
        report.totals.steps,
    )?;
    writeln!(out, "<header class=\"verdict {class}\" id=\"verdict\">")?;
    writeln!(out, "<h1><span class=\"word\">{word}</span></h1>")?;
    write_machine(out, report)?;
    write_counts(out, report)?;
    writeln!(out, "</header>")?;
    write_findings(out, report)?;
    write_not_judged(out, report)?;
    matrix::write(out, report)?;
    writeln!(out, "{EXPLORER}")?;
    write!(out, "<script type=\"application/json\" id=\"data\">")?;
    Data::new(report, pages).write(out)?;
    writeln!(out, "</script>\n<script>\n'use strict';\n(() => {{")?;
    for part in SCRIPT {
        out.write_all(part.as_bytes())?;
    }
    writeln!(out, "}})();\n</script>\n</body>\n</html>")
}

fn write_machine(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let (machine, kernel) = (&report.machine, &report.kernel);
    let mut parts = Vec::new();
    if let Some(release) = &kernel.release {
        parts.push(format!("Linux {release}"));
    }
    if machine.page_size > 0 {
        let bits = (machine.va_bits, machine.pa_bits);
        parts.push(format!("{} KiB pages", machine.page_size / 1024));
        parts.push(format!("{} bits of VA, {} of PA", bits.0, bits.1));
    }
    if let Some(cpus) = machine.cpus {
        let model = machine
            .cpu
            .as_deref()
            .map_or(String::new(), |it| format!(" ({it})"));
        parts.push(format!("{cpus} CPUs{model}"));
    }
    if let Some(memory) = machine.memory {
        parts.push(format!("{} MiB", memory >> 20));
    }
    if let Some(policy) = &kernel.policy {
        parts.push(format!("policy {policy}"));
    }
    if !machine.kind.is_empty() {
        parts.push(machine.kind.clone());
    }
    parts.push(format!("folioscope {}", report.version));
    writeln!(out, "<p class=\"machine\">{}</p>", text(&parts.join(" · ")))
}

fn write_counts(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let totals = &report.totals;
    let mut counts = vec![
        (totals.steps, "checkpoint", "checkpoints", "plain"),
        (totals.entries, "entry", "entries", "plain"),
        (totals.errors, "error", "errors", "error"),
    ];
    if totals.findings < totals.errors {
        counts.push((totals.findings, "cause", "causes", "error"));
    }
    counts.push((totals.not_judged, "not judged", "not judged", "open"));
    if totals.unsettled > 0 {
        let names = ("error taken back", "errors taken back");
        counts.push((totals.unsettled, names.0, names.1, "open"));
    }
    counts.push((totals.information, "remark", "remarks", "plain"));
    writeln!(out, "<ul class=\"counts\">")?;
    for (number, one, many, class) in counts {
        let name = if number == 1 { one } else { many };
        let class = if number == 0 { "none" } else { class };
        writeln!(out, "<li class=\"{class}\"><b>{number}</b> {name}</li>")?;
    }
    writeln!(out, "</ul>")?;
    if totals.rules.is_empty() {
        return Ok(());
    }
    writeln!(out, "<ul class=\"rules\">")?;
    for (rule, places) in &totals.rules {
        let title = rule.title();
        let class = if rule.is_information() {
            "plain"
        } else {
            "error"
        };
        writeln!(
            out,
            "<li class=\"{class}\"><b>{rule}</b> &times; {places} <span>{}</span></li>",
            text(title)
        )?;
    }
    writeln!(out, "</ul>")
}

/// A finding, the number of its checkpoint, and its own by the order of the data.
struct Listed<'r> {
    number: usize,
    at: usize,
    step: &'r Step,
    finding: &'r Finding,
}

fn write_findings(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let steps = report.steps.iter().enumerate();
    let all = steps.flat_map(|(at, step)| step.findings().map(move |it| (at, step, it)));
    let all = all.enumerate().map(|(number, (at, step, finding))| Listed {
        number,
        at,
        step,
        finding,
    });
    let (errors, remarks): (Vec<_>, Vec<_>) =
        all.partition(|it| it.finding.severity == Severity::Error);
    if !errors.is_empty() {
        writeln!(
            out,
            "<section class=\"findings\" id=\"findings\"><h2>What is wrong</h2>"
        )?;
        write_list(out, &errors)?;
        writeln!(out, "</section>")?;
    }
    if !remarks.is_empty() {
        writeln!(
            out,
            "<details class=\"findings\" id=\"remarks\"><summary>Legal, and worth knowing: {}</summary>",
            remarks.len()
        )?;
        write_list(out, &remarks)?;
        writeln!(out, "</details>")?;
    }
    Ok(())
}

fn write_list(out: &mut dyn Write, all: &[Listed<'_>]) -> io::Result<()> {
    writeln!(out, "<ol>")?;
    for it in all.iter().take(LISTED) {
        let finding = it.finding;
        let who = finding.who();
        writeln!(
            out,
            "<li id=\"finding-{}\"><p><b class=\"rule\" title=\"{}\">{}</b> {}</p>",
            it.number,
            text(finding.rule.title()),
            finding.rule,
            text(&finding.message)
        )?;
        write!(
            out,
            "<p class=\"place\"><bdi>{}</bdi>: <bdi>{}</bdi>, <bdi>{}</bdi>",
            text(&it.step.workload),
            text(&it.step.step),
            text(&who)
        )?;
        if finding.sequence.is_some() {
            // No picture shows it: what is there behind it may be right again.
            write!(out, ", VA {}, level {}", finding.va, finding.level)?;
        } else if is_of_entries(finding) {
            write!(
                out,
                ", VA <a href=\"#step={}&amp;finding={}\">{}</a>, level {}, table {} from index {}",
                it.at, it.number, finding.va, finding.level, finding.table, finding.index
            )?;
        }
        match finding.places {
            0 | 1 => {}
            2 => write!(out, ", and in 1 more place")?,
            places => write!(out, ", and in {} more places", places - 1)?,
        }
        writeln!(out, "</p>")?;
        for remark in &finding.remarks {
            writeln!(out, "<p class=\"remark\">{}</p>", text(remark))?;
        }
        if let Some(sequence) = &finding.sequence {
            timeline::write(out, finding, sequence)?;
        }
        writeln!(out, "</li>")?;
    }
    writeln!(out, "</ol>")?;
    if all.len() > LISTED {
        let more = all.len() - LISTED;
        writeln!(
            out,
            "<p class=\"left-out\">{more} more are not listed here; each is in the picture of its checkpoint.</p>"
        )?;
    }
    Ok(())
}

fn write_not_judged(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let whole = report.not_judged.iter().map(|it| (None, it));
    let steps = report.steps.iter();
    let all =
        whole.chain(steps.flat_map(|step| step.all_not_judged().map(move |it| (Some(step), it))));
    let all: Vec<_> = all.collect();
    if all.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<section class=\"not-judged\" id=\"not-judged\"><h2>What could not be judged</h2><ul>"
    )?;
    for (step, it) in all.iter().take(LISTED) {
        write!(out, "<li>")?;
        if let Some(step) = step {
            write!(
                out,
                "<bdi>{}</bdi>: <bdi>{}</bdi>: ",
                text(&step.workload),
                text(&step.step)
            )?;
        }
        writeln!(out, "{}</li>", text(&it.reason))?;
    }
    writeln!(out, "</ul>")?;
    if all.len() > LISTED {
        writeln!(
            out,
            "<p class=\"left-out\">and {} more</p>",
            all.len() - LISTED
        )?;
    }
    writeln!(out, "</section>")
}
