// SPDX-License-Identifier: GPL-2.0-only
//! The last events of descriptors and TLBs, so that a finding can show the history of its block.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use crate::{Did, Finding, Moment, Stored};

/// Maximum number of events that are kept: some folds and unfolds of the largest blocks, on several CPUs.
const MOST: usize = 8192;
/// Maximum number for one finding: a block of 128 entries that is cleared, and begins to be written.
const OF_ONE: usize = 192;

/// The last moments of all CPUs.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<Moment>);

impl History {
    pub(crate) fn push(&mut self, by: Stored, did: Did) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(Moment { by, did });
    }

    /// Returns the last steps of a finding's block, whose descriptors are at `entries` and map `vas`, in an address
    /// space that `uses` these ASIDs. It begins with the first store there that is kept.
    pub(crate) fn of(
        &self,
        finding: &Finding,
        entries: &RangeInclusive<u64>,
        [first, last]: [u64; 2],
        uses: impl Fn(u16) -> bool,
    ) -> Vec<Moment> {
        let [broken, tlbi] = [finding.broken, finding.tlbi].map(|by| by.map(|by| by.event));
        // CPUs that stored or flushed, whose DSBs belong to it.
        let mut concerned = BTreeSet::new();
        let mut found: Vec<Moment> = Vec::new();
        for moment in &self.0 {
            let event = Some(moment.by.event);
            let ours = match moment.did {
                Did::Store { entry, .. } => entries.contains(&entry) || event == broken,
                Did::Tlbi { cover, .. } => {
                    let ours = cover.touches(first, last) && cover.asid().is_none_or(&uses);
                    !found.is_empty() && ours || event == tlbi
                }
                Did::Dsb { .. } => concerned.contains(&moment.by.cpu),
            };
            if ours {
                if !matches!(moment.did, Did::Dsb { .. }) {
                    concerned.insert(moment.by.cpu);
                }
                found.push(*moment);
            }
            // A completed invalidation by address ends the sequence: later steps belong to another.
            if let Did::Dsb { .. } = moment.did {
                let flushed = found
                    .iter()
                    .rev()
                    .find(|it| !matches!(it.did, Did::Dsb { .. }));
                if flushed.is_some_and(|it| matches!(it.did, Did::Tlbi { .. })) {
                    concerned.remove(&moment.by.cpu);
                }
            }
        }
        let beyond = found.len().saturating_sub(OF_ONE);
        found.drain(..beyond);
        found
    }
}
