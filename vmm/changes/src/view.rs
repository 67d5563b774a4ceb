// SPDX-License-Identifier: GPL-2.0-only
//! One instant of a guest, decoded: what is compared.

use std::ops::Range;

use linux::absent::SwapTypes;
use linux::counted::Events;
use linux::folio::Page;
use linux::order::OrderRecords;
use linux::pte::Pte;
use linux::vma::Vma;
use stage1::{Level, PhysMemory, Regime, Table, Visitor, WalkProblem};
use untrusted::Text;
use verdict::Folios;

/// A guest at one instant.
#[derive(Debug)]
pub struct View<'a> {
    /// The kernel's release, where it is known.
    pub kernel: Option<String>,
    /// Bytes per page.
    pub page_size: u64,
    /// The processes that were looked at.
    pub spaces: Vec<Space>,
    /// All processes that there were, where that is known.
    pub listed: Option<Vec<Who>>,
    /// The names of entries that are not present.
    pub names: SwapTypes,
    /// The pages, or why they are not known.
    pub folios: Result<&'a dyn Folios, String>,
    /// Pages that the address spaces map.
    pub mapped: Frames,
    /// The kernel's record of faults, or why there is none.
    pub records: Result<OrderRecords, String>,
    /// The kernel's event counters since boot, or the reason that they are not known.
    pub events: Result<Events, String>,
}

/// A process, for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its id in the initial PID namespace.
    pub pid: u32,
    /// Its name.
    pub name: Text,
    /// When it was started, in nanoseconds since boot, where that is known.
    pub started_ns: Option<u64>,
}

impl Who {
    /// Returns whether both are one process: a pid is used again, with its start it is not.
    #[must_use]
    pub fn is(&self, other: &Who) -> bool {
        let starts = self.started_ns.zip(other.started_ns);
        self.pid == other.pid && starts.is_none_or(|(one, other)| one == other)
    }
}

/// A process at one instant.
#[derive(Debug)]
pub struct Space {
    /// Its process.
    pub who: Who,
    /// The address of its `struct mm_struct`, where it is known: a program that was executed since has another.
    pub mm: Option<u64>,
    /// Faults that it has had, where they are known.
    pub faults: Option<u64>,
    /// Entries of its tables, by address ([`entries`]).
    pub entries: Vec<Entry>,
    /// Tables that could not be walked.
    pub problems: u64,
    /// Its VMAs by address, or why they are not known.
    pub vmas: Result<Vec<Vma>, String>,
}

/// An entry that is not zero and leads to no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first address that it is for.
    pub va: u64,
    /// Bytes that it is for.
    pub size: u64,
    /// Its lookup level.
    pub level: i8,
    /// The raw word.
    pub word: u64,
    /// The page frame number of the first page that it maps; 0 where it maps none.
    pub frame: u64,
    /// Returns whether it, or in a contiguous group any of it, is accessed: hardware may set AF in any one of them.
    pub young: bool,
    /// The same of dirty.
    pub dirty: bool,
}

impl Entry {
    /// As Linux reads it.
    #[must_use]
    pub fn pte(&self) -> Pte {
        Pte(self.word)
    }

    /// The first address behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.va.saturating_add(self.size)
    }

    /// Returns whether it maps a page, or would for the CPU.
    #[must_use]
    pub fn present(&self) -> bool {
        self.pte().present()
    }

    /// Returns whether its memory has a folio that shows something.
    #[must_use]
    pub fn has_folio(&self) -> bool {
        self.present() && !self.pte().special() && !self.pte().devmap()
    }

    /// The part of it for one of its pieces: `size` bytes from `va` on.
    #[must_use]
    pub(crate) fn piece(&self, va: u64, size: u64, page_size: u64) -> Entry {
        let pages = (va - self.va) / page_size;
        let frame = if self.present() {
            self.frame + pages
        } else {
            0
        };
        Entry {
            va,
            size,
            frame,
            ..*self
        }
    }
}

/// Page frame numbers that are mapped, sorted: first, and the one behind the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    runs: Vec<Range<u64>>,
    sorted: bool,
    incomplete: bool,
}

impl Frames {
    /// Adds what a process maps.
    pub fn add(&mut self, entries: &[Entry], page_size: u64) {
        self.sorted = false;
        for entry in entries.iter().filter(|entry| entry.present()) {
            let end = entry.frame + entry.size / page_size;
            match self.runs.last_mut() {
                Some(last) if last.end == entry.frame => last.end = end,
                _ => self.runs.push(entry.frame..end),
            }
        }
    }

    /// Puts them in order, for [`Frames::holds`]. `incomplete`: there may be more, as where not all address spaces are known.
    #[must_use]
    pub fn sorted(mut self, incomplete: bool) -> Self {
        self.runs.sort_unstable_by_key(|run| run.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(self.runs.len());
        for run in self.runs {
            match merged.last_mut() {
                Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
                _ => merged.push(run),
            }
        }
        Self {
            runs: merged,
            sorted: true,
            incomplete,
        }
    }

    /// Returns whether any process maps this one; `None` if that is not known.
    #[must_use]
    pub fn holds(&self, pfn: u64) -> Option<bool> {
        debug_assert!(self.sorted);
        let at = self.runs.partition_point(|run| run.end <= pfn);
        match self.runs.get(at).is_some_and(|run| run.contains(&pfn)) {
            false if self.incomplete => None,
            holds => Some(holds),
        }
    }
}

impl View<'_> {
    /// Returns whether a process was there, looked at or not; `None` if that is not known.
    pub(crate) fn had(&self, who: &Who) -> Option<bool> {
        let mut spaces = self.spaces.iter();
        if let Some(space) = spaces.find(|space| space.who.pid == who.pid) {
            return Some(space.who.is(who));
        }
        let mut listed = self.listed.as_ref()?.iter();
        Some(listed.any(|it| it.is(who)))
    }

    /// The page that an entry maps first, where it has one and that is known.
    pub(crate) fn page(&self, entry: &Entry) -> Option<Page> {
        if !entry.has_folio() {
            return None;
        }
        self.folios.as_ref().ok()?.page(entry.frame).ok()
    }
}

/// Descriptors that are read of a process, whose entries are kept: 64 GiB of single 4K pages. Tables that stand in many places
/// would have more than any memory holds; what is left then counts as tables that could not be walked.
const MOST: u64 = 1 << 24;

/// Reads the tables of a process: what is in them, and how many could not be walked.
#[must_use]
pub fn entries<M: PhysMemory + ?Sized>(memory: &M, regime: &Regime) -> (Vec<Entry>, u64) {
    let mut all = All {
        regime,
        entries: Vec::new(),
        problems: 0,
    };
    stage1::walk_within(memory, regime, regime.first, regime.last, MOST, &mut all);
    (all.entries, all.problems)
}

struct All<'r> {
    regime: &'r Regime,
    entries: Vec<Entry>,
    problems: u64,
}

impl<'m> Visitor<'m> for All<'_> {
    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        let regime = self.regime;
        let (size, page) = (regime.entry_size(table.level), regime.granule.bytes());
        let leaf = |word: u64| match table.level {
            Level::L3 => word & 3 == 3,
            level => word & 3 == 1 && regime.level(level).leaf_allowed,
        };
        let mut group = 0..0;
        let (mut young, mut dirty) = (false, false);
        for index in range {
            let word = table.words[index];
            if word == 0 {
                continue;
            }
            let pte = Pte(word);
            let folded = |word: &u64| leaf(*word) && Pte(*word).valid_cont();
            if !folded(&word) {
                (young, dirty) = (pte.present() && pte.young(), pte.present() && pte.dirty());
                group = 0..0;
            } else if !group.contains(&index) {
                let of = regime.contiguous_entries(table.level).unwrap_or(1);
                let start = index / of * of;
                group = start..(start + of).min(table.words.len());
                let members = || table.words[group.clone()].iter().filter(|it| folded(it));
                young = members().any(|word| Pte(*word).young());
                dirty = members().any(|word| Pte(*word).dirty());
            }
            let maps = leaf(word) || pte.present_invalid();
            self.entries.push(Entry {
                va: table.va_of(index, regime).0,
                size,
                level: table.level.number(),
                word,
                frame: match maps {
                    true => regime.output_address(table.level, word).0 / page,
                    false => 0,
                },
                young,
                dirty,
            });
        }
    }

    fn problem(&mut self, _: &WalkProblem) {
        self.problems += 1;
    }
}
