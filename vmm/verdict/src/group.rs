// SPDX-License-Identifier: GPL-2.0-only
//! One naturally aligned group of descriptors in a table: what the Contiguous bit speaks of.

use linux::pte::{bits, Pte};
use stage1::{lookup, Level, Lookup, PhysMemory, PhysicalAddress, Regime, VirtualAddress};

/// A group, whole, wherever a walk began or ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group<'a> {
    pub regime: &'a Regime,
    pub level: Level,
    /// VA of the first member.
    pub va: u64,
    /// Physical address of the table.
    pub table: u64,
    /// Index of the first member.
    pub index: usize,
    pub words: &'a [u64],
    /// All members are one [`Group::run`].
    is_run: bool,
    /// Each member is looked at by itself.
    plainly: bool,
}

/// Fields that members may differ in, by name. AF, AP\[2\] and the dirty bit are not among them.
const NAMED: [(u64, &str); 11] = [
    (0b111 << 2, "AttrIndx"),
    (1 << 5, "NS"),
    (bits::USER, "AP[1]"),
    (0b11 << 8, "SH"),
    (bits::NG, "nG"),
    (1 << 50, "GP"),
    (bits::WRITE, "DBM"),
    (bits::PXN, "PXN"),
    (bits::UXN, "UXN"),
    (0b1111 << 59, "PBHA"),
    (1 << 63, "bit 63"),
];

const NAMED_SOFTWARE: [(u64, &str); 3] = [
    (bits::SPECIAL, "SPECIAL"),
    (bits::DEVMAP, "DEVMAP"),
    (bits::UFFD_WP, "UFFD_WP"),
];

impl<'a> Group<'a> {
    /// The group of these words, of which `index` is the place of the first in the table at `table`, and `va` what it
    /// maps.
    pub fn new(
        (regime, level): (&'a Regime, Level),
        va: u64,
        (table, index): (u64, usize),
        words: &'a [u64],
    ) -> Group<'a> {
        let mut group = Group {
            regime,
            level,
            va,
            table,
            index,
            words,
            is_run: false,
            plainly: false,
        };
        group.is_run = group.is_one_run();
        group
    }

    /// The same, in which no members are alike.
    pub fn plainly(self) -> Group<'a> {
        let (is_run, plainly) = (false, true);
        Group {
            is_run,
            plainly,
            ..self
        }
    }

    /// Returns whether it is pages that differ in nothing but output address, which goes up by a page each: without a
    /// branch on any word.
    fn is_one_run(&self) -> bool {
        let (Some(&first), step) = (self.words.first(), self.step()) else {
            return false;
        };
        let address = self.regime.level(self.level).leaf_address;
        let last = (first & address).saturating_add((self.words.len() as u64 - 1) * step);
        if self.level != Level::L3 || !self.is_leaf(first) || last & !address != 0 {
            return false;
        }
        let all = self.words.iter().enumerate();
        let wrong = all.fold(0, |wrong, (n, word)| {
            wrong | (word ^ (first + n as u64 * step))
        });
        wrong == 0
    }

    /// Bytes that one member maps.
    pub fn step(&self) -> u64 {
        self.regime.entry_size(self.level)
    }

    /// VA of member `at`.
    pub fn va_of(&self, at: usize) -> u64 {
        self.va.wrapping_add(at as u64 * self.step())
    }

    /// First VA behind the group; wraps to 0 at the top.
    pub fn end(&self) -> u64 {
        self.va_of(self.words.len())
    }

    /// Returns whether `word` is a page or a block.
    pub fn is_leaf(&self, word: u64) -> bool {
        match self.level {
            Level::L3 => word & 3 == 3,
            level => word & 3 == 1 && self.regime.level(level).leaf_allowed,
        }
    }

    /// Returns whether `word` leads to another table.
    pub fn is_table(&self, word: u64) -> bool {
        self.level != Level::L3 && word & 3 == 3
    }

    /// Returns whether an entry is present for Linux, valid for the CPU or not.
    pub fn is_present(&self, pte: Pte) -> bool {
        self.is_leaf(pte.0) || pte.present_invalid()
    }

    /// How many members from `at` on, before the `until`th, are pages and equal the first in all but output address. At
    /// least one, whatever it is.
    pub fn alike(&self, at: usize, until: usize) -> usize {
        let (words, first) = (&self.words[at..until.max(at + 1)], self.words[at]);
        if self.is_run {
            return words.len();
        }
        if self.plainly || self.level != Level::L3 || !self.is_leaf(first) {
            return 1;
        }
        let same = !self.address_bits();
        let other = words.iter().position(|word| (word ^ first) & same != 0);
        other.unwrap_or(words.len())
    }

    /// The same of those whose output addresses go up by a page each as well.
    pub fn run(&self, at: usize, until: usize) -> usize {
        let (words, first) = (&self.words[at..until.max(at + 1)], self.words[at]);
        if self.is_run {
            return words.len();
        }
        if self.plainly || self.level != Level::L3 || !self.is_leaf(first) {
            return 1;
        }
        // Where more bits hold address (LPA, LPA2), a run ends where they change.
        let address = self.regime.level(self.level).leaf_address;
        let (start, step) = (first & address, self.step());
        let goes_on = |(n, word): (usize, &u64)| {
            (word ^ first) & !address == 0 && word & address == start.wrapping_add(n as u64 * step)
        };
        let mut all = words.iter().enumerate();
        all.position(|each| !goes_on(each)).unwrap_or(words.len())
    }

    /// Pages and blocks with their place in the group.
    pub fn leaves(&self) -> impl Iterator<Item = (usize, Pte)> + use<'a, '_> {
        let leaf = |&(_, &word): &(usize, &u64)| self.is_leaf(word);
        let all = self.words.iter().enumerate().filter(leaf);
        all.map(|(at, &word)| (at, Pte(word)))
    }

    /// Entries that are present for Linux, valid for the CPU or not, with their place.
    pub fn present(&self) -> impl Iterator<Item = (usize, Pte)> + use<'a, '_> {
        let present = |&(_, &word): &(usize, &u64)| self.is_present(Pte(word));
        let all = self.words.iter().enumerate().filter(present);
        all.map(|(at, &word)| (at, Pte(word)))
    }

    /// Returns whether member `at` maps anything of `range`: a block may reach beyond the part of it that is looked at.
    pub fn touches(&self, at: usize, range: &std::ops::Range<u64>) -> bool {
        let va = self.va_of(at);
        va < range.end && va.saturating_add(self.step()) > range.start
    }

    /// Output address of a leaf.
    pub fn output(&self, word: u64) -> u64 {
        self.regime.output_address(self.level, word).0
    }

    /// The bits of a leaf that hold output address.
    pub fn address_bits(&self) -> u64 {
        let high = match (self.regime.ds, self.regime.lpa) {
            (true, _) => 0b11 << 8,
            (_, true) => 0b1111 << 12,
            _ => 0,
        };
        self.regime.level(self.level).leaf_address | high
    }

    /// The bits in which leaves differ, of those that `__contpte_try_fold()` compares: all but
    /// address, AF, AP\[2\], the dirty bit and the Contiguous bit itself.
    pub fn differing(&self) -> u64 {
        let ignored = bits::AF | bits::RDONLY | bits::DIRTY | bits::CONT | self.address_bits();
        self.differing_in(!ignored)
    }

    /// The bits of `mask` in which leaves differ.
    pub fn differing_in(&self, mask: u64) -> u64 {
        let all = self.leaves().fold((0, u64::MAX), |(or, and), (_, pte)| {
            (or | pte.0, and & pte.0)
        });
        match all {
            (_, u64::MAX) => 0,
            (or, and) => (or ^ and) & mask,
        }
    }

    /// Returns whether the leaves' output addresses are as far apart as they are.
    pub fn consecutive(&self) -> bool {
        if self.is_run {
            return true;
        }
        let mut bases = self
            .leaves()
            .map(|(at, pte)| self.output(pte.0).wrapping_sub(at as u64 * self.step()));
        let first = bases.next();
        bases.all(|base| Some(base) == first)
    }

    /// Returns whether the first leaf's output address fits a group that is aligned.
    pub fn aligned(&self) -> bool {
        let size = self.step() * self.words.len() as u64;
        self.leaves().next().is_none_or(|(at, pte)| {
            let base = self.output(pte.0).wrapping_sub(at as u64 * self.step());
            base % size == 0
        })
    }
}

/// The fields in `bits`, by name.
pub(crate) fn field_names(mut differing: u64) -> String {
    let mut names = Vec::new();
    for (mask, name) in NAMED.iter().chain(&NAMED_SOFTWARE) {
        if differing & mask != 0 {
            names.push((*name).to_owned());
            differing &= !mask;
        }
    }
    if differing != 0 {
        names.push(format!("bits {differing:#x}"));
    }
    names.join(", ")
}

/// The group that `va` lies in: at the level where its translation ends.
pub(crate) fn group_at<'m, M: PhysMemory + ?Sized>(
    memory: &'m M,
    regime: &'m Regime,
    va: u64,
) -> Result<Group<'m>, String> {
    let entry = match lookup(memory, regime, VirtualAddress(va)) {
        Lookup::Mapped { entry, .. }
        | Lookup::NotMapped { entry }
        | Lookup::BeyondOutputSize { entry } => entry,
        Lookup::OutsideRegime => return Err(format!("VA 0x{va:016x} is not in this half")),
        Lookup::Problem(problem) => return Err(problem.to_string()),
    };
    let level = entry.descriptor.level;
    let window = regime.contiguous_entries(level).unwrap_or(16);
    let start = entry.index / window * window;
    let count = window.min(regime.entries(level) - start);
    let at = PhysicalAddress(entry.table.0 + start as u64 * 8);
    let words = memory
        .words(at, count)
        .ok_or_else(|| format!("the table at {} cannot be read", entry.table))?;
    let before = (entry.index - start) as u64 * regime.entry_size(level);
    Ok(Group::new(
        (regime, level),
        entry.va.0.wrapping_sub(before),
        (entry.table.0, start),
        words,
    ))
}
