//! `folioscope save`: a live guest's instant as an ELF core.

use std::path::PathBuf;

use clap::Args;

use super::output::say;
use super::Outcome;
use crate::boot;
use crate::source::{Need, SourceOptions};
use crate::EXIT_OK;

/// Save a live guest's registers, tables and order records as an ELF core
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope save --guest out/guests/4711/control.sock saved.core")]
pub struct Save {
    /// The file to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The live guest: the control socket that `folioscope boot` prints, or the QMP socket of a QEMU of your own
    /// [default: the only one in --out]
    #[arg(long, value_name = "SOCKET")]
    pub guest: Option<PathBuf>,
    /// The vmlinux of the kernel in a QEMU of your own, for symbols and the order record
    #[arg(long, value_name = "FILE")]
    pub vmlinux: Option<PathBuf>,
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
            vmlinux: self.vmlinux,
            pid: self.pid,
            out: self.out,
        }
        .open(Need::Verdict)?;
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
