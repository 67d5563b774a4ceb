// SPDX-License-Identifier: GPL-2.0-only
//! A judge's verdict for people.

use std::fmt::Write as _;
use std::io::{self, Write};

use recorder::{Block, Finding, Judge, Scene, Stored};
use verdict::sequence::pattern;

use super::end::End;
use super::first::{first_of_each, not_judged, overtaken};
use super::found::folio_of;
use super::names::Names;

/// Callers that are shown of a chain.
const MOST_CALLERS: usize = 12;

/// Writes all of it.
///
/// # Errors
/// If it cannot be written.
pub fn tell(out: &mut dyn Write, judge: &Judge, end: &End, names: &Names<'_>) -> io::Result<()> {
    let summary = judge.summary();
    writeln!(
        out,
        "{} stores to descriptors, {} TLBIs, {} barriers; {:.1} bytes of trace for an event",
        summary.stores,
        summary.tlbis,
        summary.barriers,
        end.bytes as f64 / summary.events.max(1) as f64
    )?;
    for finding in first_of_each(judge) {
        out.write_all(in_full(judge, finding, names).as_bytes())?;
    }
    let not_judged = not_judged(judge, end);
    for sentence in &not_judged {
        writeln!(out, "not judged: {sentence}")?;
    }
    if let Some(sentence) = overtaken(judge) {
        writeln!(out, "note: {sentence}")?;
    }
    writeln!(out, "{} findings", summary.findings)?;
    out.flush()
}

fn in_full(judge: &Judge, finding: &Finding, names: &Names<'_>) -> String {
    let mut text = format!(
        "{} {}\n  {}\n  VA {:#018x} level {}: {:#018x} -> {:#018x}; {} time(s) at this place\n",
        finding.rule,
        finding.sentence,
        finding.rule.reference(),
        finding.va,
        finding.level,
        finding.old,
        finding.new,
        judge.findings().count(finding)
    );
    if let Some(process) = names.process(&finding.made, finding.root) {
        let name = match process.name.is_empty() {
            true => String::new(),
            false => format!(" ({})", process.name),
        };
        let _ = writeln!(text, "  process {}{name}", process.pid);
    }
    if let Some(Block { va, before, after }) = &finding.block {
        if before.len() <= 64 {
            let [before, after] = [before, after].map(|words| pattern(words.iter().copied()));
            let _ = writeln!(text, "  block   {va:#018x} [{before}] -> [{after}]");
        }
    }
    // Not for the kernel half.
    if finding.va >> 63 == 0 && finding.scene.frames != [None, None] {
        let [old, new] = [0, 1].map(|at| behind(&finding.scene, at));
        let _ = match old == new {
            true => writeln!(text, "  folio   {old}, before and after"),
            false => writeln!(text, "  folio   {old} -> {new}"),
        };
    }
    for (what, by) in [
        ("broken", finding.broken),
        ("TLBI", finding.tlbi),
        ("made", Some(finding.made)),
    ] {
        if let Some(by) = by {
            stored(&mut text, what, judge, &by, names);
        }
    }
    text
}

/// Returns the folio of the old word or the new one.
fn behind(scene: &Scene, at: usize) -> String {
    match (scene.frames[at], scene.folios[at]) {
        (None, _) => "none".into(),
        (Some(_), None) => "not known".into(),
        (Some(_), Some(found)) => folio_of(found).to_string(),
    }
}

fn stored(text: &mut String, what: &str, judge: &Judge, by: &Stored, names: &Names<'_>) {
    let _ = writeln!(
        text,
        "  {what:<7} CPU {} at {} (event {})",
        by.cpu,
        names.of_pc(by.pc),
        by.event
    );
    let callers = names.callers(judge, by);
    for caller in callers.iter().take(MOST_CALLERS) {
        let _ = writeln!(text, "          {caller}");
    }
    if callers.len() > MOST_CALLERS {
        let _ = writeln!(text, "          and {} more", callers.len() - MOST_CALLERS);
    }
}
