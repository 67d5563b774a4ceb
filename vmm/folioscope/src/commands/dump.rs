// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope dump`: entries, one by one.

use std::io::{self, BufWriter, Write as _};

use analysis::Places;
use clap::{Args, ValueEnum};
use evidence::{elsewhere::no_linux, kernel_half, Gathered, Subject};
use report::dump::{dump, DumpOptions, Format};

use super::output::{complain, stdout};
use super::Outcome;
use crate::options::parse_address;
use crate::source::{SourceOptions, Wanted};
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

/// Print the entries of a process (or of the kernel), live or from a saved snapshot
#[derive(Args, Debug)]
#[command(
    after_help = "Example: folioscope dump saved.core --va 0xffff7fc00000-0xffff7fc40000 --contiguous --format csv"
)]
pub struct Dump {
    #[command(flatten)]
    pub source: SourceOptions,
    /// Only these virtual addresses: FIRST-END, in hexadecimal, END exclusive
    #[arg(long, value_name = "RANGE", value_parser = parse_range)]
    va: Option<(u64, u64)>,
    /// Only entries of this lookup level
    #[arg(long, value_name = "-1..3", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-1..=3))]
    level: Option<i8>,
    /// Only entries with the Contiguous bit
    #[arg(long)]
    contiguous: bool,
    /// Only entries of groups that break a rule of the tables alone
    #[arg(long)]
    findings: bool,
    /// Table descriptors as well
    #[arg(long)]
    tables: bool,
    /// The kernel's half instead of the process's
    #[arg(long)]
    kernel: bool,
    /// How to print them
    #[arg(long, value_enum, default_value = "text")]
    format: DumpFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DumpFormat {
    Text,
    Json,
    Csv,
}

/// Parses `FIRST-END`.
fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (first, end) = text.split_once('-').ok_or_else(|| {
        format!("expected FIRST-END such as 0x400000-0x600000 and found {text:?}")
    })?;
    let (first, end) = (parse_address(first)?, parse_address(end)?);
    if first >= end {
        return Err(format!(
            "expected the range's end above its start and found {text:?}"
        ));
    }
    Ok((first, end))
}

impl Dump {
    pub fn run(self) -> Outcome {
        let source = self.source.open(match self.kernel {
            true => Wanted::Kernel,
            false => Wanted::Process,
        })?;
        let snapshot = &source.snapshot;
        let (first, last) = self
            .va
            .map_or((0, u64::MAX), |(first, end)| (first, end - 1));
        let mut judged = Vec::new();
        let (regime, vmas, linux) = if self.kernel {
            let regime = kernel_half(&snapshot.cpus).ok_or_else(|| {
                let why = no_linux(&snapshot.cpus);
                let why =
                    why.unwrap_or("no CPU of the snapshot shows the kernel's own half".into());
                Error::Input(why)
            })?;
            (
                regime,
                Vec::new(),
                linux::release::Release::parse(&snapshot.notes.kernel_release)
                    .is_some_and(linux::release::Release::has_this_layout),
            )
        } else {
            let subject = Subject::find(snapshot, self.source.pid)?;
            // The judge decides about a block, so that no two commands differ.
            let places = Places::new(snapshot, &subject)?;
            judged = places.vmas().to_vec();
            (
                subject.regime,
                subject.vmas,
                subject
                    .release
                    .is_some_and(linux::release::Release::has_this_layout),
            )
        };
        let options = DumpOptions {
            first,
            last,
            level: self.level,
            contiguous: self.contiguous,
            findings: self.findings,
            tables: self.tables,
            linux,
            judged,
            names: Gathered::names(snapshot),
        };
        let format = match self.format {
            DumpFormat::Text => Format::Text,
            DumpFormat::Json => Format::Json,
            DumpFormat::Csv => Format::Csv,
        };
        let mut out = BufWriter::with_capacity(1 << 16, stdout());
        let written = dump(&mut out, &snapshot.memory, &regime, &vmas, format, &options)
            .and_then(|summary| out.flush().map(|()| summary));
        let summary = match written {
            // `| head` is no failure.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(EXIT_OK),
            other => other.map_err(Error::io("write to standard output"))?,
        };
        for problem in &summary.problems {
            complain(&problem);
        }
        Ok(if summary.problems.is_empty() {
            EXIT_OK
        } else {
            EXIT_NOT_JUDGED
        })
    }
}
