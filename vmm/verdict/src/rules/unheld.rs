// SPDX-License-Identifier: GPL-2.0-only
//! Folios of ranges that a checkpoint calls unheld, each once, also if several judged processes map it.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use linux::folio::NoPage;
use linux::pte::Pte;
use stage1::{
    walk, Descend, Level, PhysMemory, PhysicalAddress, Regime, Table, Visitor, WalkProblem,
};

use super::checks::CHECKS;
use super::rule::RuleId;
use crate::check::{ByLock, Unheld, UnheldSeen};
use crate::entries::{Cover, Entries};
use crate::group::Group;
use crate::ProcessVerdict;
use linux::structures::Folios;

/// A rule, the place of the verdict that it goes to, the virtual address, and the sentence.
pub(super) type Found = (RuleId, usize, u64, String);

/// The entries of all address spaces.
pub(super) struct All<'a, M: ?Sized> {
    pub memory: &'a M,
    pub regime: &'a Regime,
    /// Physical addresses of their first tables.
    pub tables: &'a [u64],
    pub entries: &'a Entries,
    /// Reason why other address spaces may have entries that were not seen; `None` if there is none.
    pub incomplete: Option<&'a str>,
}

/// Folios that a rule was not judged for, and the reason of the first.
pub(super) type Open = BTreeMap<RuleId, (u64, String)>;

/// Asks the rules of each folio.
pub(super) fn judge<M: PhysMemory + ?Sized>(
    all: &All<'_, M>,
    folios: &dyn Folios,
    verdicts: &[ProcessVerdict],
) -> (Vec<Found>, Open) {
    let (mut found, mut open) = (Vec::new(), Open::new());
    let mut seen = BTreeSet::new();
    let size = all.regime.granule.bytes();
    let words = |pfn: u64| {
        let at = PhysicalAddress(pfn.checked_mul(size)?);
        all.memory.words(at, (size / 8) as usize)
    };
    let has_dirty_entry = |folio: &Range<u64>| has_dirty_entry(all, folio);
    let writable = OnceCell::new();
    let has_writable_entry = |folio: &Range<u64>| {
        let writable = writable.get_or_init(|| writable_entries(all));
        let overlaps = |it: &Range<u64>| it.start < folio.end && folio.start < it.end;
        writable.iter().any(overlaps)
    };
    let asked = verdicts.iter().any(|verdict| !verdict.unheld.is_empty());
    let by_lock = if asked { by_lock(verdicts, size) } else { None };
    let is_charged = |pa: u64| {
        let page = folios.page(pa / size).ok();
        page.and_then(|page| folios.charged(&page)) == Some(true)
    };
    let charges = asked
        && verdicts.iter().any(|verdict| {
            let mut mappings = verdict.mappings.iter().filter(|it| it.folio);
            mappings.any(|it| is_charged(it.pa) || is_charged(it.pa + it.bytes - 1))
        });
    for (owner, verdict) in verdicts.iter().enumerate() {
        for (pfn, va) in mapped(verdict, &verdict.unheld, size) {
            let page = match folios.page(pfn) {
                Ok(page) => page,
                // Told of at its entry.
                Err(NoPage::Wild(_)) => continue,
                Err(NoPage::Unreadable(why)) => {
                    for (rule, _) in &CHECKS.unheld {
                        open.entry(*rule).or_insert((0, why.clone())).0 += 1;
                    }
                    continue;
                }
            };
            if !seen.insert(page.head) {
                continue;
            }
            let unheld = UnheldSeen {
                entries: all.entries,
                folios,
                page,
                va,
                incomplete: all.incomplete,
                by_lock: by_lock.as_ref(),
                charges,
                words: &words,
                has_dirty_entry: &has_dirty_entry,
                has_writable_entry: &has_writable_entry,
            };
            for (rule, check) in &CHECKS.unheld {
                match check(&unheld) {
                    Unheld::Right => {}
                    Unheld::Wrong(message) => found.push((*rule, owner, va, message)),
                    Unheld::NotJudged(why) => open.entry(*rule).or_insert((0, why)).0 += 1,
                }
            }
        }
    }
    (found, open)
}

/// The pages that a process maps in these ranges: page frame number and virtual address.
pub(super) fn mapped<'v>(
    verdict: &'v ProcessVerdict,
    ranges: &'v [Range<u64>],
    size: u64,
) -> impl Iterator<Item = (u64, u64)> + 'v {
    ranges.iter().flat_map(move |range| {
        let mappings = verdict.mappings.iter().filter(|it| it.folio);
        mappings.flat_map(move |mapping| {
            let start = range.start.max(mapping.va);
            let end = range.end.min(mapping.va + mapping.bytes);
            let pages = (start..end.max(start)).step_by(size as usize);
            pages.map(move |va| ((mapping.pa + (va - mapping.va)) / size, va))
        })
    })
}

/// The page frames that the processes map, by whether the VMA there is locked; `None` where the VMAs do not say so.
fn by_lock(verdicts: &[ProcessVerdict], size: u64) -> Option<ByLock> {
    let (mut locked, mut open) = (Vec::new(), Vec::new());
    for verdict in verdicts {
        let ranges = verdict.locked.as_ref()?;
        for mapping in verdict.mappings.iter().filter(|it| it.folio) {
            let frames = |va: Range<u64>| {
                let at = |va: u64| (mapping.pa + (va - mapping.va)) / size;
                at(va.start)..at(va.end)
            };
            let (mut from, end) = (mapping.va, mapping.va + mapping.bytes);
            for range in ranges {
                let (start, stop) = (range.start.max(from), range.end.min(end));
                if start < stop {
                    open.push(frames(from..start));
                    locked.push(frames(start..stop));
                    from = stop;
                }
            }
            open.push(frames(from..end));
        }
    }
    open.retain(|frames| !frames.is_empty());
    Some(ByLock {
        locked: Cover::new(locked),
        open: Cover::new(open),
    })
}

/// Returns whether any address space maps one of these page frames by a dirty entry.
fn has_dirty_entry<M: PhysMemory + ?Sized>(all: &All<'_, M>, folio: &Range<u64>) -> bool {
    let mut found = false;
    each_entry(all, &mut |pte, pages| {
        found |= pte.dirty() && pages.start < folio.end && pages.end > folio.start;
    });
    found
}

/// Returns the page frames that any address space maps by writable entries.
fn writable_entries<M: PhysMemory + ?Sized>(all: &All<'_, M>) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    each_entry(all, &mut |pte, pages| {
        if pte.write() {
            found.push(pages);
        }
    });
    found
}

/// Passes each entry of all address spaces that is present, with its page frames.
fn each_entry<M: PhysMemory + ?Sized>(all: &All<'_, M>, take: &mut dyn FnMut(Pte, Range<u64>)) {
    for &table in all.tables {
        let mut regime = *all.regime;
        regime.root = PhysicalAddress(table);
        let mut look = Look { regime, take };
        walk(all.memory, &regime, regime.first, regime.last, &mut look);
    }
}

struct Look<'f> {
    regime: Regime,
    take: &'f mut dyn FnMut(Pte, Range<u64>),
}

impl<'m> Visitor<'m> for Look<'_> {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let regime = &{ self.regime };
        let group = Group::new(
            (regime, table.level),
            table.va_of(0, regime).0,
            (table.address.0, 0),
            table.words,
        );
        let size = regime.granule.bytes();
        let pages = group.step() / size;
        for word in group.words {
            let pte = Pte(*word);
            let is_leaf = table.level == Level::L3 || group.is_leaf(*word);
            if is_leaf && group.is_present(pte) {
                let pfn = group.output(*word) / size;
                (self.take)(pte, pfn..pfn + pages);
            }
        }
        Descend::Into
    }

    fn problem(&mut self, _: &WalkProblem) {}
}
