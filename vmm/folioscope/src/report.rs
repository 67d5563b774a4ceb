// SPDX-License-Identifier: GPL-2.0-only
//! Builds a report from verdicts, and writes it to the requested outputs.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use join::Facts;
use report::map::MapOptions;
use report::text::TextOptions;
use snapshot::Snapshot;
use stage1::{Half, Regime};
use untrusted::Filter;
use verdict::{Kernel, Machine, Report};

use crate::commands::{complain, has_colours, stdout, STDOUT};
use crate::picture::Picture;
use crate::replace::replace;
use crate::Error;

/// Outputs of reports, and their extent.
#[derive(Args, Clone, Debug)]
pub struct ReportOptions {
    /// Print the report as text for people, or as JSON (`folioscope schema` describes it)
    #[arg(long, value_enum, default_value = "text")]
    pub format: ReportFormat,
    /// Also write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write it as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Also write it in the kernel's TAP
    #[arg(long, value_name = "FILE")]
    pub ktap: Option<PathBuf>,
    /// Also write it as one HTML page: the verdict, and a picture of each checkpoint to flip through
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// List what is legal and worth knowing as well: blocks that could be folded and are not, with the reason
    #[arg(long)]
    pub information: bool,
    /// Draw every VMA, not only those that the workload made
    #[arg(long)]
    pub all_maps: bool,
}

/// Format of the report on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl ReportOptions {
    /// Returns the options for text: in colour on a terminal that wants it.
    #[must_use]
    pub fn text(&self) -> TextOptions {
        let colour = has_colours();
        TextOptions {
            map: MapOptions {
                colour,
                ..MapOptions::default()
            },
            maps: true,
            information: self.information,
        }
    }

    /// Returns the requested files.
    #[must_use]
    pub fn outputs(&self) -> Vec<&Path> {
        let all = [&self.json, &self.junit, &self.ktap, &self.html];
        all.into_iter().flatten().map(PathBuf::as_path).collect()
    }

    /// Returns a collector of the page's data, if a page was requested.
    #[must_use]
    pub fn picture(&self) -> Picture {
        Picture::new(self.html.is_some())
    }

    /// Writes all requested outputs, each by itself, and last of all the verdict. Failed ones are named on standard
    /// error, counted in the last line, and make the status 2.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn finish(&self, report: &mut Report, picture: &Picture) -> Result<u8, Error> {
        self.write_files(report, picture)?;
        let mut out = stdout();
        match self.format {
            ReportFormat::Json => write_json(&mut out, report)
                .map_err(Error::io("write the report to standard output"))?,
            ReportFormat::Text => report::text::write_verdict(&mut out, report, &self.text())
                .and_then(|()| out.flush())
                .map_err(Error::io(STDOUT))?,
        }
        Ok(report.exit_status)
    }

    /// Writes the requested files. A file that could not be written is noted in the report; JSON, which has the note
    /// too, is therefore the last.
    ///
    /// # Errors
    /// If standard output, which gets the place of the page, cannot be written.
    pub fn write_files(&self, report: &mut Report, picture: &Picture) -> Result<(), Error> {
        write_file(&self.junit, report, |mut out, report| {
            report::junit::write(&mut out, report)
        });
        write_file(&self.ktap, report, |mut out, report| {
            report::ktap::write(&mut out, report)
        });
        if let (Some(path), Some(pages)) = (&self.html, picture.pages()) {
            let written = write_file(&self.html, report, |out, report| {
                report::html::write(out, report, pages)
            });
            if written && self.format == ReportFormat::Text {
                let at = path.display();
                writeln!(stdout(), "every checkpoint as a picture: {at}")
                    .map_err(Error::io(STDOUT))?;
            }
        }
        write_file(&self.json, report, |out, report| write_json(out, report));
        Ok(())
    }
}

fn write_json(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

/// Writes one requested file of the report; a failure is printed, and noted in the report. Returns whether the file was
/// written.
fn write_file(
    path: &Option<PathBuf>,
    report: &mut Report,
    write: impl FnOnce(&mut dyn Write, &Report) -> io::Result<()>,
) -> bool {
    let Some(path) = path else { return false };
    let written = replace(
        path,
        |error| error,
        |file| {
            let mut out = Filter::new(BufWriter::new(file), false);
            write(&mut out, report)?;
            out.flush()
        },
    );
    let attempt = format!("write the report to {}", path.display());
    if let Err(error) = written.map_err(Error::io(attempt)) {
        complain(&error);
        report.push_not_written(error.to_string());
        return false;
    }
    true
}

/// Creates an empty report, with the machine and kernel of a snapshot.
#[must_use]
pub fn about(snapshot: &Snapshot, kind: &str) -> Report {
    let notes = &snapshot.notes;
    let regime = snapshot
        .cpus
        .first()
        .and_then(|cpu| Regime::new(&cpu.system, Half::Lower).ok());
    let machine = Machine {
        kind: kind.into(),
        cpus: u32::try_from(snapshot.cpus.len()).ok(),
        memory: Some(snapshot.memory.ram().iter().map(|range| range.bytes).sum()),
        page_size: notes.page_size,
        va_bits: regime.map_or(0, |regime| regime.va_bits),
        pa_bits: regime.map_or(0, |regime| regime.pa_bits),
        ds: regime.is_some_and(|regime| regime.ds),
        hardware_access: regime.is_some_and(|regime| regime.ha),
        hardware_dirty: regime.is_some_and(|regime| regime.hd),
        ..Machine::default()
    };
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let kernel = Kernel {
        release: text(&notes.kernel_release),
        contpte: Facts::of(snapshot).contpte,
        command_line: text(&notes.command_line),
        ..Kernel::default()
    };
    Report::new(machine, kernel)
}
