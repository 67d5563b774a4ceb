// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope save`: a live guest's instant as an ELF core.

use std::os::unix::fs::MetadataExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use analysis::external_qemu::Foreign;
use clap::Args;

use super::output::say;
use super::Outcome;
use crate::boot;
use crate::control::Full;
use crate::holder::is_ours;
use crate::replace::replace_private;
use crate::source::{only_socket, write_full, SourceOptions, Wanted};
use crate::whole::{save, Progress};
use crate::{Error, EXIT_OK};

/// Time between two checks of a file that another process writes.
const POLL: Duration = Duration::from_millis(20);

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
    /// All of the guest's RAM, for drgn, crash and gdb as well as for this command; zeros take no room. The guest is
    /// stopped meanwhile
    #[arg(long)]
    full: bool,
    /// Where guests keep their files
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
}

impl Save {
    pub fn run(self) -> Outcome {
        if self.full {
            return self.whole();
        }
        let source = SourceOptions {
            core: None,
            guest: self.guest,
            vmlinux: self.vmlinux,
            pid: self.pid,
            out: self.out,
        }
        .open(Wanted::Verdict)?;
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

    fn whole(self) -> Outcome {
        let socket = match &self.guest {
            Some(socket) => socket.clone(),
            None => only_socket(&self.out)?,
        };
        let saved = match is_ours(&socket)? {
            true => self.whole_of_ours(&socket)?,
            false => self.whole_of_theirs(&socket)?,
        };
        let about = std::fs::metadata(&self.file);
        let taken = about.map_or(0, |about| about.blocks() * 512);
        say!(
            "{}: {} CPUs, all {} MiB of guest memory, of which {} MiB take room{}",
            self.file.display(),
            saved.cpus,
            saved.ram_bytes >> 20,
            taken >> 20,
            match saved.pid {
                Some(pid) => format!(", process {pid} in user mode"),
                None => String::new(),
            }
        );
        if let Some(why) = saved.without_vmcoreinfo {
            say!("drgn will not know it for a kernel's: it has no VMCOREINFO, because {why}");
        }
        Ok(EXIT_OK)
    }

    /// Lets the holder write into our file, and shows its progress.
    fn whole_of_ours(&self, socket: &Path) -> Result<Full, Error> {
        let attempt = || format!("write the snapshot {}", self.file.display());
        let failed = |error| Error::io(attempt())(error);
        let mut answer = None;
        replace_private(&self.file, failed, |file| {
            let file = &*file;
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| write_full(socket, &self.file, file, self.pid));
                let mut progress = Progress::new();
                while !writer.is_finished() {
                    std::thread::sleep(POLL);
                    progress.at(file.metadata().map_or(0, |about| about.blocks() * 512));
                }
                let written = writer.join();
                answer = Some(written.unwrap_or_else(|panic| resume_unwind(panic))?);
                Ok::<_, Error>(())
            })
        })?;
        let answer = answer.unwrap_or_default();
        serde_json::from_value(answer).map_err(|error| {
            Error::Input(format!(
                "{} did not answer as a guest's socket does: {error}",
                socket.display()
            ))
        })
    }

    fn whole_of_theirs(&self, socket: &Path) -> Result<Full, Error> {
        let mut guest = Foreign::new(socket, self.vmlinux.as_deref())?;
        let (mut ram_bytes, mut cpus, mut pid) = (0, 0, None);
        let mut progress = Progress::new();
        let (without_vmcoreinfo, _) = guest.whole(self.pid, |whole| {
            ram_bytes = whole.ram.ranges().iter().map(|range| range.bytes).sum();
            cpus = whole.cpus.len();
            let mut processes = whole.notes.processes.iter();
            let in_user_mode = processes.find(|process| {
                process.cpu.is_some() && self.pid.is_none_or(|pid| process.pid == pid)
            });
            pid = in_user_mode.map(|process| process.pid);
            save(whole, &self.file, &mut |bytes| progress.at(bytes))
        })?;
        Ok(Full {
            path: self.file.clone(),
            ram_bytes,
            cpus,
            pid,
            without_vmcoreinfo,
        })
    }
}
