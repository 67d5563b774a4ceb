// SPDX-License-Identifier: GPL-2.0-only
//! The judge's part in following a VA.

use stage1::{Descriptor, Level};

use super::{Follow, Followed, Now};
use crate::moment::Did;
use crate::{Cover, Finding, Judge, Stored};

impl Judge {
    /// Keeps the last sequences of the block of `va` from here on, in any address space.
    pub fn follow(&mut self, va: u64) {
        self.follow = Some(Follow::new(va));
    }

    /// Returns the address spaces in which the block has had sequences, the most recent last, and the number of those
    /// that were left out.
    #[must_use]
    pub fn followed(&self) -> (Vec<&Followed>, u64) {
        let follow = self.follow.as_ref();
        let mut spaces: Vec<&Followed> = follow.into_iter().flat_map(|it| &it.spaces).collect();
        spaces.sort_by_key(|space| space.last());
        (spaces, follow.map_or(0, |follow| follow.left_out))
    }

    /// Returns the first and the last VA of the group of pages that `va` is in.
    #[must_use]
    pub fn block_of(&self, va: u64) -> [u64; 2] {
        self.tracker.block(va)
    }

    /// Returns what a followed address space has for `va` now; `None` where it is not known, or has ended.
    #[must_use]
    pub fn now(&self, space: &Followed, va: u64) -> Option<Now> {
        let shadow = &self.tracker.shadow;
        let regime = shadow.format(space.root).filter(|_| space.lives)?;
        let tables = shadow.tables.iter().filter(|(_, table)| {
            let size = regime.entry_size(table.level);
            let within = va.wrapping_sub(table.va) / size < table.words.len() as u64;
            within && table.roots.contains(&space.root)
        });
        let (base, table) = tables.max_by_key(|(_, table)| table.level)?;
        let index = (va.wrapping_sub(table.va) / regime.entry_size(table.level)) as usize;
        let word = *table.words.get(index)?;
        let descriptor = Descriptor::new(word, table.level, regime);
        let text = format!(
            "level {} entry {index} of table {base:#x} is {word:#018x}: {descriptor}",
            table.level
        );
        let members = match table.level {
            Level::L3 => regime.contiguous_entries(Level::L3).unwrap_or(1),
            _ => 1,
        };
        let first = index / members * members;
        let words = table.words.get(first..first + members)?;
        Some(Now {
            text,
            words: words.to_vec(),
            folio: self.folio(&descriptor),
        })
    }

    /// Returns whether a finding is one of the followed block of that address space.
    #[must_use]
    pub fn concerns(&self, space: &Followed, finding: &Finding) -> bool {
        let steps = space.sequences.iter().flat_map(|one| &one.steps);
        let mut events = steps.map(|step| step.by.event);
        finding.root == space.root() && events.any(|event| event == finding.made.event)
    }

    /// A descriptor of a table is about to become `word`.
    pub(crate) fn followed_store(&mut self, base: u64, index: usize, word: u64, by: Stored) {
        let (Some(follow), Some(table)) = (&mut self.follow, self.tracker.shadow.table(base))
        else {
            return;
        };
        for root in &table.roots {
            let Some(regime) = self.tracker.shadow.format(*root) else {
                continue;
            };
            let (size, pages) = (regime.entry_size(table.level), table.level == Level::L3);
            // Above the pages the neighbours are other places' tables.
            let members = match pages {
                true => regime.contiguous_entries(Level::L3).unwrap_or(1),
                false => 1,
            };
            let block = !size.saturating_mul(members as u64).wrapping_sub(1);
            let va = self.tracker.shadow.va(*root, base, index);
            if va & block != follow.va & block {
                continue;
            }
            let first = index / members * members;
            let group = table.words.get(first..first + members);
            let group = group.filter(|_| pages);
            let did = Did::Store {
                entry: base + index as u64 * 8,
                old: table.words[index],
                new: word,
            };
            let returns = follow.returns.get(&by.cpu).copied().unwrap_or(0);
            let group = group.map(|words| (base + first as u64 * 8, words));
            follow.space(*root).store(by, returns, did, group);
        }
    }

    /// Records a TLBI that may be for a word that was removed there.
    pub(crate) fn followed_tlbi(&mut self, cover: &Cover, did: Did, by: Stored) {
        let Some(follow) = &mut self.follow else {
            return;
        };
        let [first, last] = self.tracker.block(follow.va);
        if !cover.touches(first, last) {
            return;
        }
        for space in follow.spaces.iter_mut().filter(|space| space.lives) {
            let known = self.tracker.spaces.get(&space.root);
            let uses = |asid| known.is_some_and(|known| known.uses(asid));
            if cover.asid().is_none_or(uses) {
                space.tlbi(by, did);
            }
        }
    }
}
