// SPDX-License-Identifier: GPL-2.0-only
//! L17: what the kernel's own getters say of a process, inside, is what its tables and pages are, from outside.

use std::collections::BTreeSet;
use std::ops::Range;

use linux::counted::Size;
use linux::getters::{pagemap, totals, Getters, PageRun};
use linux::pte::{Kind, Pte, SwapKind};
use linux::vma::Vma;
use stage1::{walk, Level, PhysMemory, Regime, Table, Visitor};

use super::l17_pages::{said_of, Counts, Place, Said};
use super::l17_totals::{self, Sums};
use crate::check::Check;
use crate::mapped::of_frames;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};
use crate::rules::tell::tell;
use crate::{ProcessInput, ProcessVerdict, Severity};

pub(crate) static RULE: Rule = Rule {
    name: "L17",
    title: "what the kernel says of memory is what its tables have",
    asserts: "Where the agent was asked to read them while the process stood still. /proc/PID/pagemap: present or swapped, page \
              frame or slot, EXCLUSIVE (mapped once), UFFD_WP and FILE of every page are those of its entry and its struct page. \
              /proc/kpageflags: its bits that are bits of flags, and MMAP, ANON, KSM, COMPOUND_HEAD, COMPOUND_TAIL, HUGE, THP, \
              BUDDY, SLAB, PGTABLE, SWAPCACHE, HWPOISON, NOPAGE, ZERO_PAGE. /proc/kpagecount: entries and blocks that map the page. \
              PAGEMAP_SCAN: PRESENT, SWAPPED, FILE, PFNZERO, HUGE. smaps of each VMA: Rss, Anonymous, KSM, AnonHugePages, \
              ShmemPmdMapped, FilePmdMapped, what is shared, hugetlb, and, of anonymous memory, Swap. nr_anon and \
              nr_anon_partially_mapped of each size in sysfs are the kernel's counters. Left alone: how often pages are mapped that the agent's \
              reading process maps as well, REFERENCED, ACTIVE and LRU of pages that are not anonymous (whoever maps a file's pages marks them as used when it ends), \
              KSM of anonymous pages before 7.2 (6.12 and 6.18 have it for all of them, a fault of theirs), places of which another rule has told, \
              VMAs of page frames and the kernel's own ([vdso]), entries that may be of a page on its way, from 6.15 on what counts \
              each page of a large folio where pages do not show that they count (not with CONFIG_NO_PAGE_MAPCOUNT) and of a block \
              (but where kpagecount differs within it EXCLUSIVE goes by it), EXCLUSIVE of hugetlb (a guess), and of the \
              huge zero page what pagemap, which kernels differ in, makes of it. No getter is asked for bits of the age of \
              entries, or soft-dirty, which arm64 does not have.",
    tier: Tier::Linux,
    sources: &[
        "fs/proc/task_mmu.c, pte_to_pagemap_entry(), pagemap_pmd_range(), pagemap_page_category(), smaps_account()",
        "fs/proc/page.c, stable_page_flags(), kpagecount_read()",
        "mm/huge_memory.c, sum_mthp_stat()",
    ],
    needs: &[Need::VmFlags.less(), Need::Getters.all(), Need::Folios.less(), Need::Sizes.less()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Elsewhere("`judge_getters()`")],
    synthetic: &[
        "l17_each_getter",
        "l17_what_only_one_side_has",
        "l17_totals_and_sizes",
        "l17_what_is_left_alone",
        "l17_whether_a_file_s_page_was_used",
        "l17_exclusive_pages_of_a_block",
    ],
    live: &[
        "test_l17_page_frame",
        "test_l17_no_entry",
        "test_l17_flags",
        "test_l17_sizes",
    ],
};

/// Holds what the kernel says of a process to its tables and pages. What other rules say must be in `verdict` already:
/// of a place one rule tells. `sizes` are the kernel's counters of large anonymous folios, where they are known.
pub fn judge_getters<M: PhysMemory + ?Sized>(
    memory: &M,
    input: &ProcessInput<'_>,
    (getters, sizes): (&Getters, Option<&[Size]>),
    verdict: &mut ProcessVerdict,
) {
    if input.linux_rules().is_err() {
        return;
    }
    let mut told: Vec<Range<u64>> = Vec::new();
    for finding in &verdict.findings {
        if finding.severity == Severity::Error && finding.va < finding.end {
            told.push(finding.va.0..finding.end.0);
        }
    }
    let mut judge = Judge {
        input,
        page: input.regime.granule.bytes(),
        cut: getters.cut.unwrap_or(u64::MAX),
        inside: Inside::new(getters),
        readers: &getters.reader.0,
        sums: input.vmas.iter().map(|_| Sums::default()).collect(),
        unsure: BTreeSet::new(),
        told,
        scanned: 0,
        found: Vec::new(),
    };
    let regime = input.regime;
    walk(memory, regime, regime.first, regime.last, &mut judge);
    judge.only_inside(u64::MAX);
    judge.only_scanned();
    let (mut found, smaps) = (judge.found, totals(&getters.smaps));
    for (at, (vma, sums)) in input.vmas.iter().zip(&judge.sums).enumerate() {
        let range = vma.start..vma.end;
        let unsure = judge.unsure.contains(&at) || overlaps(&judge.told, &range);
        if !unsure && judge_vma(vma) {
            let wrong = l17_totals::check(&smaps, vma, sums);
            found.extend(wrong.map(|message| (vma.start, message)));
        }
    }
    let wrong = sizes.map(|sizes| l17_totals::sizes(&getters.sizes, sizes));
    found.extend(wrong.into_iter().flatten().map(|message| (0, message)));
    if let Some(cut) = getters.cut {
        verdict.notes.push(format!(
            "what the kernel says of memory (L17) was read only up to VA 0x{cut:016x}: it was too much"
        ));
    }
    let found = found.into_iter();
    let found = found.map(|(va, message)| (RULE.id(), 0, va, message));
    let verdicts = std::slice::from_mut(verdict);
    tell(
        memory,
        std::slice::from_ref(regime),
        verdicts,
        found.collect(),
    );
}

fn overlaps(ranges: &[Range<u64>], range: &Range<u64>) -> bool {
    let mut ranges = ranges.iter();
    ranges.any(|it| it.start < range.end && range.start < it.end)
}

/// Returns whether getters report of this VMA what is in its entries.
fn judge_vma(vma: &Vma) -> bool {
    vma.flags.is_some() && !of_frames(vma)
}

/// The getters' values, page by page in the order of addresses.
struct Inside<'a> {
    runs: &'a [[u64; 5]],
    /// Pages of the first run that were passed.
    passed: u64,
    scan: Option<&'a [[u64; 3]]>,
}

impl<'a> Inside<'a> {
    fn new(getters: &'a Getters) -> Self {
        Self {
            runs: &getters.pages.0,
            passed: 0,
            scan: getters.scan.as_ref().map(|scan| &scan.0[..]),
        }
    }

    /// The next page before `end`: its address, and what is said of it.
    fn next_before(&mut self, end: u64, page: u64) -> Option<(u64, Said)> {
        let run = PageRun::from(*self.runs.first()?);
        let address = run.address.saturating_add(self.passed.saturating_mul(page));
        if address >= end {
            return None;
        }
        let entry = run.entry_of(self.passed);
        self.passed += 1;
        if self.passed >= run.pages {
            (self.runs, self.passed) = (&self.runs[1..], 0);
        }
        let said = Said {
            entry,
            flags: run.flags,
            count: run.count,
            scan: None,
        };
        Some((address, said))
    }

    /// The categories of a page.
    fn category(&self, va: u64) -> Option<u64> {
        let scan = self.scan?;
        let at = scan.partition_point(|[_, end, _]| *end <= va);
        let found = scan.get(at).filter(|[start, ..]| *start <= va);
        Some(found.map_or(0, |[.., categories]| *categories))
    }
}

struct Judge<'a> {
    input: &'a ProcessInput<'a>,
    page: u64,
    cut: u64,
    inside: Inside<'a>,
    /// Page frames that the process that has asked maps as well.
    readers: &'a [[u64; 1]],
    sums: Vec<Sums>,
    /// VMAs of which smaps may count something that is not known.
    unsure: BTreeSet<usize>,
    /// Places of which other rules have told.
    told: Vec<Range<u64>>,
    /// Pages of entries that PAGEMAP_SCAN has found.
    scanned: u64,
    found: Vec<(u64, String)>,
}

impl<'m> Visitor<'m> for Judge<'_> {
    /// In the order of addresses, as pagemap is: a table's blocks come between the tables that it leads to.
    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        let regime = self.input.regime;
        for index in range {
            let word = table.words[index];
            if word != 0 {
                self.entry(table.va_of(index, regime).0, table.level, Pte(word), regime);
            }
        }
    }
}

impl Judge<'_> {
    /// The VMA of an address that is judged.
    fn vma(&self, va: u64) -> Option<(usize, &'_ Vma)> {
        let at = self.input.vmas.partition_point(|vma| vma.end <= va);
        let vma = self.input.vmas.get(at).filter(|vma| vma.start <= va)?;
        judge_vma(vma).then_some((at, vma))
    }

    fn entry(&mut self, va: u64, level: Level, pte: Pte, regime: &Regime) {
        let size = regime.entry_size(level);
        self.only_inside(va);
        let Some((at, _)) = self.vma(va) else {
            while self.inside.next_before(va + size, self.page).is_some() {}
            return;
        };
        let vma = &self.input.vmas[at];
        let moving = matches!(pte.kind(), Kind::Swap(entry) if entry.kind() == SwapKind::Special);
        let told = overlaps(&self.told, &(va..va + size));
        if moving || pte.devmap() {
            self.unsure.insert(at);
        }
        let first = regime.output_address(level, pte.0).0 / self.page;
        let folios = self.input.structures.ok().map(|it| it.folios);
        let mut next = self.inside.next_before(va + size, self.page);
        let (mut wrong, mut block) = (None, Counts::default());
        for n in 0..size / self.page {
            let address = va + n * self.page;
            let mut said = Said::default();
            if let Some((_, of)) = next.filter(|(at, _)| *at == address) {
                said = of;
                next = self.inside.next_before(va + size, self.page);
            }
            said.scan = self.inside.category(address);
            self.scanned += u64::from(said.scan.is_some_and(|categories| categories != 0));
            let present = pte.present() && !pte.special() && !pte.devmap();
            let page = folios
                .filter(|_| present)
                .and_then(|it| it.page(first + n).ok());
            let place = Place {
                pte,
                level,
                vma,
                pfn: first + n,
                page: page.as_ref(),
                copied: folios.zip(page.as_ref()).map(|(of, page)| of.copied(page)),
                readers: self.readers.binary_search(&[first + n]).is_ok(),
                release: self.input.release,
            };
            if !self.sums[at].add(&place, self.page) {
                self.unsure.insert(at);
            }
            if !moving && !told && address < self.cut {
                block.add(&place, said);
                wrong = wrong.or_else(|| said_of(&place, said).map(|wrong| (address, wrong)));
            }
        }
        let contradicted = || Some((va + block.wrong()? * self.page, block.text()?));
        let wrong = wrong.or_else(contradicted);
        self.found.extend(wrong.map(|(va, wrong)| {
            let message = format!("VA 0x{va:016x}, entry 0x{:016x}: {wrong}", pte.0);
            (va, message)
        }));
    }

    /// Pages before `end` that no entry is for.
    fn only_inside(&mut self, end: u64) {
        while let Some((va, said)) = self.inside.next_before(end, self.page) {
            let something = said.entry & (pagemap::PRESENT | pagemap::SWAP) != 0;
            let page = va..va + self.page;
            if something && self.vma(va).is_some() && !overlaps(&self.told, &page) {
                self.found.push((
                    va,
                    format!(
                        "VA 0x{va:016x}: pagemap says 0x{:016x}, and there is no entry",
                        said.entry
                    ),
                ));
            }
        }
    }

    /// Pages that PAGEMAP_SCAN has found, and that no entry is for: as many as there are more of them.
    fn only_scanned(&mut self) {
        let judged = self.input.vmas.iter().filter(|vma| judge_vma(vma));
        let scan = self.inside.scan.unwrap_or_default();
        let mut pages = 0;
        for vma in judged {
            let from = scan.partition_point(|[_, end, _]| *end <= vma.start);
            let regions = scan[from..]
                .iter()
                .take_while(|[start, ..]| *start < vma.end);
            let bytes = regions.map(|[start, end, _]| end.min(&vma.end) - start.max(&vma.start));
            pages += bytes.sum::<u64>() / self.page;
        }
        if pages > self.scanned && self.told.is_empty() {
            let more = pages - self.scanned;
            let message =
                format!("PAGEMAP_SCAN finds {pages} pages, and {more} of them have no entry");
            self.found.push((0, message));
        }
    }
}
