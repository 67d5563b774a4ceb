// SPDX-License-Identifier: GPL-2.0-only
//! The same for people.

use std::io::{self, Write};

use crate::event::{Diff, Event, Kind, Lives, ProcessDiff};

/// Lines for one process; what is more is counted.
const LINES: usize = 400;

impl Diff {
    /// Writes it for people: a line for each range of pages to which the same happened.
    ///
    /// # Errors
    /// As `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for process in &self.processes {
            process.write(out)?;
        }
        if self.processes.is_empty() {
            writeln!(out, "nothing happened to {} process(es)", self.unchanged)?;
        } else if self.unchanged > 0 {
            writeln!(out, "nothing happened to {} others", self.unchanged)?;
        }
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        Ok(())
    }
}

impl ProcessDiff {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let started = match self.started_ns {
            Some(ns) => format!(
                ", started {}.{:02} s after boot",
                ns / 1_000_000_000,
                ns / 10_000_000 % 100
            ),
            None => String::new(),
        };
        let life = match self.lives {
            Lives::Both => "",
            Lives::Started => ": it is new",
            Lives::Ended => ": it has ended",
        };
        writeln!(out, "{} ({}){started}{life}", self.name, self.pid)?;
        for event in self.events.iter().take(LINES) {
            event.write(out)?;
        }
        if let Some(more) = self.events.len().checked_sub(LINES + 1) {
            writeln!(out, "  and {} more (--format json has all)", more + 1)?;
        }
        for note in &self.notes {
            writeln!(out, "  note: {note}")?;
        }
        Ok(())
    }
}

impl Event {
    /// Writes its line.
    ///
    /// # Errors
    /// As `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let pages = match self.pages {
            1 => "page",
            _ => "pages",
        };
        if self.kind == Kind::Exec {
            return writeln!(out, "  {:<15} {}", self.kind.name(), self.detail);
        }
        let line = format!(
            "  {:<15} {:012x}-{:012x} {:>5} {pages:<5} {}",
            self.kind.name(),
            self.va.0,
            self.end.0,
            self.pages,
            self.detail
        );
        writeln!(out, "{}", line.trim_end())
    }
}
