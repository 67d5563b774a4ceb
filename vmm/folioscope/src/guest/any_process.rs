// SPDX-License-Identifier: GPL-2.0-only
//! Looks at any process of a guest of ours. One that no checkpoint proves is identified by its task's address space, as
//! in an external QEMU.

use std::time::Duration;

use analysis::{
    cpus_at_a_stop,
    tasks::why_not,
    unattended::{settle, Stops},
};
use evidence::{instant, Capture, Extent, Facts, Work};
use snapshot::{Cpu, Recording, Snapshot};

use super::whole::{known, own_symbols};
use super::Guest;
use crate::Error;

/// A guest that is looked at without its agent.
struct AnyProcess<'g> {
    guest: &'g mut Guest,
    /// Upper bound of the time for which it was stopped.
    stopped: Duration,
}

impl Guest {
    /// Looks at the process with this pid, or at all of them, until every error is confirmed or gone. No process is
    /// stopped for it. [`analysis::step`] judges the result, which contains what the looks found.
    ///
    /// # Errors
    /// If there is no such process, if its tables are unknown, or if the guest is lost.
    pub fn look_at_any(&mut self, pid: Option<u32>) -> Result<Capture, Error> {
        if let Err(error) = self.find_inside() {
            // Without the kernel's structures those that a CPU is in user mode with are left.
            if error.lost() {
                return Err(error);
            }
        }
        let mut process = AnyProcess {
            guest: self,
            stopped: Duration::ZERO,
        };
        let settled = settle(&mut process, pid);
        let stopped = process.stopped;
        let snapshot = match (settled, pid) {
            (Ok(snapshot), _) => snapshot,
            (Err(error), Some(pid)) => {
                let error = Error::from(error);
                return Err(match error.lost() {
                    true => error,
                    false => self.why_not(pid).map_or(error, Error::Input),
                });
            }
            (Err(error), None) => return Err(error.into()),
        };
        Ok(Capture {
            snapshot,
            companions: Vec::new(),
            stopped,
            work: Work::default(),
            extent: Extent::KERNEL,
        })
    }

    /// Adds the reports in the kernel's log to a look, if the kernel's structures are known.
    ///
    /// # Errors
    /// If the guest cannot be paused.
    pub fn keep_log(&mut self, capture: &mut Capture) -> Result<(), Error> {
        if self.find_inside().is_err() {
            return Ok(());
        }
        let paused = self.link.machine.pause()?;
        if let Some(Ok(found)) = &self.inside {
            let notes = &mut capture.snapshot.notes;
            evidence::keep_log(notes, &found.inside, &paused.memory);
        }
        paused.resume()?;
        Ok(())
    }

    /// Returns the reason why the process with this pid cannot be looked at, if the kernel's tasks show it.
    pub fn why_not(&mut self, pid: u32) -> Option<String> {
        let (seen, _) = self.see(None).ok()?;
        why_not(&seen.tasks, pid)
    }
}

impl Stops for AnyProcess<'_> {
    fn instant(&mut self) -> Result<Capture, analysis::Error> {
        let guest = &mut *self.guest;
        let mut notes = guest.notes(Vec::new());
        let contpte = guest.contpte();
        let mut paused = guest.link.machine.pause()?;
        let ran_ns = paused.ran_ns();
        let (memory, cpus) = (&paused.memory, &paused.cpus);
        let inside = match &guest.inside {
            Some(Ok(found)) => Ok(&found.inside),
            Some(Err(why)) => Err(why.clone().into()),
            None => Err(super::checkpoint::NOT_SHOWN.into()),
        };
        let own = own_symbols(&guest.inside);
        let facts = Facts::new(guest.kernel.symbols.as_ref().or(own), cpus);
        let facts = Facts {
            contpte,
            ..facts.with(known(&guest.inside))
        };
        let recording = Recording::new(memory);
        let found = instant::read(&recording, cpus, facts, inside, &[]);
        let work = Work::of(memory, cpus, ran_ns);
        let copied = evidence::copy(memory, &recording.into_ranges());
        let cpus = cpus.clone();
        let stopped = paused.resume()?;
        facts.keep(&mut notes);
        found.keep(&mut notes);
        self.stopped = self.stopped.max(stopped);
        Ok(Capture {
            snapshot: Snapshot {
                cpus,
                memory: copied?,
                notes,
            },
            companions: Vec::new(),
            stopped,
            work,
            extent: Extent::KERNEL,
        })
    }

    fn cpus(&mut self) -> Result<(Vec<Cpu>, Work), analysis::Error> {
        Ok(cpus_at_a_stop(self.guest.link.machine.as_mut())?)
    }

    fn runs(&self) -> bool {
        true
    }
}
