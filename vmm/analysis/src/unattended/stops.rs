// SPDX-License-Identifier: GPL-2.0-only
//! A guest in which no process waits for us, stopped until it shows what is wanted.

use std::time::Duration;

use linux::counted::NotRead;
use snapshot::{Cpu, Snapshot};
use structures::printk::Log;

use evidence::{elsewhere::no_linux, root_table::table_of, Capture, Work};

use crate::{Error, Wait};

/// Stops until a process is in user mode.
const LOOKS: Wait = Wait {
    stops: 100,
    between: Duration::from_millis(10),
};

/// The same if an instant without one is of use too.
const TRIES: Wait = Wait {
    stops: 8,
    between: Duration::from_millis(2),
};

/// A guest that can be stopped and read, again and again, whatever runs it.
pub trait Stops {
    /// Stops the guest, copies the tables of the kernel and of each process that a CPU is proved to run, and lets the
    /// guest go on.
    ///
    /// # Errors
    /// Where it cannot be stopped or read.
    fn instant(&mut self) -> Result<Capture, Error>;

    /// Stops the guest, says what its CPUs are at, and lets the guest go on.
    ///
    /// # Errors
    /// As [`Stops::instant`].
    fn cpus(&mut self) -> Result<(Vec<Cpu>, Work), Error>;

    /// Returns whether the guest runs between two instants.
    fn runs(&self) -> bool;

    /// The kernel's log, where it is to be read from memory: of a guest whose console is watched it is not. `last` is an
    /// instant of the guest.
    fn log(&self, last: &Snapshot) -> Option<Result<Log, NotRead>> {
        let _ = last;
        None
    }

    /// An instant that shows the process with this pid, or any, if one can be had soon: a CPU with work to do may be
    /// in the kernel just now.
    ///
    /// # Errors
    /// As [`Stops::instant`].
    fn instant_at_work(&mut self, pid: Option<u32>) -> Result<Capture, Error> {
        let shown = TRIES.until(self, Self::runs, |guest| {
            let instant = guest.instant()?;
            let at_rest = instant.work.idle.iter().all(|idle| *idle);
            let mut processes = instant.snapshot.notes.processes.iter();
            // Those that are known by their tasks are there at any instant.
            let seen = processes.any(|process| match pid {
                Some(pid) => process.pid == pid,
                None => table_of(process).is_none(),
            });
            let enough = seen || at_rest || no_linux(&instant.snapshot.cpus).is_some();
            Ok(if enough { Ok(instant) } else { Err(instant) })
        });
        shown.map(|shown| shown.unwrap_or_else(|last| last))
    }

    /// An instant with a process in user mode: the one with this pid, or any.
    ///
    /// # Errors
    /// Where none is seen.
    fn instant_of(&mut self, pid: Option<u32>) -> Result<Capture, Error> {
        let (mut seen, mut looks) = (Vec::new(), 0);
        let shown = LOOKS.until(self, Self::runs, |guest| {
            looks += 1;
            let mut instant = guest.instant()?;
            let processes = &mut instant.snapshot.notes.processes;
            seen.extend(processes.iter().map(|process| process.pid));
            let all = processes.iter().any(|it| table_of(it).is_some());
            if let Some(pid) = pid.filter(|pid| all && !seen.contains(pid)) {
                return Err(Error::Input(format!(
                    "the guest has no process {pid} with memory of its own; `folioscope ps` lists those it has"
                )));
            }
            processes.retain(|process| pid.is_none_or(|pid| process.pid == pid));
            if !processes.is_empty() {
                return Ok(Ok(instant));
            }
            match (no_linux(&instant.snapshot.cpus), pid) {
                (None, _) => Ok(Err(())),
                (Some(why), Some(pid)) => {
                    Err(Error::Input(format!("there is no process {pid}: {why}")))
                }
                (Some(why), None) => Err(Error::Input(format!(
                    "there are no tables of a process: {why}"
                ))),
            }
        })?;
        if let Ok(instant) = shown {
            return Ok(instant);
        }
        seen.sort_unstable();
        seen.dedup();
        let seen: Vec<String> = seen.iter().map(u32::to_string).collect();
        let seen = match seen.is_empty() {
            true => "none at all".to_owned(),
            false => format!("only {}", seen.join(", ")),
        };
        let wanted = pid.map_or("a process".into(), |pid| format!("process {pid}"));
        Err(Error::Input(format!(
            "expected {wanted} to be in user mode on some CPU, so that its table is known, and in {looks} looks saw {seen}; \
             it has to run, and the kernel to say who runs (CONFIG_PID_IN_CONTEXTIDR)"
        )))
    }
}
