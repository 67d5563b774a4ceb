// SPDX-License-Identifier: GPL-2.0-only
//! A guest of ours that no longer answers.

use linux::symbols::Symbols;
use machine::Machine;
use snapshot::{Cpu, Notes, Recording, Snapshot};

use evidence::{
    inside::Inside, instant, root_table::KnownProcess, Capture, Companion, Extent, Facts, Work,
};

use crate::stop::cpus_at_a_stop;
use crate::unattended::{settle, Stops};
use crate::Error;

/// The reason that the kernel's structures are not known.
const NOT_FOUND: &str = "the kernel's structures were not found before the guest stopped answering";

/// A machine whose agent does not answer.
#[derive(Debug)]
pub struct Hung<'m> {
    /// The machine.
    pub machine: &'m mut dyn Machine,
    /// The kernel's symbols, where they are known.
    pub symbols: Option<&'m Symbols>,
    /// The layouts of the kernel's structures, if they were found before.
    pub inside: Option<&'m Inside>,
    /// Notes for its snapshots.
    pub notes: Notes,
    /// The processes that it is known to have.
    pub known: Vec<KnownProcess>,
}

impl Hung<'_> {
    /// Looks until every error is known to stay or gone: the kernel half, each process that a CPU is proved to run, in user
    /// mode or in the kernel for good, and, where the kernel's structures are known, each by its task. [`crate::step`] judges
    /// the snapshot.
    ///
    /// # Errors
    /// Where the machine cannot be stopped or read.
    pub fn settle(&mut self) -> Result<Snapshot, Error> {
        settle(self, None)
    }
}

impl Stops for Hung<'_> {
    fn instant(&mut self) -> Result<Capture, Error> {
        let mut paused = self.machine.pause()?;
        let ran_ns = paused.ran_ns();
        let (memory, cpus) = (&paused.memory, &paused.cpus);
        let work = Work::of(memory, cpus, ran_ns);
        let facts = Facts::new(self.symbols, cpus).with(self.inside);
        let inside = self.inside.ok_or_else(|| NOT_FOUND.into());
        let recording = Recording::new(memory);
        let found = instant::read(&recording, cpus, facts, inside, &self.known);
        let copied = evidence::copy(memory, &recording.into_ranges());
        let cpus = cpus.clone();
        let stopped = paused.resume()?;
        let mut notes = self.notes.clone();
        facts.keep(&mut notes);
        found.keep(&mut notes);
        Ok(Capture {
            snapshot: Snapshot {
                cpus,
                memory: copied?,
                notes,
            },
            companions: Vec::<Companion>::new(),
            stopped,
            work,
            extent: Extent::KERNEL,
        })
    }

    fn cpus(&mut self) -> Result<(Vec<Cpu>, Work), Error> {
        Ok(cpus_at_a_stop(self.machine)?)
    }

    fn runs(&self) -> bool {
        true
    }
}
