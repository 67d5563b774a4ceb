//! `folioscope save`: a live guest's instant as an ELF core.

use std::path::PathBuf;

use clap::Args;

use super::output::say;
use super::Outcome;
use crate::boot;
use crate::source::SourceOptions;
use crate::EXIT_OK;

/// Save a live guest's registers, tables and order records as an ELF core
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope save --guest out/guests/4711/control.sock saved.core")]
pub struct Save {
    /// The file to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The control socket of the live guest [default: the only one in --out]
    #[arg(long, value_name = "SOCKET")]
    guest: Option<PathBuf>,
    /// The process, by its pid in the guest [default: the only one]
    #[arg(long)]
    pid: Option<u32>,
    /// Where guests keep their files
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
}

impl Save {
    pub fn run(self) -> Outcome {
        let source = SourceOptions {
            core: None,
            guest: self.guest,
            pid: self.pid,
            out: self.out,
        }
        .open()?;
        boot::save(&source.snapshot, &self.file)?;
        let bytes: u64 = source
            .snapshot
            .memory
            .regions()
            .iter()
            .map(|region| region.range().bytes)
            .sum();
        say!(
            "{}: {} CPUs, {} KiB of guest memory, {} process(es)",
            self.file.display(),
            source.snapshot.cpus.len(),
            bytes / 1024,
            source.snapshot.notes.processes.len()
        );
        Ok(EXIT_OK)
    }
}
