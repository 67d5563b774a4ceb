// SPDX-License-Identifier: GPL-2.0-only
//! The report for people.

use std::collections::BTreeSet;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use untrusted::escaped;

use crate::map::{self, MapOptions};
use verdict::basis::{names, Because};
use verdict::{Basis, Finding, Outcome, Report, RuleId, Severity, Step};

/// Extent of the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextOptions {
    /// How to draw maps; colours of the rest follow it.
    pub map: MapOptions,
    /// Draw the map of every process (else only of those with an error).
    pub maps: bool,
    /// Print information findings too.
    pub information: bool,
}

/// Findings of one step that are printed.
const FINDINGS_SHOWN: usize = 20;
/// Places of a finding that are printed, the first apart.
const PLACES_SHOWN: usize = 6;

/// Writes the report but for its last line, which is [`write_verdict`]'s.
pub fn write(out: &mut impl Write, report: &Report, options: &TextOptions) -> io::Result<()> {
    for step in &report.steps {
        write_step(out, step, options)?;
    }
    if report.steps.iter().any(|step| drawn(step, options)) {
        write!(out, "\n{}", map::LEGEND)?;
    }
    write_end(out, report)
}

fn drawn(step: &Step, options: &TextOptions) -> bool {
    step.processes
        .iter()
        .any(|process| options.maps || process.errors() > 0)
}

/// Writes one step, as it can be done while the run goes on.
pub fn write_step(out: &mut impl Write, step: &Step, options: &TextOptions) -> io::Result<()> {
    let mark = word(step.outcome(), options);
    writeln!(out, "{mark} {}: {}", step.workload, step.step)?;
    let mut step = step.clone();
    step.gather();
    let step = &step;
    let severity = |finding: &&Finding| finding.severity == Severity::Error || options.information;
    let findings: Vec<&Finding> = step.findings().filter(severity).collect();
    for finding in findings.iter().take(FINDINGS_SHOWN) {
        write_finding(out, finding, options)?;
    }
    let dropped: u64 = step
        .processes
        .iter()
        .flat_map(|process| &process.dropped)
        .filter(|(rule, _)| !rule.is_information() || options.information)
        .map(|(_, count)| count)
        .sum();
    let more = findings.len().saturating_sub(FINDINGS_SHOWN) as u64 + dropped;
    if more > 0 {
        writeln!(out, "  … and {more} more findings")?;
    }
    for not_judged in step.all_not_judged() {
        writeln!(out, "  not judged: {}", not_judged.reason)?;
    }
    // What is true of several processes is told once.
    let mut told = BTreeSet::new();
    let lacks = step.basis.iter().flat_map(|basis| &basis.lacks);
    for lack in lacks {
        writeln!(out, "  not judged: {lack}")?;
        told.insert(lack);
    }
    for note in step.processes.iter().flat_map(|process| &process.notes) {
        if told.insert(note) {
            writeln!(out, "  note: {note}")?;
        }
    }
    for process in &step.processes {
        if options.maps || process.errors() > 0 {
            map::draw(out, process, &options.map)?;
        }
    }
    if let Some(kernel) = &step.kernel {
        for (region, sizes) in &kernel.mapped {
            let sizes: Vec<String> = sizes
                .iter()
                .map(|(name, size)| format!("{name} {}", map::bytes(*size)))
                .collect();
            map::wrapped(out, 0, &format!("  {region}: {}", sizes.join(", ")))?;
        }
        for note in kernel.notes.iter().filter(|note| !told.contains(note)) {
            writeln!(out, "  note: {note}")?;
        }
    }
    Ok(())
}

fn write_finding(out: &mut impl Write, finding: &Finding, options: &TextOptions) -> io::Result<()> {
    let style = match finding.severity {
        Severity::Error => Style::new().bold().fg_color(Some(AnsiColor::Red.into())),
        Severity::Information => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
    };
    let style = map::paint(&options.map, style);
    let who = finding.who();
    if !finding.rule.rule().is_about_tables() {
        return writeln!(
            out,
            "  {style}{}{style:#} {}",
            finding.rule, finding.message
        );
    }
    writeln!(
        out,
        "  {style}{}{style:#} {who} VA {} level {}: {}",
        finding.rule, finding.va, finding.level, finding.message
    )?;
    for remark in &finding.remarks {
        map::wrapped(out, 0, &format!("     {remark}"))?;
    }
    if finding.severity == Severity::Information || finding.words.is_empty() {
        return write_places(out, finding);
    }
    // Equal words but for their address do not help anybody: what differs from its neighbour does.
    let table = finding.table;
    writeln!(out, "     table {table} from index {}:", finding.index)?;
    for (line, words) in finding.words.chunks(4).enumerate().take(8) {
        let words: Vec<String> = words
            .iter()
            .map(|word| format!("{:016x}", word.0))
            .collect();
        writeln!(
            out,
            "     {:>4}  {}",
            finding.index + 4 * line,
            words.join(" ")
        )?;
    }
    if finding.words.len() > 32 {
        writeln!(out, "           … {} words in all", finding.words.len())?;
    }
    write_places(out, finding)
}

/// The other places of the same cause.
fn write_places(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    if finding.places <= 1 {
        return Ok(());
    }
    let shown = finding.more.iter().take(PLACES_SHOWN);
    let shown: Vec<String> = shown.map(|place| place.va.to_string()).collect();
    let more = counted(finding.places - 1, "more place", "more places");
    let rest = match finding.places - 1 > shown.len() as u64 {
        true => " …",
        false => "",
    };
    let text = format!("     in {more}: VA {}{rest}", shown.join(" "));
    map::wrapped(out, 0, &text)
}

/// Writes the sums. The verdict is [`write_verdict`]'s.
pub fn write_end(out: &mut impl Write, report: &Report) -> io::Result<()> {
    for not_judged in &report.not_judged {
        writeln!(out, "not judged: {}", not_judged.reason)?;
    }
    write_basis(out, &report.basis())?;
    let totals = &report.totals;
    let rules: Vec<String> = totals
        .rules
        .iter()
        .map(|(rule, count)| format!("{rule} x{count}"))
        .collect();
    let rules = match rules.is_empty() {
        true => String::new(),
        false => format!(" ({})", rules.join(", ")),
    };
    let errors = counted_errors(totals.errors, totals.findings);
    let unsettled = match totals.unsettled {
        0 => String::new(),
        count => format!(", {} taken back", counted(count, "error", "errors")),
    };
    writeln!(
        out,
        "{}, {}: {}, {}, {} not judged{unsettled}{rules}",
        counted(totals.steps, "checkpoint", "checkpoints"),
        counted(totals.entries, "entry", "entries"),
        errors,
        counted(totals.information, "remark", "remarks"),
        totals.not_judged
    )
}

/// Writes the last line: the verdict, and the exit status. To be written after everything else that may fail: a report that
/// could not be written is part of the status.
pub fn write_verdict(
    out: &mut impl Write,
    report: &Report,
    options: &TextOptions,
) -> io::Result<()> {
    let verdict = match report.outcome {
        Outcome::Ok => "no error found".to_owned(),
        Outcome::Errors => "errors found".to_owned(),
        Outcome::NotJudged => match &report.reason {
            Some(reason) => format!("could not be judged: {}", reason.replace(['\n', '\r'], " ")),
            None => "could not be judged".to_owned(),
        },
    };
    let mark = match (report.outcome, report.not_written.is_empty()) {
        (Outcome::Ok, false) => styled("NOT WRITTEN", AnsiColor::Yellow, options),
        (outcome, _) => word(outcome, options),
    };
    let not_written = match report.not_written.len() as u64 {
        0 => String::new(),
        count => format!(
            "; {} could not be written",
            counted(count, "output", "outputs")
        ),
    };
    let status = report.exit_status;
    writeln!(out, "{mark} {verdict}{not_written} (exit status {status})")
}

/// Writes the basis of the verdict in brief: what was judged, of which kernel, by which rules; and which were not asked.
fn write_basis(out: &mut impl Write, basis: &Basis) -> io::Result<()> {
    writeln!(out)?;
    let spaces = match (basis.judged.len(), basis.known) {
        (0, Some(0) | None) => None,
        (judged, Some(known)) => Some(format!("{judged} of {known} address spaces")),
        (judged, None) => Some(counted(judged as u64, "address space", "address spaces")),
    };
    let half = basis.kernel_half.then(|| "the kernel half".to_owned());
    let what: Vec<String> = spaces.into_iter().chain(half).collect();
    if what.is_empty() {
        return Ok(());
    }
    let by = match &basis.kernel.recognised_by {
        Some(by) => format!(" (known by {by})"),
        None => String::new(),
    };
    let release = match &basis.kernel.release {
        Some(release) => format!("Linux {}{by}", escaped(release)),
        None => "a kernel that is not known".into(),
    };
    let judged = format!(
        "judged: {} of {release}, by {}",
        what.join(" and "),
        names(&basis.in_force)
    );
    map::wrapped(out, 0, &judged)?;
    let of_kind = |because| {
        let of = basis.not_in_force.iter();
        let of: BTreeSet<RuleId> = of
            .filter(|it| it.because == because)
            .map(|it| it.rule)
            .collect();
        (!of.is_empty()).then(|| names(&of))
    };
    let out_of_force = [
        ("not asked", Because::NotAsked),
        ("about nothing that this kernel has", Because::NotThere),
        ("lacking", Because::Absent),
    ];
    for (name, because) in out_of_force {
        if let Some(rules) = of_kind(because) {
            map::wrapped(out, 0, &format!("{name}: {rules}"))?;
        }
    }
    Ok(())
}

/// Errors, and of how many causes they are where that is fewer.
pub(crate) fn counted_errors(errors: u64, findings: u64) -> String {
    let text = counted(errors, "error", "errors");
    match findings < errors {
        true => format!("{text} of {}", counted(findings, "cause", "causes")),
        false => text,
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn word(outcome: Outcome, options: &TextOptions) -> String {
    let (text, colour) = match outcome {
        Outcome::Ok => ("ok", AnsiColor::Green),
        Outcome::Errors => ("ERROR", AnsiColor::Red),
        Outcome::NotJudged => ("NOT JUDGED", AnsiColor::Yellow),
    };
    styled(text, colour, options)
}

fn styled(text: &str, colour: AnsiColor, options: &TextOptions) -> String {
    let style = Style::new().bold().fg_color(Some(colour.into()));
    let style = map::paint(&options.map, style);
    format!("{style}{text}{style:#}")
}
