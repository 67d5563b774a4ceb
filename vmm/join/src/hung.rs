//! A guest of ours that no longer answers: what can be proved of it is judged all the same.

use linux::symbols::Symbols;
use machine::Machine;
use snapshot::{Notes, Snapshot};

use crate::inside::Inside;
use crate::unattended::{processes, settle, Known, Stops};
use crate::{pages, user_pages, Capture, Companion, Error, Extent, Facts, Work};

/// A machine whose agent does not answer.
#[derive(Debug)]
pub struct Hung<'m> {
    /// The machine.
    pub machine: &'m mut dyn Machine,
    /// The kernel's symbols, where they are known.
    pub symbols: Option<&'m Symbols>,
    /// What was found inside, where it was.
    pub inside: Option<&'m Inside>,
    /// What its snapshots say of it.
    pub notes: Notes,
    /// The processes that it is known to have.
    pub known: Vec<Known>,
}

impl Hung<'_> {
    /// Looks until every error is known to stay or gone: the kernel half, and each process that a CPU is proved to run,
    /// in user mode or in the kernel for good. [`crate::step`] judges the snapshot.
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
        let extent = Extent::KERNEL;
        let mut wanted = pages(memory, cpus, None, facts, extent);
        let processes = processes(cpus, &self.known);
        for process in &processes {
            let cpu = process.cpu.and_then(|index| cpus.get(index));
            let tables = cpu.map(|cpu| user_pages(memory, cpu)).unwrap_or_default();
            for range in tables.iter() {
                wanted.insert(range);
            }
        }
        let copied = crate::copy(memory, &wanted);
        let cpus = cpus.clone();
        let stopped = paused.resume()?;
        let mut notes = Notes {
            processes,
            ..self.notes.clone()
        };
        facts.keep(&mut notes);
        Ok(Capture {
            snapshot: Snapshot {
                cpus,
                memory: copied?,
                notes,
            },
            companions: Vec::<Companion>::new(),
            stopped,
            work,
            extent,
        })
    }

    fn runs(&self) -> bool {
        true
    }
}
