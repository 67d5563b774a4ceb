// SPDX-License-Identifier: GPL-2.0-only
//! Descriptors overwritten in memory that a TLB may still hold.

use std::collections::{BTreeMap, HashMap, VecDeque};

use stage1::{Descriptor, Kind, Level, Regime};

use crate::cover::{Cover, Scope};
use crate::finding::Scene;
use crate::shadow::Root;
use crate::{Barrier, Domain, Folio, Stored, Types};

/// A descriptor: its address space, the first VA that it maps, its level.
pub(crate) type Key = (Root, u64, Level);

/// One CPU that may hold the word.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) cpu: u16,
    /// `None` for a global entry.
    pub(crate) asid: Option<u16>,
    /// The TLBIs that were for it, of each CPU one: whichever is complete first will do.
    pub(crate) gone: Vec<Gone>,
}

impl Holder {
    /// Returns whether a DSB was before one of its TLBIs; `None` if none has come.
    pub(crate) fn ordered(&self) -> Option<bool> {
        let ordered = self.gone.iter().map(|gone| gone.ordered);
        ordered.max()
    }
}

/// A TLBI that covers a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) by: u16,
    pub(crate) at: u64,
    pub(crate) scope: Scope,
    /// A DSB was between the store and it.
    pub(crate) ordered: bool,
}

/// The reason why a TLBI was not for a word, the nearest miss first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Miss {
    /// It had a hint of another level or granule.
    Level,
    /// It was for last-level entries, and this is none.
    LastLevel,
    /// It was a range that ends before, or begins behind.
    Range,
    /// It was for another ASID.
    Asid,
    /// It was only for the CPU that executed it.
    Scope,
}

#[derive(Clone, Debug)]
pub(crate) struct Stale {
    pub(crate) old: u64,
    /// The physical address of its descriptor.
    pub(crate) entry: u64,
    pub(crate) stored: Stored,
    /// True if a thread of its own address space removed it, which completes its TLBI before it returns: rule S7.
    pub(crate) own: bool,
    /// Another thread has mapped something there before.
    pub(crate) overtaken: bool,
    /// The folio that it mapped, when it was taken away.
    pub(crate) folio: Option<Folio>,
    pub(crate) holders: Vec<Holder>,
    pub(crate) miss: Option<(Miss, Stored, Cover)>,
}

impl Stale {
    /// Returns what is known of the place of a finding on it.
    pub(crate) fn scene(&self) -> Scene {
        Scene {
            folios: [self.folio, None],
            ..Scene::default()
        }
    }
}

/// Times of a CPU's last DSBs, by their domain.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    /// For stores.
    stores: Reach,
    /// For TLBIs: a DSB completes them only if it waits for loads and stores (Arm ARM B2.3.12, DSB).
    tlbis: Reach,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    local: u64,
    shared: u64,
}

/// All stale words, with the barriers that decide about them.
#[derive(Debug, Default)]
pub(crate) struct Stales {
    words: BTreeMap<Key, Vec<Stale>>,
    /// Descriptors by the page of 4K that the word led to, a table or a page. It may contain some that are no longer in
    /// `words`.
    pages: HashMap<u64, Vec<Key>>,
    count: usize,
    most: usize,
    order: VecDeque<(Key, u64)>,
    waited: HashMap<u16, Waited>,
    /// Descriptors that wait for a DSB of a CPU.
    awaiting: HashMap<u16, Vec<Key>>,
    /// Number of words that were dropped early.
    pub(crate) dropped: u64,
}

/// Maximum number of places that are kept for one page.
const MOST_OF_PAGE: usize = 8;

/// Maximum number of words of one place that are kept apart.
const MOST_OF_ONE: usize = 4;

impl Stales {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds a stale word. `page` is its target, if rule S5 needs it.
    pub(crate) fn insert(&mut self, key: Key, stale: Stale, page: Option<u64>) {
        if let Some(page) = page {
            self.leads_to(page, key);
        }
        let at = stale.stored.event;
        let here = self.words.entry(key).or_default();
        let before = here.len();
        here.retain(|other| other.old != stale.old);
        if here.len() == MOST_OF_ONE {
            here.remove(0);
            self.dropped += 1;
        }
        here.push(stale);
        self.count = self.count + here.len() - before;
        self.order.push_back((key, at));
        while self.count > self.most {
            let Some((key, at)) = self.order.pop_front() else {
                break;
            };
            self.dropped += self.remove(key, |stale| stale.stored.event == at);
        }
        if self.order.len() > 2 * self.most + 64 {
            let words = &self.words;
            self.order.retain(|(key, at)| {
                let here = words.get(key);
                here.is_some_and(|here| here.iter().any(|stale| stale.stored.event == *at))
            });
        }
    }

    fn leads_to(&mut self, page: u64, key: Key) {
        if self.pages.len() > 2 * self.count + 1024 {
            let words = &self.words;
            self.pages.retain(|_, keys| {
                keys.retain(|key| words.contains_key(key));
                !keys.is_empty()
            });
        }
        let keys = self.pages.entry(page >> 12).or_default();
        if !keys.contains(&key) && keys.len() < MOST_OF_PAGE {
            keys.push(key);
        }
    }

    /// Returns the places whose words may have led to the page of this address.
    pub(crate) fn leading_to(&self, page: u64) -> &[Key] {
        self.pages.get(&(page >> 12)).map_or(&[], Vec::as_slice)
    }

    /// Returns those of one place.
    pub(crate) fn at(&self, key: &Key) -> &[Stale] {
        self.words.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns the places of `root` from VA `first` to `last` of a lower level than `level`.
    pub(crate) fn below(&self, root: Root, first: u64, last: u64, level: Level) -> Vec<Key> {
        let range = (root, first, Level::Minus1)..=(root, last, Level::L3);
        let keys = self.words.range(range).map(|(key, _)| *key);
        keys.filter(|key| key.2 > level).collect()
    }

    /// Another thread has mapped something where the one of that event was.
    pub(crate) fn overtake(&mut self, key: Key, event: u64) {
        for stale in self.words.get_mut(&key).into_iter().flatten() {
            stale.overtaken |= stale.stored.event == event;
        }
    }

    /// Removes the words of one place that `which` picks, and returns their number.
    pub(crate) fn remove(&mut self, key: Key, which: impl Fn(&Stale) -> bool) -> u64 {
        let Some(here) = self.words.get_mut(&key) else {
            return 0;
        };
        let before = here.len();
        here.retain(|stale| !which(stale));
        let removed = before - here.len();
        if here.is_empty() {
            self.words.remove(&key);
        }
        self.count -= removed;
        removed as u64
    }

    /// Drops all words of an address space that no CPU will walk again.
    pub(crate) fn forget(&mut self, root: Root) {
        for key in self.of_root(root) {
            self.remove(key, |_| true);
        }
    }

    pub(crate) fn of_root(&self, root: Root) -> Vec<Key> {
        let range = (root, 0, Level::Minus1)..=(root, u64::MAX, Level::L3);
        self.words.range(range).map(|(key, _)| *key).collect()
    }

    /// Returns a TLBI. `format` gives the regime of an address space.
    pub(crate) fn tlbi<'f>(
        &mut self,
        cover: &Cover,
        by: Stored,
        roots: impl Iterator<Item = Root>,
        format: impl Fn(Root) -> Option<&'f Regime>,
    ) {
        let mut touched = Vec::new();
        for root in roots {
            let Some(regime) = format(root) else { continue };
            let keys = match cover.vas {
                None => self.of_root(root),
                Some([first, last]) => self.near(root, first, last, cover.range, regime),
            };
            for key in keys {
                for stale in self.words.get_mut(&key).into_iter().flatten() {
                    if stale.take(cover, by, key, regime, &self.waited) {
                        touched.push(key);
                    }
                }
            }
        }
        let awaiting = self.awaiting.entry(by.cpu).or_default();
        if awaiting.len() > self.most {
            awaiting.clear();
        }
        awaiting.extend(touched);
    }

    /// Returns the places that a TLBI of these VAs may be for: those that it touches, and near a range those of the
    /// same table.
    fn near(&self, root: Root, first: u64, last: u64, range: bool, regime: &Regime) -> Vec<Key> {
        let mut keys = Vec::new();
        for level in Level::ALL {
            if level < regime.root_level {
                continue;
            }
            let size = regime.entry_size(level);
            let start = first & !(size - 1);
            if start < first && self.words.contains_key(&(root, start, level)) {
                keys.push((root, start, level));
            }
        }
        let (mut low, mut high) = (first, last);
        if range {
            let table = regime.entry_size(Level::L2) - 1;
            (low, high) = (first & !table, last | table);
        }
        let within = (root, low, Level::Minus1)..=(root, high, Level::L3);
        keys.extend(self.words.range(within).map(|(key, _)| *key));
        keys
    }

    /// A barrier of `cpu`.
    pub(crate) fn barrier(&mut self, cpu: u16, barrier: Barrier, at: u64) {
        let Barrier::Dsb { domain, types } = barrier else {
            return;
        };
        if types == Types::Loads {
            return;
        }
        let waited = self.waited.entry(cpu).or_default();
        waited.stores.until(domain, at);
        if types != Types::All {
            return;
        }
        waited.tlbis.until(domain, at);
        for key in self.awaiting.remove(&cpu).unwrap_or_default() {
            let waited = &self.waited;
            let done = |stale: &Stale| stale.holders.iter().all(|holder| done(holder, waited));
            let Some(here) = self.words.get_mut(&key) else {
                continue;
            };
            let before = here.len();
            here.retain(|stale| !done(stale));
            self.count -= before - here.len();
            if here.is_empty() {
                self.words.remove(&key);
            }
        }
    }

    /// Returns whether the CPU cannot hold the word any more.
    pub(crate) fn done(&self, holder: &Holder) -> bool {
        done(holder, &self.waited)
    }
}

fn done(holder: &Holder, waited: &HashMap<u16, Waited>) -> bool {
    holder.gone.iter().any(|gone| {
        let by = waited.get(&gone.by).copied().unwrap_or_default();
        gone.ordered && by.tlbis.since(gone.scope) > gone.at
    })
}

impl Reach {
    fn until(&mut self, domain: Domain, at: u64) {
        self.local = at;
        if domain > Domain::NonShareable {
            self.shared = at;
        }
    }

    /// Returns the last one that reaches as far as a TLBI of that scope.
    fn since(self, scope: Scope) -> u64 {
        match scope {
            Scope::Local => self.local,
            Scope::Shared => self.shared,
        }
    }
}

impl Stale {
    /// Applies a TLBI to the word; returns whether it covers any holder.
    fn take(
        &mut self,
        cover: &Cover,
        by: Stored,
        key: Key,
        regime: &Regime,
        waited: &HashMap<u16, Waited>,
    ) -> bool {
        let (_, va, level) = key;
        let table = Descriptor::new(self.old, level, regime).kind() == Kind::Table;
        let last = va.wrapping_add(regime.entry_size(level) - 1);
        let hint = cover.wrong_granule || cover.level.is_some_and(|hint| hint != level && !table);
        let miss = if !cover.touches(va, last) {
            Some(Miss::Range)
        } else if cover.last_level && table {
            Some(Miss::LastLevel)
        } else if hint {
            Some(Miss::Level)
        } else {
            None
        };
        let mut taken = false;
        // Ordered by a DSB of the CPU that stored, or of the one that executes the TLBI and has seen the store.
        let ordered = [self.stored.cpu, by.cpu].iter().any(|cpu| {
            let waited = waited.get(cpu).copied().unwrap_or_default();
            waited.stores.since(cover.scope) > self.stored.event
        });
        let mut other = None;
        for holder in &mut self.holders {
            if !cover.has_asid(holder.asid) {
                other = other.or(Some(Miss::Asid));
            } else if !cover.reaches(by.cpu, holder.cpu) {
                other = other.or(Some(Miss::Scope));
            } else if miss.is_none() && !done(holder, waited) {
                // A later TLBI does not undo that an earlier one was in order and waits for its CPU's DSB.
                let own = |gone: &Gone| gone.by == by.cpu;
                holder.gone.retain(|gone| gone.ordered || !own(gone));
                if !holder.gone.iter().any(own) {
                    holder.gone.push(Gone {
                        by: by.cpu,
                        at: by.event,
                        scope: cover.scope,
                        ordered,
                    });
                }
                taken = true;
            } else {
                other = other.or(miss);
            }
        }
        if let Some(miss) = other {
            // The nearest miss is kept: a TLBI for another ASID is mostly meant for another process.
            let better = |old: &(Miss, Stored, Cover)| old.0 >= miss;
            if self.miss.as_ref().is_none_or(better) {
                self.miss = Some((miss, by, *cover));
            }
        }
        taken
    }
}
