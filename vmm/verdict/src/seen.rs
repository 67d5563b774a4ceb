// SPDX-License-Identifier: GPL-2.0-only
//! The results on one process while its tables are walked: rows of blocks, counts, findings.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use linux::pte::Pte;
use linux::vma::{Backing, Vma};
use stage1::Level;

use crate::blocks::{self, BlockRow, BlockState};
use crate::findings::Findings;
use crate::folios::FoliosSeen;
use crate::group::Group;
use crate::mapping::{self, Mapping};
use crate::marks::Marks;
use crate::orders::Newest;
use crate::placement::{vma_at, Placement};
use crate::rules::checks::{Checks, CHECKS};
use crate::rules::eligible;
use crate::{
    EntryCounts, Expected, Finding, Hex, NotJudged, ProcessInput, ProcessVerdict, RuleId,
    VmaVerdict,
};

mod rows;

/// The results so far.
pub(crate) struct Seen<'a> {
    input: &'a ProcessInput<'a>,
    newest: &'a Newest<'a>,
    checks: &'static Checks,
    block: u64,
    members: usize,
    findings: Findings,
    broken: Vec<(RuleId, Range<u64>)>,
    /// The first addresses of those groups of the present table in which the architecture's rules have found something.
    pub of_table: BTreeSet<u64>,
    not_judged: Vec<NotJudged>,
    not_judged_more: u64,
    entries: EntryCounts,
    mappings: Vec<Mapping>,
    vmas: Vec<VmaSeen>,
    /// Room for the text of a block, most of which look like the one before.
    pages: String,
    pub folios: FoliosSeen,
}

#[derive(Default)]
struct VmaSeen {
    rows: Vec<BlockRow>,
    mapped: u64,
    contiguous: u64,
    largest_run: u64,
    orders: BTreeMap<i8, u64>,
    folios: BTreeMap<u8, u64>,
}

/// Reasons that are listed one by one.
const NOT_JUDGED_KEPT: usize = 20;

impl<'a> Seen<'a> {
    pub fn new(input: &'a ProcessInput<'a>, newest: &'a Newest<'a>) -> Seen<'a> {
        // Every granule has groups at level 3.
        let members = input.regime.contiguous_entries(Level::L3).unwrap_or(1);
        Seen {
            input,
            newest,
            checks: &CHECKS,
            block: input.regime.granule.bytes() * members as u64,
            members,
            findings: Findings::new(),
            broken: Vec::new(),
            of_table: BTreeSet::new(),
            not_judged: Vec::new(),
            not_judged_more: 0,
            entries: EntryCounts::default(),
            mappings: Vec::new(),
            vmas: input.vmas.iter().map(|_| VmaSeen::default()).collect(),
            pages: String::new(),
            folios: FoliosSeen::default(),
        }
    }

    pub fn error(&mut self, range: (u64, u64), finding: Finding) {
        self.broken.push((finding.rule, range.0..range.1));
        self.findings.add(finding);
    }

    /// A group of which at least one word is neither zero nor a table descriptor.
    pub fn group(&mut self, group: &Group<'_>, linux: bool) {
        let mut at = 0;
        let vmas = self.input.vmas;
        let mut next = vmas.partition_point(|vma| vma.end <= group.va);
        let inside = vmas
            .get(next)
            .is_some_and(|vma| vma.start <= group.va && group.end() <= vma.end);
        let hugetlb = vmas.get(next).map_or(Some(false), Vma::hugetlb);
        let mut placement = Placement::default();
        while at < group.words.len() {
            let va = group.va_of(at);
            let vma = vmas.get(next).filter(|vma| vma.start <= va);
            // Up to where the VMA, or the gap before it, ends.
            let edge = match (vma, vmas.get(next)) {
                (Some(vma), _) => vma.end,
                (None, Some(after)) => after.start,
                (None, None) => group.end(),
            };
            let until = ((edge - group.va).div_ceil(group.step()) as usize).min(group.words.len());
            let until = until.max(at + 1);
            let mut place = at;
            while place < until {
                let (word, count) = (group.words[place], group.alike(place, until));
                if !group.is_table(word) {
                    let (pte, leaf) = (Pte(word), group.is_leaf(word));
                    let level = group.level.number();
                    self.entries.add(level, (pte, leaf), count as u64);
                    placement.see((place, count), pte, leaf, vma);
                }
                place += count;
            }
            if vma.is_some() {
                self.part(group, at..until, next, inside);
            }
            // A block may be larger than the VMAs that it lies in.
            while vmas
                .get(next)
                .is_some_and(|vma| vma.end <= group.va_of(until))
            {
                next += 1;
            }
            at = until;
        }
        if !linux {
            return;
        }
        let mut broken = Vec::new();
        let mut report = |rule, message| broken.push((rule, 0, message));
        self.checks.group(group, hugetlb, &mut report);
        for (rule, check) in &self.checks.placement {
            let found = check(group, &placement, vmas).into_iter();
            broken.extend(found.map(|(first, message)| (*rule, first, message)));
        }
        let sound = broken.is_empty() && !self.of_table.contains(&group.va);
        for (rule, first, message) in broken {
            self.broken(rule, group, group.va_of(first)..group.end(), message);
        }
        self.folios_of(group, sound);
    }

    /// The folios behind a group's entries, VMA by VMA.
    fn folios_of(&mut self, group: &Group<'_>, sound: bool) {
        let input = self.input;
        if input.structures.is_err() {
            return;
        }
        let mut broken = Vec::new();
        let mut next = input.vmas.partition_point(|vma| vma.end <= group.va);
        while let Some(vma) = input.vmas.get(next).filter(|vma| vma.start < group.end()) {
            let place = |va: u64| (va.saturating_sub(group.va)).div_ceil(group.step()) as usize;
            let members = place(vma.start)..place(vma.end).min(group.words.len());
            let mut report = |rule, at, message| broken.push((rule, at, message));
            let part = (members, vma);
            let orders = self.folios.group(input, group, part, sound, &mut report);
            orders.add_to(&mut self.vmas[next].folios);
            next += 1;
        }
        for (rule, at, message) in broken {
            self.broken(rule, group, at, message);
        }
    }

    /// Judges all folios of the process, once all were seen; returns notes on what was left out.
    pub fn folios(&mut self) -> Vec<String> {
        let entries = (self.entries.swapped, self.entries.moving);
        let any_broken = !self.broken.is_empty();
        let (broken, whole) = self.folios.finish(self.input, entries, any_broken);
        for (rule, message) in broken {
            let process = Some(self.input.process.clone());
            let finding = Finding {
                process,
                ..Finding::new(rule, message)
            };
            self.error((0, 0), finding);
        }
        let reasons = whole.not_judged.into_iter();
        self.not_judged
            .extend(reasons.map(|reason| NotJudged { reason }));
        whole.notes
    }

    /// The places of a group that belong to VMA `index`.
    fn part(&mut self, group: &Group<'_>, members: Range<usize>, index: usize, inside: bool) {
        let vma = &self.input.vmas[index];
        let frames = vma.pfn_mapped() == Some(true) || vma.backing() == Backing::Special;
        let hugetlb = vma.hugetlb();
        let mut mapped = 0;
        let mut contiguous = 0;
        let mut next = members.start;
        while next < members.end {
            let (at, pte) = (next, Pte(group.words[next]));
            let count = group.run(at, members.end);
            next += count;
            if !group.is_leaf(pte.0) {
                continue;
            }
            let bytes = count as u64 * group.step();
            mapped += bytes;
            contiguous += if pte.valid_cont() { bytes } else { 0 };
            let folio = !frames && !pte.special() && !pte.devmap();
            let private = hugetlb == Some(false) && !vma.permissions.shared;
            let new = Mapping {
                pa: group.output(pte.0),
                va: group.va_of(at),
                bytes,
                exclusive: folio && private && pte.write(),
                folio,
                vma: index as u32,
            };
            mapping::push(&mut self.mappings, new);
        }
        self.vmas[index].mapped += mapped;
        self.vmas[index].contiguous += contiguous;
        if group.level == Level::L3 {
            self.pages(group, members, index, inside);
        } else {
            self.upper(group, members, index);
        }
    }

    pub fn finish(mut self, notes: Vec<String>) -> ProcessVerdict {
        let mut seen = std::mem::take(&mut self.vmas);
        for mapping in &self.mappings {
            let run = &mut seen[mapping.vma as usize].largest_run;
            *run = (*run).max(mapping::largest_run(mapping));
        }
        let records = self.newest.records().iter();
        for record in records.filter(|record| record.path.is_mapped_whole()) {
            if let Some(at) = vma_at(self.input.vmas, record.address) {
                let chosen = record.chosen.map_or(-1, |order| order as i8);
                *seen[at].orders.entry(chosen).or_default() += 1;
            }
        }
        let marks = Marks::new(std::mem::take(&mut self.broken));
        let mut vmas = Vec::with_capacity(seen.len());
        for (vma, seen) in self.input.vmas.iter().zip(seen) {
            vmas.push(self.vma(vma, seen, &marks));
        }
        let mut findings = std::mem::replace(&mut self.findings, Findings::new());
        findings
            .list
            .sort_by_key(|finding| (finding.va, finding.rule));
        for finding in &mut findings.list {
            finding.remarks = finding
                .rule
                .rule()
                .remark(&finding.message, self.input.release);
        }
        if self.not_judged_more > 0 {
            let reason = format!("{} more things could not be judged", self.not_judged_more);
            self.not_judged.push(NotJudged { reason });
        }
        ProcessVerdict {
            process: self.input.process.clone(),
            page_size: self.input.regime.granule.bytes(),
            block_size: self.block,
            dropped: findings.dropped(),
            findings: findings.list,
            beyond: findings.beyond,
            not_judged: self.not_judged,
            unsettled: 0,
            lacks: std::mem::take(&mut self.folios.lacks),
            notes,
            entries: self.entries,
            folios: self.folios.orders,
            vmas,
            root: Hex(self.input.regime.root.0),
            mappings: self.mappings,
            once: self.folios.once,
            unheld: stated(self.input, Expected::Unheld),
            exclusive: stated(self.input, Expected::Exclusive),
            locked: locked(self.input.vmas),
            release: self.input.release,
        }
    }

    fn vma(&mut self, vma: &Vma, seen: VmaSeen, marks: &Marks) -> VmaVerdict {
        let mut rows = blocks::complete(seen.rows, (vma.start, vma.end), self.block, self.members);
        marks.mark(&mut rows, vma.start..vma.end, self.block);
        Marks::new(self.open(&rows)).mark(&mut rows, vma.start..vma.end, self.block);
        // A block in which a rule is broken is no remark.
        self.eligible(&rows);
        let mut verdict = VmaVerdict {
            start: Hex(vma.start),
            end: Hex(vma.end),
            permissions: vma.permissions.text(),
            name: vma.name.clone(),
            mapped: seen.mapped,
            contiguous: seen.contiguous,
            largest_run: seen.largest_run,
            blocks: BTreeMap::new(),
            rows,
            orders: seen.orders,
            folios: seen.folios,
        };
        verdict.recount();
        verdict
    }

    /// Judges blocks that could be folded and are not, where a checkpoint states that there are none; where they are.
    fn open(&mut self, rows: &[BlockRow]) -> Vec<(RuleId, Range<u64>)> {
        let ranges = stated(self.input, Expected::ContiguousIfPossible);
        let mut broken = Vec::new();
        if let (false, Err(unknown)) = (ranges.is_empty(), &self.input.structures) {
            // Pages of several folios may be consecutive by chance.
            let why = &unknown.why;
            self.not_judged(format!(
                "what C1 says of blocks that could be contiguous: {why}"
            ));
            return broken;
        }
        for row in rows.iter().filter(|row| row.state == BlockState::Eligible) {
            for range in &ranges {
                // Whole blocks of both.
                let start = row.va.0.max(range.start.next_multiple_of(self.block));
                let end = row.end.0.min(range.end / self.block * self.block);
                if start >= end {
                    continue;
                }
                let part = BlockRow {
                    va: Hex(start),
                    end: Hex(end),
                    blocks: (end - start) / self.block,
                    ..row.clone()
                };
                for (rule, check) in &self.checks.open {
                    let message = check(part.blocks);
                    let process = self.input.process;
                    self.findings
                        .add(Finding::on_row(&part, *rule, process, message));
                    broken.push((*rule, start..end));
                }
            }
        }
        broken
    }

    /// Information on blocks that could be folded and are not.
    fn eligible(&mut self, rows: &[BlockRow]) {
        for row in rows.iter().filter(|row| row.state == BlockState::Eligible) {
            self.findings.add(eligible(self.input.process, row));
        }
    }
}

impl Seen<'_> {
    /// A rule is broken in this group, at these addresses.
    pub fn broken(&mut self, rule: RuleId, group: &Group<'_>, at: Range<u64>, message: String) {
        let process = Some(self.input.process);
        let (va, end) = (Hex(at.start), Hex(at.end));
        let finding = Finding {
            va,
            end,
            ..Finding::on(group, rule, process, message)
        };
        self.error((at.start, at.end), finding);
    }

    /// Something could not be judged.
    pub fn not_judged(&mut self, reason: String) {
        if self.not_judged.len() < NOT_JUDGED_KEPT {
            self.not_judged.push(NotJudged { reason });
        } else {
            self.not_judged_more += 1;
        }
    }
}

/// The ranges of which a checkpoint states this.
fn stated(input: &ProcessInput<'_>, what: Expected) -> Vec<Range<u64>> {
    let ranges = input.expectations.iter();
    let ranges = ranges.filter(|it| it.what == what);
    ranges.map(|it| it.start..it.end).collect()
}

/// The ranges of VMAs with `VM_LOCKED`; `None` where the flags of any are not known (only smaps has them).
fn locked(vmas: &[Vma]) -> Option<Vec<Range<u64>>> {
    let mut locked = Vec::new();
    for vma in vmas {
        if vma.flags.as_ref()?.is_locked() {
            locked.push(vma.start..vma.end);
        }
    }
    Some(locked)
}
