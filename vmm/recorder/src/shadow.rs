// SPDX-License-Identifier: GPL-2.0-only
//! The shadow of the tables: the pages that are tables, their levels and VAs, and their words.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use stage1::{transition, BbmLevel, Cause, Descriptor, Half, Kind, Level, Regime};

use crate::limbo_table::Limbo;

/// An address space: the first table's address, and in bit 0 the half (a table may be the first of both).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Root(u64);

impl Root {
    pub(crate) fn new(base: u64, half: Half) -> Self {
        Self(base | u64::from(half.number()))
    }

    pub(crate) fn base(self) -> u64 {
        self.0 & !1
    }
}

/// Returns whether a TLB that may hold `old` thereby holds the content of `word`. It is the same word once more, as
/// cmpxchg() stores it to a page that is old already, or differs in software's bits, or in AF that the PE may have set
/// before.
fn goes_on(format: Option<&Regime>, level: Level, old: u64, word: u64) -> bool {
    let cause = |regime| {
        let [old, new] = [old, word].map(|word| Descriptor::new(word, level, regime));
        transition(&old, &new, BbmLevel::Zero).cause
    };
    let lasting = [Cause::Same, Cause::Software, Cause::AccessFlag];
    format.map_or(old == word, |regime| lasting.contains(&cause(regime)))
}

/// The reason why a table is not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its words are not known yet.
    Empty,
    /// Its words are known.
    Known,
    /// It is used at several places or in several formats, so that a descriptor of it has no unique VA.
    Ambiguous,
}

/// One table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) level: Level,
    /// The VA that its first descriptor maps.
    pub(crate) va: u64,
    pub(crate) roots: Vec<Root>,
    pub(crate) words: Vec<u64>,
    /// When each word was written, as an instant of [`crate::Tracker`].
    pub(crate) since: Vec<u64>,
    pub(crate) state: State,
}

/// Bytes that a descriptor of the shadow takes: the word and when it was written.
const BYTES: usize = 16;

/// All tables that are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadow {
    pub(crate) tables: BTreeMap<u64, Table>,
    /// Number of tables on each page of 4K.
    pages: HashMap<u64, u32>,
    /// The formats of the roots; those without ASID, CnP and address.
    pub(crate) formats: HashMap<Root, Regime>,
    bytes: usize,
    /// No table is added beyond this.
    pub(crate) most: usize,
    /// Tables that were not added for that reason.
    pub(crate) refused: u64,
    /// The address spaces that a CPU walks.
    loaded: HashSet<Root>,
    /// Address spaces that were evicted: one of their tables is now another's, so they have ended.
    evicted: Vec<Root>,
    /// Pages of 4K that became pages of tables, or ceased to be.
    turned: Vec<(u64, bool)>,
    /// Tables whose words are needed: address and number of descriptors.
    wanted: Vec<(u64, usize)>,
    /// Unlinked tables that a TLB may still lead to: their pages are watched.
    pub(crate) limbo: VecDeque<Limbo>,
}

impl Shadow {
    pub(crate) fn watches(&self, address: u64) -> bool {
        self.pages.contains_key(&(address >> 12))
    }

    pub(crate) fn load(&mut self, root: Root, loaded: bool) {
        if loaded {
            self.loaded.insert(root);
        } else {
            self.loaded.remove(&root);
        }
    }

    pub(crate) fn evicted(&mut self) -> Vec<Root> {
        std::mem::take(&mut self.evicted)
    }

    pub(crate) fn turned(&mut self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.turned)
    }

    /// Returns all tables whose words are known: address and number of descriptors.
    pub(crate) fn known(&self) -> Vec<(u64, usize)> {
        let known = self
            .tables
            .iter()
            .filter(|(_, table)| table.state == State::Known);
        known
            .map(|(base, table)| (*base, table.words.len()))
            .collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn wanted(&mut self) -> Option<(u64, usize)> {
        self.wanted.pop()
    }

    /// Returns the table and the place in it of the descriptor at `address`.
    pub(crate) fn place(&self, address: u64) -> Option<(u64, usize)> {
        let (base, table) = self.tables.range(..=address).next_back()?;
        let index = ((address - base) / 8) as usize;
        (index < table.words.len()).then_some((*base, index))
    }

    pub(crate) fn table(&self, base: u64) -> Option<&Table> {
        self.tables.get(&base)
    }

    pub(crate) fn format(&self, root: Root) -> Option<&Regime> {
        self.formats.get(&root)
    }

    /// Returns the kind of `word` at `level` under `root`.
    fn is_table(&self, root: Root, level: Level, word: u64) -> Option<u64> {
        let descriptor = Descriptor::new(word, level, self.formats.get(&root)?);
        (descriptor.kind() == Kind::Table).then(|| descriptor.next_table().0)
    }

    /// Begins to follow an address space, and requests its tables.
    pub(crate) fn add_root(&mut self, root: Root, regime: &Regime) {
        let format = format(regime);
        self.formats.insert(root, format);
        self.attach(root, root.base(), regime.root_level, regime.first.0);
    }

    /// Forgets an address space and the tables that no other has.
    pub(crate) fn drop_root(&mut self, root: Root) {
        self.detach(root, root.base());
        self.formats.remove(&root);
        self.loaded.remove(&root);
    }

    /// Returns whether the first table of `root` is known to hold nothing valid.
    pub(crate) fn is_void(&self, root: Root) -> bool {
        let table = self.tables.get(&root.base());
        table.is_some_and(|table| {
            table.state == State::Known && table.words.iter().all(|word| word & 1 == 0)
        })
    }

    /// A table of `level` that maps from `va` on is at `base` now.
    fn attach(&mut self, root: Root, base: u64, level: Level, va: u64) {
        let Some(regime) = self.formats.get(&root).copied() else {
            return;
        };
        let (formats, loaded) = (&self.formats, &self.loaded);
        let mut ended = Vec::new();
        if let Some(table) = self.tables.get_mut(&base) {
            let alike = table.level == level && table.va == va;
            let same_format = |other: &Root| formats.get(other) == Some(&regime);
            if !alike || !table.roots.iter().all(same_format) {
                let idle = |other: &Root| *other != root && !loaded.contains(other);
                if table.roots.iter().all(idle) {
                    ended.clone_from(&table.roots);
                } else {
                    table.state = State::Ambiguous;
                }
            }
        }
        for other in ended {
            self.drop_root(other);
            self.evicted.push(other);
        }
        if let Some(table) = self.tables.get_mut(&base) {
            if table.roots.contains(&root) {
                return;
            }
            table.roots.push(root);
            if table.state != State::Ambiguous {
                self.attach_children(root, base);
            }
            return;
        }
        let entries = regime.entries(level);
        if self.bytes + entries * BYTES > self.most {
            self.refused += 1;
            return;
        }
        self.bytes += entries * BYTES;
        self.count_pages(base, entries, true);
        let table = Table {
            level,
            va,
            roots: vec![root],
            words: vec![0; entries],
            since: vec![0; entries],
            state: State::Empty,
        };
        self.tables.insert(base, table);
        self.wanted.push((base, entries));
    }

    fn children(&self, root: Root, base: u64) -> Vec<(u64, Level, u64)> {
        let (Some(table), Some(regime)) = (self.tables.get(&base), self.formats.get(&root)) else {
            return Vec::new();
        };
        let Some(next) = table.level.next() else {
            return Vec::new();
        };
        let size = regime.entry_size(table.level);
        let of = |(index, word): (usize, &u64)| {
            let va = table.va.wrapping_add(size.wrapping_mul(index as u64));
            Some((self.is_table(root, table.level, *word)?, next, va))
        };
        table.words.iter().enumerate().filter_map(of).collect()
    }

    fn attach_children(&mut self, root: Root, base: u64) {
        for (child, level, va) in self.children(root, base) {
            self.attach(root, child, level, va);
        }
    }

    fn detach(&mut self, root: Root, base: u64) {
        let Some(table) = self.tables.get_mut(&base) else {
            return;
        };
        let before = table.roots.len();
        table.roots.retain(|other| *other != root);
        if table.roots.len() == before {
            return;
        }
        let last = table.roots.is_empty();
        for (child, level, _) in self.children(root, base) {
            // Downwards only: an ambiguous table may lead anywhere.
            let below = self.tables.get(&child).is_some_and(|it| it.level == level);
            if below {
                self.detach(root, child);
            }
        }
        if last {
            if let Some(table) = self.tables.remove(&base) {
                self.bytes -= table.words.len() * BYTES;
                self.count_pages(base, table.words.len(), false);
            }
        }
    }

    pub(crate) fn count_pages(&mut self, base: u64, entries: usize, more: bool) {
        for page in base >> 12..=(base + entries as u64 * 8 - 1) >> 12 {
            let count = self.pages.entry(page).or_insert(0);
            if more {
                *count += 1;
                if *count == 1 {
                    self.turned.push((page << 12, true));
                }
            } else if *count > 1 {
                *count -= 1;
            } else {
                self.pages.remove(&page);
                self.turned.push((page << 12, false));
            }
        }
    }

    /// Sets the words of a table from memory. Known words that differ are counted.
    pub(crate) fn fill(&mut self, base: u64, words: &[u64], now: u64) -> Filled {
        let Some(table) = self.tables.get_mut(&base) else {
            return Filled::NotAsked;
        };
        if table.words.len() != words.len() || table.state == State::Ambiguous {
            return Filled::NotAsked;
        }
        if table.state == State::Known {
            return Filled::Again;
        }
        table.words.copy_from_slice(words);
        table.since.fill(now);
        table.state = State::Known;
        for root in table.roots.clone() {
            self.attach_children(root, base);
        }
        Filled::First
    }

    /// A word of a table that is known is `word` now. Tables come and go with it.
    pub(crate) fn write(&mut self, base: u64, index: usize, word: u64, now: u64) {
        let Some(table) = self.tables.get_mut(&base) else {
            return;
        };
        let old = std::mem::replace(&mut table.words[index], word);
        let format = table.roots.first().and_then(|root| self.formats.get(root));
        if table.state != State::Known || !goes_on(format, table.level, old, word) {
            table.since[index] = now;
        }
        let (level, state, roots) = (table.level, table.state, table.roots.clone());
        let (Some(next), State::Known) = (level.next(), state) else {
            return;
        };
        for root in roots {
            let (before, after) = (
                self.is_table(root, level, old),
                self.is_table(root, level, word),
            );
            if before == after {
                continue;
            }
            if let Some(child) = before {
                let below = self.tables.get(&child).is_some_and(|it| it.level == next);
                if below {
                    self.detach(root, child);
                    let va = self.va(root, base, index);
                    self.take_away(root, child, level, va);
                }
            }
            if let Some(child) = after {
                let va = self.va(root, base, index);
                self.attach(root, child, next, va);
            }
        }
    }

    /// Returns the first VA that the descriptor maps.
    pub(crate) fn va(&self, root: Root, base: u64, index: usize) -> u64 {
        match (self.tables.get(&base), self.formats.get(&root)) {
            (Some(table), Some(regime)) => {
                let size = regime.entry_size(table.level);
                table.va.wrapping_add(size.wrapping_mul(index as u64))
            }
            _ => 0,
        }
    }

    /// Records that the word at `address`, and so its table, is no longer known.
    pub(crate) fn lose(&mut self, base: u64) {
        if let Some(table) = self.tables.get_mut(&base) {
            table.state = State::Ambiguous;
        }
    }
}

/// The result of words that were read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// They are not needed.
    NotAsked,
    /// They are the table's first.
    First,
    /// They were known already.
    Again,
}

/// Returns a regime without fields that differ between address spaces of one format.
fn format(regime: &Regime) -> Regime {
    Regime {
        asid: 0,
        cnp: false,
        root: stage1::PhysicalAddress(0),
        ..*regime
    }
}

/// Returns whether two regimes read descriptors alike.
pub(crate) fn alike(one: &Regime, two: &Regime) -> bool {
    format(one) == format(two)
}
