// SPDX-License-Identifier: GPL-2.0-only
//! Rule S5: a page is not reused while a TLB may still lead to it in its former use.

use stage1::{Cause, Descriptor, Kind, Level};

use crate::finding::{Block, Scene};
use crate::given::{leads_to, Given};
use crate::make::missing;
use crate::shadow::Root;
use crate::stale::{Holder, Key, Stale};
use crate::{Finding, Judge, Rule, Stored};

/// Maximum number of pages of one address space that are kept as given to another.
const MOST_GIVEN: usize = 1 << 12;

impl Judge {
    /// Returns the holder of a word that is the farthest from having lost it; `None` if no TLB can hold it. An entry
    /// for an ASID that the address space no longer has does not count.
    pub(crate) fn held<'s>(&self, root: Root, stale: &'s Stale) -> Option<&'s Holder> {
        let space = self.tracker.spaces.get(&root)?;
        let held = stale.holders.iter().filter(|holder| {
            let current = holder.asid.is_none_or(|asid| space.uses(asid));
            current && !self.stales.done(holder)
        });
        held.min_by_key(|holder| holder.ordered())
    }

    /// Returns the words that lead to the page of `address` in some TLB, as a table or as a page.
    fn leading(&self, address: u64, as_table: bool) -> Vec<(Key, Stale, String)> {
        let mut found = Vec::new();
        for key in self.stales.leading_to(address) {
            let (root, _, level) = *key;
            let Some(regime) = self.tracker.shadow.format(root) else {
                continue;
            };
            for stale in self.stales.at(key) {
                let old = Descriptor::new(stale.old, level, regime);
                let table = old.kind() == Kind::Table;
                if table != as_table || leads_to(&old).is_none_or(|page| page != address) {
                    continue;
                }
                if let Some(worst) = self.held(root, stale) {
                    let (_, missing) = missing(level, stale, worst);
                    found.push((*key, stale.clone(), missing));
                }
            }
        }
        found
    }

    /// Handles a store to a page that is no table any more.
    pub(crate) fn written_over(&mut self, address: u64, word: u64, by: Stored) {
        // The zeros by which a table is cleared before it is freed lead nowhere.
        if word == 0 || self.stales.is_empty() {
            return;
        }
        let Some(bytes) = self.tracker.table_size() else {
            return;
        };
        for (key, stale, missing) in self.leading(address & !(bytes - 1), true) {
            let what = format!("the page was a table and is written to: {missing}");
            self.reused(key, &stale, address, word, by, what);
        }
    }

    /// Checks a valid word that is written: a TLB may know its target in another use.
    pub(crate) fn used_as(
        &mut self,
        root: Root,
        va: u64,
        entry: u64,
        new: &Descriptor<'_>,
        by: Stored,
    ) {
        if self.stales.is_empty() {
            return;
        }
        let Some(page) = leads_to(new) else { return };
        let as_table = new.kind() != Kind::Table;
        if as_table {
            self.given(page, entry, new, by);
        }
        for (key, stale, missing) in self.leading(page, as_table) {
            // Conflicts at the same VA belong to the other rules.
            if key.0 == root && key.2 == new.level && key.1 == va {
                continue;
            }
            let what = if as_table {
                format!("the page was a table and is mapped at {va:#x}: {missing}")
            } else {
                format!("the page was mapped and is a table now: {missing}")
            };
            self.reused(key, &stale, entry, new.word, by, what);
        }
    }

    /// Records a page that is mapped and belonged to another address space when its old word was removed. An address
    /// space to which no CPU returns is not endangered: mmu_gather frees one that ends without a TLBI (`fullmm`).
    fn given(&mut self, page: u64, entry: u64, new: &Descriptor<'_>, by: Stored) {
        let Some(now) = self.folio(new) else { return };
        let frame = page >> new.regime().granule.shift();
        for (key, stale, _) in self.leading(page, false) {
            if stale.folio.is_some_and(|then| then.is_other(&now, frame)) {
                let given = self.given.entry(key.0).or_default();
                if given.len() < MOST_GIVEN {
                    given.push(Given {
                        key,
                        event: stale.stored.event,
                        entry,
                        new: new.word,
                        by,
                    });
                } else {
                    self.stales.dropped += 1;
                }
            }
        }
    }

    /// Handles the return of a thread to user space in `root`: pages of it that were given away must not be in its TLB
    /// any more.
    pub(crate) fn given_away(&mut self, root: Root) {
        for given in self.given.remove(&root).unwrap_or_default() {
            let stales = self.stales.at(&given.key);
            let stale = stales.iter().find(|it| it.stored.event == given.event);
            let Some(stale) = stale.cloned() else {
                continue;
            };
            let Some(worst) = self.held(root, &stale) else {
                continue;
            };
            let (_, missing) = missing(given.key.2, &stale, worst);
            let what = format!("the page was mapped and is another's now: {missing}");
            self.reused(given.key, &stale, given.entry, given.new, given.by, what);
        }
    }

    fn reused(
        &mut self,
        key: Key,
        stale: &Stale,
        entry: u64,
        new: u64,
        by: Stored,
        sentence: String,
    ) {
        let (root, va, level) = key;
        self.found(Finding {
            rule: Rule::S5,
            made: by,
            broken: Some(stale.stored),
            tlbi: stale.miss.map(|(_, tlbi, _)| tlbi),
            root: root.base(),
            va,
            level,
            entry,
            old: stale.old,
            new,
            cause: Cause::Broken,
            block: None,
            scene: stale.scene(),
            sentence,
        });
        let event = stale.stored.event;
        self.stales.remove(key, |one| one.stored.event == event);
    }

    /// A finding, with the block around it and its scene.
    pub(crate) fn found(&mut self, mut finding: Finding) {
        if self.findings.keeps(&finding) {
            // The later use of a page that was removed before is another matter.
            let taken = finding.broken.is_some() || finding.rule == Rule::S7;
            let before = finding.scene.folios[0];
            finding.block = self.block(&finding);
            finding.scene = self.scene(&finding);
            if taken {
                finding.scene.folios[0] = before;
            }
        }
        self.findings.push(finding);
    }

    fn scene(&self, finding: &Finding) -> Scene {
        let shadow = &self.tracker.shadow;
        let of = |root: &&Root| root.base() == finding.root;
        let Some((root, space)) = self.tracker.spaces.iter().find(|(root, _)| of(root)) else {
            return Scene::default();
        };
        let Some(regime) = shadow.format(*root) else {
            return Scene::default();
        };
        let uses = |asid| space.uses(asid);
        let bytes = regime.entry_size(finding.level);
        let (first, count) = match &finding.block {
            Some(block) => (block.va, block.after.len() as u64),
            None => (finding.va, 1),
        };
        let at = (finding.va.wrapping_sub(first) / bytes).min(count - 1);
        let start = finding.entry.saturating_sub(at * 8);
        let entries = start..=start.saturating_add(count * 8 - 1);
        let vas = [first, first.wrapping_add((count * bytes).wrapping_sub(1))];
        let frame = |word| {
            let word = Descriptor::new(word, finding.level, regime);
            let leaf = matches!(word.kind(), Kind::Page | Kind::Block);
            leaf.then(|| word.output_address().0 >> regime.granule.shift())
        };
        let (table, index) = shadow.place(start).unwrap_or((start, 0));
        let frames = [finding.old, finding.new].map(frame);
        Scene {
            bytes,
            frames,
            folios: frames.map(|frame| self.folios.at(frame?)),
            table,
            index,
            life: self.history.of(finding, &entries, vas, uses),
        }
    }

    fn block(&self, finding: &Finding) -> Option<Block> {
        let shadow = &self.tracker.shadow;
        let (base, index) = shadow.place(finding.entry)?;
        let table = shadow.table(base)?;
        let of = |root: &&Root| root.base() == finding.root;
        let root = *table.roots.iter().find(of)?;
        let members = shadow.format(root)?.contiguous_entries(table.level)?;
        let first = index / members * members;
        let words = table.words.get(first..first + members)?;
        let stale = |at: usize| -> Option<u64> {
            let key: (Root, u64, Level) = (root, shadow.va(root, base, first + at), table.level);
            Some(self.stales.at(&key).last()?.old)
        };
        let before = words.iter().enumerate();
        let mut after = words.to_vec();
        after[index - first] = finding.new;
        Some(Block {
            va: shadow.va(root, base, first),
            before: before
                .map(|(at, word)| stale(at).unwrap_or(*word))
                .collect(),
            after,
        })
    }
}
