// SPDX-License-Identifier: GPL-2.0-only
//! The table of the crossing: operations by states, each row leading to its checkpoint.

use std::io::{self, Write};

use quick_xml::escape::escape;
use verdict::crossing::{Crossing, CrossingCell, CrossingRow};
use verdict::Report;

/// Writes the table of a report, if it has one.
///
/// # Errors
/// Where it cannot be written.
pub fn write(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let Some(table) = &report.crossing else {
        return Ok(());
    };
    let counts = table.counts();
    writeln!(
        out,
        "<section class=\"crossing\" id=\"crossing\"><h2>Operations by states</h2>\n\
         <p>{} cells without an error, {} with one, {} not judged; {} pairs left out. A name leads to its checkpoint.</p>\n\
         <div class=\"matrix\"><table><thead><tr><th></th>",
        counts.green, counts.red, counts.not_judged, counts.left_out
    )?;
    for state in &table.states {
        let (name, title) = (escape(&state.name), escape(&state.title));
        write!(
            out,
            "<th scope=\"col\" title=\"{title}\"><span>{name}</span></th>"
        )?;
    }
    writeln!(out, "</tr></thead><tbody>")?;
    for row in &table.rows {
        write_row(out, report, table, row)?;
    }
    writeln!(out, "</tbody></table></div></section>")
}

fn write_row(
    out: &mut dyn Write,
    report: &Report,
    table: &Crossing,
    row: &CrossingRow,
) -> io::Result<()> {
    let name = row.name();
    let step = report.steps.iter().position(|step| step.step == name);
    let link = |text: &str| match step {
        Some(step) => format!("<a href=\"#step={step}\">{text}</a>"),
        None => text.to_owned(),
    };
    write!(out, "<tr><th scope=\"row\">{}</th>", link(&escape(&name)))?;
    for (state, cell) in table.states.iter().zip(&row.cells) {
        let (class, text, why) = match cell {
            CrossingCell::Green => ("good", String::new(), String::new()),
            CrossingCell::Red { errors } => (
                "wrong",
                link(&errors.to_string()),
                format!("{errors} errors"),
            ),
            CrossingCell::NotJudged { reason } => {
                ("open", link("?"), format!("not judged: {reason}"))
            }
            CrossingCell::LeftOut { reason } => ("out", String::new(), reason.clone()),
        };
        let title = format!("{}, {name}: {why}", state.name);
        let title = match cell {
            CrossingCell::Green => String::new(),
            _ => format!(" title=\"{}\"", escape(&title)),
        };
        write!(out, "<td class=\"{class}\"{title}>{text}</td>")?;
    }
    writeln!(out, "</tr>")
}

#[cfg(test)]
mod tests {
    use verdict::crossing::{Acting, CrossedState};
    use verdict::{Kernel, Machine, Step};

    use super::*;

    #[test]
    fn each_row_leads_to_its_checkpoint() {
        let state = |name: &str| CrossedState {
            name: name.into(),
            title: "<b>".into(),
        };
        let mut report = Report::new(Machine::default(), Kernel::default());
        for name in ["move: the states", "move"] {
            report.push(Step {
                workload: "cross".into(),
                step: name.into(),
                ..Step::default()
            });
        }
        let row = CrossingRow {
            operation: "move".into(),
            acting: Acting::Alone,
            cells: vec![
                CrossingCell::Green,
                CrossingCell::Red { errors: 3 },
                CrossingCell::NotJudged {
                    reason: "\"<lost>".into(),
                },
                CrossingCell::LeftOut {
                    reason: "no swap".into(),
                },
            ],
            elsewhere: 0,
            notified: None,
        };
        report.crossing = Some(Crossing {
            states: ["a", "b", "c", "d"].map(state).to_vec(),
            rows: vec![row],
        });
        let mut out = Vec::new();
        write(&mut out, &report).unwrap();
        let html = String::from_utf8(out).unwrap();
        assert!(html.contains("<th scope=\"row\"><a href=\"#step=1\">move</a></th>"));
        assert!(html.contains("title=\"b, move: 3 errors\"><a href=\"#step=1\">3</a></td>"));
        assert!(html.contains("c, move: not judged: &quot;&lt;lost&gt;"));
        assert!(html.contains("<td class=\"out\" title=\"d, move: no swap\"></td>"));
        assert!(!html.contains("<b>") && !html.contains("<lost>"));
        report.crossing = None;
        let mut out = Vec::new();
        write(&mut out, &report).unwrap();
        assert!(out.is_empty());
    }
}
