// SPDX-License-Identifier: GPL-2.0-only
//! The life of a block that a finding on a sequence (S1 to S7) is about: a row for each step, a column for each CPU.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};

use quick_xml::escape::escape;
use verdict::sequence::{pattern, Did, Folio, Instruction, Moment, Sequence};
use verdict::Finding;

/// Steps that are one row: stores of one instruction, one after the other, that do the same.
struct Row<'s> {
    steps: &'s [Moment],
    /// Contents of the block after them.
    block: String,
}

/// Writes it, closed until the reader opens it.
///
/// # Errors
/// Where it cannot be written.
pub fn write(out: &mut dyn Write, finding: &Finding, sequence: &Sequence) -> io::Result<()> {
    let frame = |word, frame: Option<verdict::Hex>, folio: Option<&Folio>| match (frame, folio) {
        (Some(frame), Some(folio)) => {
            format!("{word} (page frame {:#x} of a folio: {folio})", frame.0)
        }
        (Some(frame), None) => format!("{word} (page frame {:#x})", frame.0),
        (None, _) => format!("{word}"),
    };
    writeln!(
        out,
        "<p class=\"place\">{} &rarr; {}; {}</p>",
        frame(
            sequence.old,
            sequence.old_frame,
            sequence.old_folio.as_ref()
        ),
        frame(
            sequence.new,
            sequence.new_frame,
            sequence.new_folio.as_ref()
        ),
        escape(sequence.reference.as_str())
    )?;
    let rows = rows(finding, sequence);
    let cpus: BTreeSet<u16> = sequence.life.iter().map(|moment| moment.cpu).collect();
    writeln!(
        out,
        "<details class=\"life\"><summary>The last {} steps, and who called</summary>",
        sequence.life.len()
    )?;
    write!(out, "<table><thead><tr><th>event</th>")?;
    for cpu in &cpus {
        write!(out, "<th>CPU {cpu}</th>")?;
    }
    writeln!(
        out,
        "<th>block</th><th>by</th><th>in</th></tr></thead><tbody>"
    )?;
    for row in &rows {
        row.write(out, &cpus, sequence)?;
    }
    writeln!(out, "</tbody></table>")?;
    for (name, by) in [
        ("old word gone", sequence.broken.as_ref()),
        ("nearest TLBI", sequence.tlbi.as_ref()),
        ("new word written", Some(&sequence.made)),
    ] {
        if let Some(by) = by {
            write_callers(out, name, by)?;
        }
    }
    writeln!(out, "</details>")
}

fn write_callers(out: &mut dyn Write, name: &str, by: &Instruction) -> io::Result<()> {
    let callers: Vec<Cow<'_, str>> = by.callers.iter().map(|it| escape(it.as_str())).collect();
    writeln!(
        out,
        "<p>{name}: CPU {}, event {}, <code>{}</code>{}</p>",
        by.cpu,
        by.event,
        escape(by.place.as_str()),
        callers
            .iter()
            .map(|caller| format!(" &larr; <code>{caller}</code>"))
            .collect::<String>()
    )
}

impl Row<'_> {
    fn write(&self, out: &mut dyn Write, cpus: &BTreeSet<u16>, all: &Sequence) -> io::Result<()> {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else {
            return Ok(());
        };
        let is = |by: Option<&Instruction>| {
            by.is_some_and(|by| (first.event..=last.event).contains(&by.event))
        };
        let role = if is(Some(&all.made)) {
            "made"
        } else if is(all.broken.as_ref()) {
            "broken"
        } else if is(all.tlbi.as_ref()) {
            "tlbi"
        } else {
            "step"
        };
        write!(out, "<tr class=\"{role}\"><td>{}</td>", first.event)?;
        for cpu in cpus {
            let what = match *cpu == first.cpu {
                true => self.what(first),
                false => String::new(),
            };
            write!(out, "<td>{}</td>", escape(what.as_str()))?;
        }
        writeln!(
            out,
            "<td><code>{}</code></td><td><code>{}</code></td><td>{}</td></tr>",
            self.block,
            escape(first.place.as_str()),
            escape(first.within.as_deref().unwrap_or_default())
        )
    }

    fn what(&self, first: &Moment) -> String {
        match &first.did {
            Did::Store { va, old, new } => {
                let place = va.map_or_else(|| "elsewhere".into(), |va| va.to_string());
                match self.steps.len() {
                    1 => format!("{place}: {old} -> {new}"),
                    more => format!("{place} and {} more: {old} -> {new} ...", more - 1),
                }
            }
            Did::Tlbi { operation, operand } => match self.steps.len() {
                1 => format!("TLBI {operation} {operand}"),
                more => format!("TLBI {operation} {operand} and {} more", more - 1),
            },
            Did::Dsb { option } => format!("DSB {option}"),
        }
    }
}

/// Returns the effect of a store, by the characters of the map, or the kind of a TLBI.
fn kind(moment: &Moment) -> String {
    match &moment.did {
        Did::Store { old, new, .. } => pattern([old.0, new.0]),
        Did::Tlbi { operation, .. } => operation.clone(),
        Did::Dsb { option } => format!("dsb {option} {}", moment.event),
    }
}

fn rows<'s>(finding: &Finding, sequence: &'s Sequence) -> Vec<Row<'s>> {
    let alike = |one: &Moment, two: &Moment| {
        (one.cpu, &one.place, kind(one)) == (two.cpu, &two.place, kind(two))
    };
    // The block is known as it is at the end: back from there.
    let mut words: Vec<u64> = finding.words.iter().map(|word| word.0).collect();
    let first = sequence.block.unwrap_or(finding.va).0;
    let bytes = finding.end.0.wrapping_sub(finding.va.0).max(1);
    let mut rows: Vec<Row<'s>> = Vec::new();
    for steps in sequence.life.chunk_by(alike).rev() {
        let block = pattern(words.iter().copied());
        for step in steps.iter().rev() {
            if let Did::Store {
                va: Some(va), old, ..
            } = &step.did
            {
                let at = va.0.wrapping_sub(first) / bytes;
                if let Some(word) = words.get_mut(at as usize) {
                    *word = old.0;
                }
            }
        }
        rows.push(Row { steps, block });
    }
    rows.reverse();
    rows
}
