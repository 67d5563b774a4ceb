// SPDX-License-Identifier: GPL-2.0-only
//! The pages that the judged processes map, each once, in order: for L9's counts.

use std::collections::BTreeSet;
use std::ops::Range;

use linux::pte::Pte;
use stage1::{Level, Regime};

use crate::entries::Entries;
use crate::finding::Finding;
use crate::ranges::Ranges;
use crate::{ProcessVerdict, Severity};

/// Those pages, one after the other.
pub(super) struct Judged {
    /// First page frame number, first VA, pages, whose; by page frame number.
    runs: Vec<(u64, u64, u64, usize)>,
    /// Page frame numbers of those in which another rule is broken.
    broken: Ranges,
    /// Page frames that are folios of one page, and mapped once by their own count and by the entries: all is well with
    /// them. In order; none overlap.
    well: Vec<Range<u64>>,
    well_at: usize,
    /// How many of these are anonymous, of shmem, and of files, shmem's too.
    pub(super) well_of: (i64, i64, i64),
    at: usize,
    next: u64,
    page_size: u64,
}

impl Judged {
    pub(super) fn new(
        verdicts: &[ProcessVerdict],
        regimes: &[Regime],
        page_size: u64,
        entries: &Entries,
    ) -> Judged {
        let mut roots = BTreeSet::new();
        let (mut runs, mut broken, mut once) = (Vec::new(), Vec::new(), [const { Vec::new() }; 4]);
        for (owner, verdict) in verdicts.iter().enumerate() {
            if !roots.insert(verdict.root.0) {
                continue;
            }
            for mapping in verdict.mappings.iter().filter(|mapping| mapping.folio) {
                let pfn = mapping.pa / page_size;
                runs.push((pfn, mapping.va, mapping.bytes / page_size, owner));
            }
            for (all, own) in once.iter_mut().zip(&verdict.once) {
                all.extend_from_slice(own);
            }
            let wrong = verdict.findings.iter();
            let wrong = wrong.filter(|finding| finding.severity == Severity::Error);
            broken.extend(wrong.flat_map(|finding| frames(&regimes[owner], finding)));
        }
        runs.sort_unstable();
        let broken = Ranges::new(broken);
        let wells = once.map(|once| {
            let mut well = entries.pages.once_within(once);
            well.retain(|range| entries.blocks.within(range) == 0);
            well
        });
        let count = |well: &[Range<u64>]| well.iter().map(|it| (it.end - it.start) as i64).sum();
        let [anonymous, shmem, file, _] = &wells;
        let well_of = (count(anonymous), count(shmem), count(shmem) + count(file));
        let mut well = wells.concat();
        well.sort_unstable_by_key(|range| range.start);
        Judged {
            runs,
            broken,
            well,
            well_at: 0,
            well_of,
            at: 0,
            next: 0,
            page_size,
        }
    }

    /// How many pages follow in the run at hand.
    pub(super) fn rest(&self) -> u64 {
        let run = self.runs.get(self.at);
        run.map_or(0, |(first, _, pages, _)| first + pages - self.next)
    }

    /// Leaves out so many of these.
    pub(super) fn skip(&mut self, pages: u64) {
        self.next += pages;
    }

    /// The next one's page frame number, an address of it, and which process's.
    pub(super) fn next(&mut self) -> Option<(u64, u64, usize)> {
        loop {
            let &(first, va, pages, owner) = self.runs.get(self.at)?;
            let pfn = self.next.max(first);
            if pfn >= first + pages {
                self.at += 1;
                continue;
            }
            while self
                .well
                .get(self.well_at)
                .is_some_and(|well| well.end <= pfn)
            {
                self.well_at += 1;
            }
            if let Some(well) = self.well.get(self.well_at).filter(|well| well.start <= pfn) {
                self.next = well.end;
                continue;
            }
            self.next = pfn + 1;
            let here = pfn..pfn + 1;
            if self.broken.touching(&here).next().is_none() {
                return Some((pfn, va + (pfn - first) * self.page_size, owner));
            }
        }
    }
}

/// The page frames that the entries of a finding's group map.
fn frames<'f>(regime: &'f Regime, finding: &'f Finding) -> impl Iterator<Item = Range<u64>> + 'f {
    let size = regime.granule.bytes();
    let level = Level::from_number(finding.level);
    let words = finding.words.iter().filter(|word| Pte(word.0).present());
    words.filter_map(move |word| {
        let level = level?;
        let pfn = regime.output_address(level, word.0).0 / size;
        Some(pfn..pfn + regime.entry_size(level) / size)
    })
}
