// SPDX-License-Identifier: GPL-2.0-only
//! The raw words of each checkpoint, gathered while the copy of its memory is there.

use std::collections::BTreeMap;
use std::ops::Range;

use stage1::{Half, Level, PhysMemory, Regime, Table, Visitor};

use super::attributes::{Dictionary, Split, Splitter};
use super::folios::{FolioKinds, FolioRuns, Folios};
use super::pack::Packed;

/// Bytes of packed words that a page holds at most: some ten million entries that have nothing in common, and any
/// number of those that have.
const MOST: usize = 64 << 20;

/// The words of a run's checkpoints, as a page keeps them.
#[derive(Debug)]
pub struct Pages {
    pub(crate) dictionary: Dictionary,
    pub(crate) folio_kinds: FolioKinds,
    spaces: BTreeMap<(usize, Half, u64), Words>,
    bytes: usize,
    most: usize,
}

impl Default for Pages {
    fn default() -> Pages {
        Pages::limited(MOST)
    }
}

/// The words of one address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    /// Runs: the pages from the end of the one before to this one; entries less 1; attributes; the number less what the
    /// run before would have gone on with (signed); with more than one entry, how the number goes on (signed).
    pub packed: Packed,
    /// The folios behind them, where they are known.
    pub folios: Option<Packed>,
    /// Entries in them.
    pub entries: u64,
    /// Entries that there was no room for.
    pub left_out: u64,
    /// The half's first address.
    pub first: u64,
    /// Bytes per page.
    pub granule: u64,
    /// Regions besides VMAs: a name, the first address, the first address behind it.
    pub regions: Vec<(String, u64, u64)>,
}

impl Pages {
    /// None yet, and at most so many bytes of them, but for the end of a run.
    pub(crate) fn limited(most: usize) -> Pages {
        Pages {
            dictionary: Dictionary::default(),
            folio_kinds: FolioKinds::default(),
            spaces: BTreeMap::new(),
            bytes: 0,
            most,
        }
    }

    /// Gathers the words of one address space of the checkpoint that becomes `step` of the report. `linux`: the
    /// kernel's release is one whose software bits are known. `folios`: of those behind the entries, where they are known.
    pub fn gather<M: PhysMemory + ?Sized>(
        &mut self,
        step: usize,
        memory: &M,
        regime: &Regime,
        linux: bool,
        folios: Option<&Folios<'_>>,
    ) {
        let mut gatherer = Gatherer {
            regime,
            dictionary: &mut self.dictionary,
            splitters: Level::ALL.map(|level| Splitter::new(regime, level, linux)),
            room: self.most.saturating_sub(self.bytes),
            words: Words {
                first: regime.first.0,
                granule: regime.granule.bytes(),
                ..Words::default()
            },
            run: None,
            end: 0,
            next: 0,
            folios,
            folio_kinds: &mut self.folio_kinds,
            folio_runs: FolioRuns::default(),
        };
        stage1::walk(memory, regime, regime.first, regime.last, &mut gatherer);
        gatherer.flush();
        let mut words = gatherer.words;
        if folios.is_some() {
            gatherer.folio_runs.flush();
            words.folios = Some(gatherer.folio_runs.packed);
        }
        self.bytes += words.packed.len() + words.folios.as_ref().map_or(0, Packed::len);
        self.spaces
            .insert((step, regime.half, regime.root.0), words);
    }

    /// Says what is where in the kernel half of that step, as far as it is known: names with their addresses.
    pub fn name_regions(&mut self, step: usize, regions: Vec<(String, u64, u64)>) {
        let mut all = self.spaces.range_mut((step, Half::Lower, 0)..);
        if let Some((_, words)) = all.find(|(key, _)| is_kernel(key, step)) {
            words.regions = regions;
        }
    }

    /// The words below the table at `root`, where they were gathered.
    pub(crate) fn words(&self, step: usize, half: Half, root: u64) -> Option<&Words> {
        self.spaces.get(&(step, half, root))
    }

    /// The words of the kernel half at a step.
    pub(crate) fn kernel(&self, step: usize) -> Option<&Words> {
        let mut all = self.spaces.range((step, Half::Lower, 0)..);
        let found = all.find(|(key, _)| is_kernel(key, step));
        found.map(|(_, words)| words)
    }
}

fn is_kernel((at, half, _): &(usize, Half, u64), step: usize) -> bool {
    *at == step && *half == Half::Upper
}

/// Entries after each other of which each differs from the one before by the same number.
#[derive(Clone, Copy, Debug)]
struct Run {
    page: u64,
    pages: u64,
    count: u64,
    first: Split,
    step: i64,
}

impl Run {
    fn end(&self) -> u64 {
        self.page + self.count * self.pages
    }

    fn number(&self, place: u64) -> u64 {
        let step = self.step.wrapping_mul(place as i64);
        self.first.number.wrapping_add_signed(step)
    }

    /// Takes an entry in, if it goes on as the run does.
    fn takes(&mut self, page: u64, split: Split) -> bool {
        if page != self.end() || split.attributes != self.first.attributes {
            return false;
        }
        if self.count == 1 {
            self.step = split.number.wrapping_sub(self.first.number) as i64;
        } else if self.number(self.count) != split.number {
            return false;
        }
        self.count += 1;
        true
    }
}

struct Gatherer<'a> {
    regime: &'a Regime,
    dictionary: &'a mut Dictionary,
    splitters: [Splitter<'a>; 5],
    room: usize,
    words: Words,
    run: Option<Run>,
    /// The page behind the last run, and the number that it would have gone on with.
    end: u64,
    next: u64,
    folios: Option<&'a Folios<'a>>,
    folio_kinds: &'a mut FolioKinds,
    folio_runs: FolioRuns,
}

impl Gatherer<'_> {
    /// The folio behind an entry: that of the first page that it maps.
    fn folio(&mut self, page: u64, pages: u64, split: Split) {
        let Some(folios) = self.folios else { return };
        let attributes = &self.dictionary.all[split.attributes];
        let room = self.room.saturating_sub(self.words.packed.len());
        if !attributes.mapping || self.folio_runs.packed.len() >= room {
            return;
        }
        let frame = split.number * attributes.unit / self.regime.granule.bytes();
        if let Some(folio) = folios(frame) {
            self.folio_runs
                .add(page, pages, frame, &folio, self.folio_kinds);
        }
    }

    fn flush(&mut self) {
        let Some(run) = self.run.take() else { return };
        if self.words.packed.len() >= self.room {
            self.words.left_out += run.count;
            return;
        }
        let packed = &mut self.words.packed;
        packed.number(run.page - self.end);
        packed.number(run.count - 1);
        packed.number(run.first.attributes as u64);
        packed.signed(run.first.number.wrapping_sub(self.next) as i64);
        if run.count > 1 {
            packed.signed(run.step);
        }
        self.words.entries += run.count;
        self.end = run.end();
        self.next = run.number(run.count);
    }
}

impl<'m> Visitor<'m> for Gatherer<'_> {
    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        let granule = self.regime.granule.bytes();
        let pages = self.regime.entry_size(table.level) / granule;
        for index in range {
            let word = table.words[index];
            if word == 0 {
                continue;
            }
            let va = table.va_of(index, self.regime).0;
            let page = (va - self.regime.first.0) / granule;
            let splitter = &mut self.splitters[table.level.index()];
            let Some(split) = splitter.split(word, self.dictionary) else {
                self.words.left_out += 1;
                continue;
            };
            self.folio(page, pages, split);
            if self.run.as_mut().is_some_and(|run| run.takes(page, split)) {
                continue;
            }
            self.flush();
            self.run = Some(Run {
                page,
                pages,
                count: 1,
                first: split,
                step: 0,
            });
        }
    }
}
