// SPDX-License-Identifier: GPL-2.0-only
//! Runs beside a machine: keeps the events that a judge needs, and writes them to a trace.

use std::io::{self, Write};

use stage1::Descriptor;

use crate::folio::{mapped, Folios};
use crate::trace::Writer;
use crate::{Event, Folio, Limits, Tracker, What};

/// The memory of the machine, at the instant of the event.
pub trait ReadTable {
    /// Returns the `count` words from physical address `address` on; `None` if there is no RAM.
    fn read(&mut self, address: u64, count: usize) -> Option<Vec<u64>>;
}

impl<F: FnMut(u64, usize) -> Option<Vec<u64>>> ReadTable for F {
    fn read(&mut self, address: u64, count: usize) -> Option<Vec<u64>> {
        self(address, count)
    }
}

/// A writer of a trace: events in their order, and the words of each table when it becomes one.
#[derive(Debug)]
pub struct Recorder<W: Write> {
    tracker: Tracker,
    writer: Writer<W>,
    folios: Folios,
}

impl<W: Write> Recorder<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// If its header cannot be written.
    pub fn new(out: W, limits: Limits) -> io::Result<Self> {
        Ok(Self {
            tracker: Tracker::new(limits),
            writer: Writer::new(out)?,
            folios: Folios::default(),
        })
    }

    /// Returns the word at `address`, if it is a descriptor that is known.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        self.tracker.word(address)
    }

    /// Returns whether a store to `address` must be recorded. All other events must always be.
    #[must_use]
    pub fn watches(&self, address: u64) -> bool {
        self.tracker.watches(address)
    }

    /// Returns the pages of 4K, by their physical address, that became watched or unwatched since the last call.
    pub fn turned(&mut self) -> Vec<(u64, bool)> {
        self.tracker.shadow.turned()
    }

    /// Writes all known tables once more, so that the judge can compare its shadow with memory.
    ///
    /// # Errors
    /// If the trace cannot be written.
    pub fn check(&mut self, memory: &mut impl ReadTable) -> io::Result<()> {
        for (address, count) in self.tracker.shadow.known() {
            if let Some(words) = memory.read(address, count) {
                let table = Event {
                    cpu: 0,
                    pc: 0,
                    what: What::Table { address, words },
                };
                self.writer.event(&table)?;
                self.tracker.apply(&table);
            }
        }
        Ok(())
    }

    /// Returns the page frames that a store of `word` to `address` takes from user space, and gives to it.
    #[must_use]
    pub fn frames(&self, address: u64, word: u64) -> [Option<u64>; 2] {
        let shadow = &self.tracker.shadow;
        let found = shadow.place(address).and_then(|(base, index)| {
            let table = shadow.table(base)?;
            let regime = shadow.format(*table.roots.first()?)?;
            let words = [table.words[index], word];
            Some(words.map(|word| mapped(&Descriptor::new(word, table.level, regime))))
        });
        found.unwrap_or_default()
    }

    /// Returns whether a folio must be recorded: the last record of its page frames differs.
    pub fn is_news(&mut self, folio: Folio) -> bool {
        self.folios.is_news(folio)
    }

    /// Records an event; `memory` has its result.
    ///
    /// # Errors
    /// If the trace cannot be written. The part written before stays valid.
    pub fn event(&mut self, event: &Event, memory: &mut impl ReadTable) -> io::Result<()> {
        self.writer.event(event)?;
        self.tracker.apply(event);
        while let Some((address, count)) = self.tracker.wanted() {
            let what = match memory.read(address, count) {
                Some(words) => What::Table { address, words },
                None => What::NoTable { address },
            };
            let table = Event {
                cpu: event.cpu,
                pc: event.pc,
                what,
            };
            self.writer.event(&table)?;
            self.tracker.apply(&table);
        }
        Ok(())
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// If its end cannot be written.
    pub fn finish(self) -> io::Result<W> {
        self.writer.finish()
    }

    /// Passes on the bytes that are not written yet.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
