// SPDX-License-Identifier: GPL-2.0-only
//! Words that a TLB may hold of a table that was unlinked.

use stage1::{Descriptor, Kind};

use crate::given::leads_to;
use crate::shadow::{Root, State};
use crate::stale::Stale;
use crate::{Judge, Stored};

/// Leaves below a table that was taken away which are looked at.
const MOST_BELOW: usize = 1 << 14;

impl Judge {
    /// Handles the unlinking of a table: valid words below it may still be in TLBs.
    pub(crate) fn unlinked(&mut self, root: Root, base: u64, by: Stored) {
        let mut left = MOST_BELOW;
        let mut tables = vec![base];
        while let Some(base) = tables.pop() {
            let shadow = &self.tracker.shadow;
            let (Some(table), Some(regime)) = (shadow.table(base), shadow.format(root)) else {
                continue;
            };
            if table.state != State::Known || !table.roots.contains(&root) {
                self.not_judged.ambiguous += u64::from(table.state == State::Ambiguous);
                continue;
            }
            let (regime, level) = (*regime, table.level);
            let mut found = Vec::new();
            for (index, word) in table.words.iter().enumerate() {
                let old = Descriptor::new(*word, level, &regime);
                if word & 1 == 0 {
                    continue;
                }
                if old.kind() == Kind::Table {
                    // Tables are only ever followed downwards.
                    let next = old.next_table().0;
                    let below = shadow.table(next).is_some_and(|below| below.level > level);
                    if below && tables.len() < MOST_BELOW {
                        tables.push(next);
                    }
                }
                let holders = self.holders(root, &old, table.since[index]);
                if !holders.is_empty() {
                    found.push((index, *word, holders, leads_to(&old)));
                }
            }
            for (index, old, holders, page) in found {
                if left == 0 {
                    self.stales.dropped += 1;
                    continue;
                }
                left -= 1;
                let va = self.tracker.shadow.va(root, base, index);
                let stale = Stale {
                    old,
                    entry: base + index as u64 * 8,
                    stored: by,
                    own: self.runs(root, by.cpu),
                    overtaken: false,
                    // The page's folio was not recorded: only the table's descriptor was written.
                    folio: None,
                    holders,
                    miss: None,
                };
                self.stales.insert((root, va, level), stale, page);
            }
        }
    }
}
