// SPDX-License-Identifier: GPL-2.0-only
//! The crossing's table as text.

use std::io::{self, Write};

use untrusted::escaped;
use verdict::crossing::{Crossing, CrossingCell};

/// Draws the table: a line per operation and process, a letter per state; below it what was not judged, and the totals.
///
/// # Errors
/// Where `out` cannot be written.
pub fn write(out: &mut dyn Write, table: &Crossing) -> io::Result<()> {
    let names: Vec<String> = table.rows.iter().map(|row| row.name()).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    writeln!(
        out,
        "\n. nothing wrong   X errors   ? not judged   blank: left out, as the pair makes no sense\n"
    )?;
    for (at, state) in table.states.iter().enumerate() {
        let lines = "|".repeat(at);
        writeln!(
            out,
            "{:width$}  {lines}{} - {}",
            "", state.name, state.title
        )?;
    }
    for (row, name) in table.rows.iter().zip(&names) {
        let letters: String = row.cells.iter().map(letter).collect();
        write!(out, "{name:width$}  {}", letters.trim_end())?;
        match row.elsewhere {
            0 => writeln!(out)?,
            count => writeln!(out, "  and {count} errors outside of these areas")?,
        }
    }
    for (why, cells) in table.not_judged() {
        let (count, first) = (cells.len(), &cells[0]);
        writeln!(
            out,
            "not judged: {count} cells, the first is {first}: {}",
            escaped(why)
        )?;
    }
    let counts = table.counts();
    writeln!(
        out,
        "{} cells: {} green, {} red, {} not judged; {} pairs left out",
        counts.green + counts.red + counts.not_judged,
        counts.green,
        counts.red,
        counts.not_judged,
        counts.left_out
    )?;
    match table.notified() {
        Some(all) => writeln!(
            out,
            "MMU notifiers: of {} pages of a secondary MMU {} were invalidated, and {} lost without a notifier",
            all.copied, all.invalidated, all.missed
        ),
        None => writeln!(
            out,
            "MMU notifiers: not judged (C8), as no row was played to its end on a kernel with MMU_MIRROR_TEST"
        ),
    }
}

fn letter(cell: &CrossingCell) -> char {
    match cell {
        CrossingCell::Green => '.',
        CrossingCell::Red { .. } => 'X',
        CrossingCell::NotJudged { .. } => '?',
        CrossingCell::LeftOut { .. } => ' ',
    }
}
