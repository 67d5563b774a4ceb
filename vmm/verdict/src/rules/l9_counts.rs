//! The half of L9 that counts: the entries of all address spaces against the counts of the pages that they map.

use std::collections::BTreeSet;
use std::ops::Range;

use linux::folio::{NoPage, Page};
use linux::pte::Pte;
use stage1::{
    walk, Descend, Level, PhysMemory, PhysicalAddress, Regime, Table, Visitor, WalkProblem,
};

use super::{group_at, remark, Ranges};
use crate::finding::{Finding, Findings, Hex};
use crate::folios::Folios;
use crate::group::Group;
use crate::{NotJudged, ProcessVerdict, RuleId, Severity};

/// All address spaces of the guest.
#[derive(Clone, Copy, Debug)]
pub struct Everyone<'a> {
    /// Physical addresses of their first tables.
    pub tables: &'a [u64],
    /// Why these may not be all, if so.
    pub incomplete: Option<&'a str>,
}

/// Holds the counts of every page that one of the judged processes maps to the entries of all address spaces. The
/// findings go to the first process that maps it.
///
/// All must be of one instant. `regimes` are those of the verdicts, in the same order. A page that an entry maps in which
/// another rule is broken is left alone.
pub fn judge_counts<M: PhysMemory + ?Sized>(
    memory: &M,
    regimes: &[Regime],
    everyone: Everyone<'_>,
    folios: &dyn Folios,
    verdicts: &mut [ProcessVerdict],
) {
    let Some(regime) = regimes.first() else {
        return;
    };
    let entries = Entries::of(memory, regime, everyone.tables);
    let incomplete = everyone
        .incomplete
        .map(str::to_owned)
        .or(entries.problem.clone());
    let page_size = regime.granule.bytes();
    let mut judged = Judged::new(verdicts, regimes, page_size);
    let mut found: Vec<(usize, u64, String)> = Vec::new();
    let (mut unread, mut uncounted, mut wild) = (0u64, 0u64, 0u64);
    let mut last_folio = None;
    while let Some((pfn, va, owner)) = judged.next() {
        let page = match folios.page(pfn) {
            Ok(page) => page,
            Err(NoPage::Wild(_)) => {
                // Told of at its entry; a block of a wrong table may be larger than all memory.
                wild += 1;
                if wild > MOST_WILD {
                    break;
                }
                continue;
            }
            Err(NoPage::Unreadable(_)) => {
                unread += 1;
                continue;
            }
        };
        let mut says = Vec::new();
        compare(
            &entries,
            page,
            last_folio != Some(page.head),
            |what, counted, entries| {
                // Entries that nobody counted are wrong whoever else there is.
                if counted > entries && incomplete.is_some() {
                    uncounted += 1;
                } else if counted != entries {
                    says.push(format!("{what} {counted}, entries {entries}"));
                }
            },
        );
        last_folio = Some(page.head);
        if !says.is_empty() {
            let message = format!(
                "page frame 0x{pfn:x}, of the folio of order {} at 0x{:x}, is mapped at VA 0x{va:016x}, and its counts are not its entries in the {} address spaces: {}",
                page.order,
                page.head,
                everyone.tables.len(),
                says.join("; ")
            );
            found.push((owner, va, message));
        }
    }
    tell(memory, regimes, verdicts, found);
    let Some(first) = verdicts.first_mut() else {
        return;
    };
    if unread > 0 {
        let reason =
            format!("L9 was not judged for {unread} pages whose struct page could not be read");
        first.not_judged.push(NotJudged { reason });
    }
    if uncounted > 0 {
        let why = incomplete.unwrap_or_default();
        let reason = format!("{uncounted} counts of pages are above their entries, and L9 was not judged for them: {why}");
        first.not_judged.push(NotJudged { reason });
    }
}

/// Pages that make no sense, of which the first are told of: after so many nothing is counted any more.
const MOST_WILD: u64 = 1 << 20;

/// Each count of a page and, where it is the first seen of it, of its folio.
fn compare(entries: &Entries, page: Page, first: bool, mut differ: impl FnMut(&str, i64, i64)) {
    let folio = page.head..page.head + page.pages();
    // The huge zero page, and what a driver maps by blocks, is not counted.
    let blocks = entries.blocks.within(&folio);
    if page.kind == linux::folio::Kind::Unowned && blocks > 0 && !page.hugetlb {
        return;
    }
    if let Some(counted) = page.mapcount {
        let single = entries.pages.within(&(page.pfn..page.pfn + 1));
        differ("mapcount", counted, single as i64);
    }
    let (Some(large), true) = (page.large, first) else {
        return;
    };
    let pages = entries.pages.within(&folio);
    if page.hugetlb {
        let whole = (pages + blocks) / page.pages();
        differ("mapcount of the hugetlb folio", large, whole as i64);
        differ("entire mapcount", page.entire, whole as i64);
        return;
    }
    // A block maps the folio, or as much of it as a block can.
    let whole = entries.block_maps(&folio);
    differ("mapcount of the folio", large, (pages + whole) as i64);
    differ("entire mapcount", page.entire, whole as i64);
}

/// The findings, with the words of their groups.
fn tell<M: PhysMemory + ?Sized>(
    memory: &M,
    regimes: &[Regime],
    verdicts: &mut [ProcessVerdict],
    found: Vec<(usize, u64, String)>,
) {
    let mut broken = vec![Vec::new(); verdicts.len()];
    let mut lists: Vec<Findings> = verdicts.iter().map(|_| Findings::new()).collect();
    for (owner, va, message) in found {
        let verdict = &mut verdicts[owner];
        // Walked a moment ago, so it can be read again.
        let Ok(group) = group_at(memory, &regimes[owner], va) else {
            continue;
        };
        let remarks = remark(RuleId::L9, &message, verdict.release);
        let finding = group.finding(RuleId::L9, Some(&verdict.process), message);
        let end = va + verdict.page_size;
        broken[owner].push((RuleId::L9, va..end));
        lists[owner].add(Finding {
            va: Hex(va),
            end: Hex(end),
            remarks,
            ..finding
        });
    }
    for ((verdict, list), broken) in verdicts.iter_mut().zip(lists).zip(broken) {
        verdict.mark(broken);
        for (rule, count) in list.dropped() {
            *verdict.dropped.entry(rule).or_default() += count;
        }
        for (cause, count) in list.beyond {
            *verdict.beyond.entry(cause).or_default() += count;
        }
        verdict.findings.extend(list.list);
    }
}

/// The pages that the judged processes map, each once, in order.
struct Judged {
    /// First page frame number, first VA, pages, whose; by page frame number.
    runs: Vec<(u64, u64, u64, usize)>,
    /// Page frame numbers of those in which another rule is broken.
    broken: Ranges,
    at: usize,
    next: u64,
    page_size: u64,
}

impl Judged {
    fn new(verdicts: &[ProcessVerdict], regimes: &[Regime], page_size: u64) -> Judged {
        let mut roots = BTreeSet::new();
        let (mut runs, mut broken) = (Vec::new(), Vec::new());
        for (owner, verdict) in verdicts.iter().enumerate() {
            if !roots.insert(verdict.root.0) {
                continue;
            }
            for mapping in verdict.mappings.iter().filter(|mapping| mapping.folio) {
                let pfn = mapping.pa / page_size;
                runs.push((pfn, mapping.va, mapping.bytes / page_size, owner));
            }
            let wrong = verdict.findings.iter();
            let wrong = wrong.filter(|finding| finding.severity == Severity::Error);
            broken.extend(wrong.flat_map(|finding| frames(&regimes[owner], finding)));
        }
        runs.sort_unstable();
        let broken = Ranges::new(broken);
        Judged {
            runs,
            broken,
            at: 0,
            next: 0,
            page_size,
        }
    }

    fn next(&mut self) -> Option<(u64, u64, usize)> {
        loop {
            let &(first, va, pages, owner) = self.runs.get(self.at)?;
            let pfn = self.next.max(first);
            if pfn >= first + pages {
                self.at += 1;
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

/// All entries that map folios, by page frame number.
#[derive(Debug, Default)]
struct Entries {
    pages: Cover,
    blocks: Cover,
    /// Each block: its first page frame number.
    starts: Vec<u64>,
    problem: Option<String>,
}

/// How often each page frame is covered: ranges that do not overlap, with their count and the sum of all before them.
#[derive(Debug, Default)]
struct Cover(Vec<(Range<u64>, u64, u64)>);

impl Cover {
    fn new(runs: Vec<Range<u64>>) -> Cover {
        let mut edges: Vec<(u64, i64)> = Vec::with_capacity(2 * runs.len());
        for run in runs {
            edges.push((run.start, 1));
            edges.push((run.end, -1));
        }
        edges.sort_unstable();
        let (mut depth, mut from, mut sum) = (0i64, 0, 0);
        let mut cover = Vec::new();
        for (at, step) in edges {
            if at > from && depth > 0 {
                cover.push((from..at, depth as u64, sum));
                sum += (at - from) * depth as u64;
            }
            from = at;
            depth += step;
        }
        Cover(cover)
    }

    /// Entries on the pages below `pfn`.
    fn below(&self, pfn: u64) -> u64 {
        let at = self.0.partition_point(|(range, ..)| range.start < pfn);
        at.checked_sub(1).map_or(0, |at| {
            let (range, count, before) = &self.0[at];
            before + (pfn.min(range.end) - range.start) * count
        })
    }

    /// Entries on the pages of a range.
    fn within(&self, range: &Range<u64>) -> u64 {
        self.below(range.end) - self.below(range.start)
    }
}

impl Entries {
    fn of<M: PhysMemory + ?Sized>(memory: &M, regime: &Regime, tables: &[u64]) -> Entries {
        let mut collect = Collect {
            regime: *regime,
            pages: Vec::new(),
            blocks: Vec::new(),
            problem: None,
        };
        for &table in tables {
            let regime = Regime {
                root: PhysicalAddress(table),
                ..*regime
            };
            collect.regime = regime;
            walk(memory, &regime, regime.first, regime.last, &mut collect);
        }
        let mut starts: Vec<u64> = collect.blocks.iter().map(|range| range.start).collect();
        starts.sort_unstable();
        Entries {
            pages: Cover::new(collect.pages),
            blocks: Cover::new(collect.blocks),
            starts,
            problem: collect.problem,
        }
    }

    /// Blocks that begin in a folio.
    fn block_maps(&self, folio: &Range<u64>) -> u64 {
        let below = |pfn| self.starts.partition_point(|start| *start < pfn);
        (below(folio.end) - below(folio.start)) as u64
    }
}

struct Collect {
    regime: Regime,
    pages: Vec<Range<u64>>,
    blocks: Vec<Range<u64>>,
    problem: Option<String>,
}

impl<'m> Visitor<'m> for Collect {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let regime = &self.regime;
        let group = Group {
            regime,
            level: table.level,
            va: table.va_of(0, regime).0,
            table: table.address.0,
            index: 0,
            words: table.words,
        };
        let size = regime.granule.bytes();
        let (last, pages) = (table.level == Level::L3, group.step() / size);
        for (_, pte) in group.present().filter(|(_, pte)| counted(*pte)) {
            let pfn = group.output(pte.0) / size;
            let list = if last {
                &mut self.pages
            } else {
                &mut self.blocks
            };
            match list.last_mut().filter(|range| last && range.end == pfn) {
                Some(range) => range.end += pages,
                None => list.push(pfn..pfn + pages),
            }
        }
        Descend::Into
    }

    fn problem(&mut self, problem: &WalkProblem) {
        self.problem.get_or_insert_with(|| problem.to_string());
    }
}

/// Whether the kernel counts an entry at all.
fn counted(pte: Pte) -> bool {
    !pte.special() && !pte.devmap()
}
