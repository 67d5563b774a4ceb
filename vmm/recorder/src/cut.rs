// SPDX-License-Identifier: GPL-2.0-only
//! Cuts a trace to the events that concern one VA: the same verdict for its block, from a thousandth of the events.

use stage1::Level;

use crate::shadow::Root;
use crate::tracker::{Limits, Tracker};
use crate::{Event, What};

/// Keeps the events that concern one VA: stores to the descriptors of its blocks, the tables that lead there, the TLB
/// maintenance that touches it, all barriers, all registers.
#[derive(Debug)]
pub struct Cut {
    tracker: Tracker,
    va: u64,
}

/// Decides whether an event concerns the VA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Concerns {
    /// True if it stores to a descriptor that maps the VA or a page of its block, or is a TLBI that touches one of
    /// these.
    pub directly: bool,
    /// The descriptor's first VA.
    pub va: Option<u64>,
    /// The old word of the descriptor.
    pub old: Option<u64>,
}

impl Cut {
    /// Creates the filter for `va`.
    #[must_use]
    pub fn new(va: u64) -> Self {
        Self {
            tracker: Tracker::new(Limits::default()),
            va,
        }
    }

    /// Returns the event as the cut has it; `None` if it has not.
    pub fn keep(&mut self, event: &Event) -> Option<(Event, Concerns)> {
        let (kept, concerns) = match &event.what {
            What::Store { address, .. } | What::Unknown { address } | What::Late { address } => {
                let (va, old) = self.descriptor(*address).unzip();
                let concerns = Concerns {
                    directly: va.is_some_and(|va| self.maps(*address, va)),
                    va,
                    old,
                };
                (va.map(|_| event.clone()), concerns)
            }
            What::Table { address, words } => {
                let words = self.words(*address, words);
                let kept = words.map(|words| Event {
                    what: What::Table {
                        address: *address,
                        words,
                    },
                    ..event.clone()
                });
                (kept, Concerns::default())
            }
            What::NoTable { address } => {
                let kept = self.descriptor(*address).map(|_| event.clone());
                (kept, Concerns::default())
            }
            What::Tlbi { opcode, operand } => {
                let cover = self.tracker.cover(event.cpu, *opcode, *operand);
                let touches = cover.is_some_and(|cover| {
                    let [first, last] = self.tracker.block(self.va);
                    cover.touches(first, last)
                });
                // A finding may name a range that misses.
                let near = cover.is_none_or(|cover| cover.range);
                let concerns = Concerns {
                    directly: touches,
                    ..Concerns::default()
                };
                ((touches || near).then(|| event.clone()), concerns)
            }
            What::Barrier(_)
            | What::Register { .. }
            | What::Chain { .. }
            | What::Folio(_)
            | What::Mark { .. } => (Some(event.clone()), Concerns::default()),
        };
        self.tracker.apply(event);
        while self.tracker.wanted().is_some() {}
        self.tracker.shadow.turned();
        kept.map(|kept| (kept, concerns))
    }

    /// Returns whether the descriptor `index` of the table at `base` is one of the VA's block, in some address space.
    fn is_near(&self, base: u64, index: usize) -> bool {
        let shadow = &self.tracker.shadow;
        let Some(table) = shadow.table(base) else {
            return false;
        };
        table.roots.iter().any(|root: &Root| {
            let Some(regime) = shadow.format(*root) else {
                return false;
            };
            let size = regime.entry_size(table.level);
            // Above the pages the neighbours are other places' tables.
            let members = match table.level {
                Level::L3 => regime.contiguous_entries(Level::L3).unwrap_or(1) as u64,
                _ => 1,
            };
            let block = size.saturating_mul(members);
            let va = shadow.va(*root, base, index);
            va & !(block - 1) == self.va & !(block - 1)
        })
    }

    /// Returns whether the descriptor at `address`, of `va`, maps the VA itself, or a page beside it.
    fn maps(&self, address: u64, va: u64) -> bool {
        let shadow = &self.tracker.shadow;
        let found = shadow.place(address).and_then(|(base, _)| {
            let table = shadow.table(base)?;
            let regime = shadow.format(*table.roots.first()?)?;
            Some((table.level, regime.entry_size(table.level)))
        });
        found.is_some_and(|(level, size)| level == Level::L3 || va == self.va & !(size - 1))
    }

    /// Returns the VA and the word of the descriptor at `address`, if it is one of the block.
    fn descriptor(&self, address: u64) -> Option<(u64, u64)> {
        let (base, index) = self.tracker.shadow.place(address)?;
        if !self.is_near(base, index) {
            return None;
        }
        let table = self.tracker.shadow.table(base)?;
        let root = *table.roots.first()?;
        let va = self.tracker.shadow.va(root, base, index);
        Some((va, table.words[index]))
    }

    /// Returns a table's words, with 0 in place of those that do not concern the VA; `None` if none does.
    fn words(&self, base: u64, words: &[u64]) -> Option<Vec<u64>> {
        let near: Vec<bool> = (0..words.len())
            .map(|index| self.is_near(base, index))
            .collect();
        if !near.contains(&true) {
            return None;
        }
        let word = |(word, near): (&u64, bool)| if near { *word } else { 0 };
        Some(words.iter().zip(near).map(word).collect())
    }
}
