// SPDX-License-Identifier: GPL-2.0-only
//! Builds a report from verdicts, and writes it to the requested outputs.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{value_parser, Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use evidence::Facts;
use report::format::Format;
use report::formats::FORMATS;
use report::html::Pages;
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
    /// The files.
    #[command(flatten)]
    pub files: ReportFiles,
    /// List what is legal and worth knowing as well: blocks that could be folded and are not, with the reason
    #[arg(long)]
    pub information: bool,
    /// Draw every VMA, not only those that the workload made
    #[arg(long)]
    pub all_maps: bool,
}

/// Files that the report is also written to: an option for each of [`FORMATS`].
#[derive(Clone, Debug, Default)]
pub struct ReportFiles(pub Vec<(&'static Format, PathBuf)>);

impl Args for ReportFiles {
    fn augment_args(command: Command) -> Command {
        let option = |format: &Format| {
            let option = Arg::new(format.name).long(format.name);
            let option = option.value_name("FILE").help(format.about);
            option.value_parser(value_parser!(PathBuf))
        };
        command.args(FORMATS.iter().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ReportFiles {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let named = |format: &'static Format| Some((format, matches.get_one(format.name)?));
        let named = FORMATS.iter().filter_map(named);
        let all = named.map(|(format, path): (_, &PathBuf)| (format, path.clone()));
        Ok(Self(all.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
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
        let all = self.files.0.iter();
        all.map(|(_, path)| path.as_path()).collect()
    }

    /// Returns a collector of the page's data, if a page was requested.
    #[must_use]
    pub fn picture(&self) -> Picture {
        Picture::new(self.files.0.iter().any(|(format, _)| format.has_pages))
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
            ReportFormat::Json => report::json::write(&mut out, report)
                .map_err(Error::io("write the report to standard output"))?,
            ReportFormat::Text => report::text::write_verdict(&mut out, report, &self.text())
                .and_then(|()| out.flush())
                .map_err(Error::io(STDOUT))?,
        }
        Ok(report.exit_status)
    }

    /// Writes the requested files. A file that could not be written is noted in the report; a format that lists these is
    /// therefore written last.
    ///
    /// # Errors
    /// If standard output, which gets the place of the page, cannot be written.
    pub fn write_files(&self, report: &mut Report, picture: &Picture) -> Result<(), Error> {
        let none = Pages::default();
        let pages = picture.pages().unwrap_or(&none);
        for lists_failures in [false, true] {
            let all = self.files.0.iter();
            for (format, path) in all.filter(|(it, _)| it.lists_failures == lists_failures) {
                let written = write_file(path, report, |out, report| {
                    (format.write)(out, report, pages)
                });
                if written && format.has_pages && self.format == ReportFormat::Text {
                    let at = path.display();
                    writeln!(stdout(), "every checkpoint as a picture: {at}")
                        .map_err(Error::io(STDOUT))?;
                }
            }
        }
        Ok(())
    }
}

/// Writes one requested file of the report; a failure is printed, and noted in the report. Returns whether the file was
/// written.
fn write_file(
    path: &Path,
    report: &mut Report,
    write: impl FnOnce(&mut dyn Write, &Report) -> io::Result<()>,
) -> bool {
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
