// SPDX-License-Identifier: GPL-2.0-only
//! Data for the page's script: the report again, in numbers where there may be many.
//!
//! Addresses are page numbers from the half's first address, since a number in JSON is exact below 2^53 only. What would
//! stand many times (a reason, a pattern of pages) is in a list and goes by its place in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use serde::Serialize;
use stage1::Half;
use verdict::rules::RULES;
use verdict::{
    BlockState, Finding, Hex, KernelVerdict, Outcome, ProcessVerdict, Report, RuleId, Severity,
    Step,
};

use super::attributes::{Attributes, State};
use super::folios::FolioKind;
use super::pack::Packed;
use super::words::Words;
use super::Pages;

/// Everything.
#[derive(Serialize)]
pub(crate) struct Data<'r> {
    states: Vec<Named>,
    block_states: Vec<Named>,
    rules: BTreeMap<String, &'static str>,
    attributes: &'r [Attributes],
    folio_kinds: &'r [FolioKind],
    reasons: Vec<String>,
    patterns: Vec<String>,
    rule_sets: Vec<String>,
    steps: Vec<StepData<'r>>,
}

#[derive(Serialize)]
struct Named {
    mark: char,
    text: &'static str,
}

#[derive(Serialize)]
struct StepData<'r> {
    workload: &'r str,
    step: &'r str,
    outcome: Outcome,
    /// Ranges of pages that the step was about, as far as that is known.
    about: Vec<(u64, u64)>,
    spaces: Vec<Space<'r>>,
    not_judged: Vec<&'r str>,
}

/// An address space.
#[derive(Serialize)]
struct Space<'r> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// As it is shown, since the script sets it as it is.
    name: String,
    first: Hex,
    page_size: u64,
    block_pages: u64,
    vmas: Vec<VmaData<'r>>,
    /// Rows of blocks: blocks from the end of the row before (signed), blocks, state, reason + 1 (0: none), pattern, rules.
    rows: String,
    words: Option<String>,
    folios: Option<String>,
    regions: Vec<Region<'r>>,
    /// For the kernel half: bytes mapped in each region, by the size of the mapping.
    mapped: Vec<(String, Vec<(&'r str, u64)>)>,
    entries: u64,
    left_out: u64,
    findings: Vec<FindingData<'r>>,
    unlisted: u64,
    notes: Vec<String>,
    not_judged: Vec<&'r str>,
}

/// A part of the kernel half.
#[derive(Serialize)]
struct Region<'r> {
    name: &'r str,
    start: u64,
    end: u64,
}

#[derive(Serialize)]
struct VmaData<'r> {
    start: u64,
    end: u64,
    permissions: &'r str,
    name: String,
    mapped: u64,
    contiguous: u64,
    largest_run: u64,
    orders: &'r BTreeMap<i8, u64>,
    /// Bytes mapped, by order of the folios.
    folios: &'r BTreeMap<u8, u64>,
    /// How many of the rows of blocks are its own.
    rows: usize,
}

#[derive(Serialize)]
struct FindingData<'r> {
    /// Its number in the list above the picture.
    number: usize,
    rule: String,
    error: bool,
    /// First page and the page behind the last, of each place that is listed; none where it is of no entry.
    places: Vec<(u64, u64)>,
    message: &'r str,
}

/// Things that go by their place in a list.
#[derive(Default)]
struct List {
    all: Vec<String>,
    places: HashMap<String, u64>,
}

impl List {
    fn place(&mut self, text: &str) -> u64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

const BLOCK_STATES: [(BlockState, char, &str); 9] = [
    (BlockState::Broken, '!', "broken"),
    (BlockState::Folded, '=', "folded"),
    (BlockState::Eligible, 'e', "could be folded"),
    (BlockState::NotEligible, 'o', "cannot be folded"),
    (BlockState::Partial, 'p', "in part"),
    (BlockState::Away, 's', "away"),
    (BlockState::Block, '#', "part of a larger block"),
    (BlockState::ContiguousBlock, 'C', "in contiguous blocks"),
    (BlockState::Empty, '.', "empty"),
];

/// Returns whether a finding is about entries: a kernel report and a lost process are not.
pub(crate) fn is_of_entries(finding: &Finding) -> bool {
    finding.sequence.is_none() && finding.end > finding.va
}

struct Builder {
    reasons: List,
    patterns: List,
    rule_sets: List,
    numbers: usize,
}

impl<'r> Data<'r> {
    pub fn new(report: &'r Report, pages: &'r Pages) -> Data<'r> {
        let mut builder = Builder {
            reasons: List::default(),
            patterns: List::default(),
            rule_sets: List::default(),
            numbers: 0,
        };
        let steps = report.steps.iter().enumerate();
        let steps = steps
            .map(|(at, step)| builder.step(at, step, pages))
            .collect();
        let named = |(_, mark, text): &(_, char, &'static str)| Named { mark: *mark, text };
        Data {
            states: State::ALL
                .iter()
                .map(|(_, mark, text)| Named { mark: *mark, text })
                .collect(),
            block_states: BLOCK_STATES.iter().map(named).collect(),
            rules: RULES
                .iter()
                .map(|rule| (rule.name.to_owned(), rule.title))
                .collect(),
            attributes: &pages.dictionary.all,
            folio_kinds: &pages.folio_kinds.all,
            reasons: builder.reasons.all,
            patterns: builder.patterns.all,
            rule_sets: builder.rule_sets.all,
            steps,
        }
    }

    /// Writes it as JSON that may stand in a `<script>`: there is no `<` in it, whatever the guest's names are.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(WithoutLess(out), self).map_err(io::Error::from)
    }
}

/// Writes `<` as JSON's `\u003c`. It stands in strings only.
struct WithoutLess<'w>(&'w mut dyn Write);

impl Write for WithoutLess<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (at, part) in bytes.split(|byte| *byte == b'<').enumerate() {
            if at > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Builder {
    fn step<'r>(&mut self, at: usize, step: &'r Step, pages: &'r Pages) -> StepData<'r> {
        let mut spaces: Vec<Space<'r>> = Vec::new();
        for process in &step.processes {
            let words = pages.words(at, Half::Lower, process.root.0);
            spaces.push(self.process(process, words));
        }
        if let Some(kernel) = &step.kernel {
            let words = pages.kernel(at);
            let (first, page_size) = words.map_or((0, 4096), |words| (words.first, words.granule));
            spaces.push(Space {
                pid: None,
                name: "kernel".into(),
                first: Hex(first),
                page_size,
                block_pages: block_pages(page_size),
                vmas: Vec::new(),
                rows: String::new(),
                words: words.map(|words| words.packed.text()),
                folios: None,
                regions: words.map_or(Vec::new(), regions),
                mapped: mapped(kernel),
                entries: words.map_or(0, |words| words.entries),
                left_out: words.map_or(0, |words| words.left_out),
                findings: self.findings(&kernel.findings, first, page_size),
                unlisted: kernel.dropped.values().sum(),
                notes: kernel.notes.clone(),
                not_judged: reasons(&kernel.not_judged),
            });
        }
        let size = step.processes.first().map_or(4096, |it| it.page_size);
        let about = step.expectations.iter();
        let about = about.map(|it| (it.start / size, it.end.div_ceil(size)));
        let about: BTreeSet<(u64, u64)> = about.collect();
        StepData {
            about: about.into_iter().collect(),
            workload: &step.workload,
            step: &step.step,
            outcome: step.outcome(),
            spaces,
            not_judged: reasons(&step.not_judged),
        }
    }

    fn process<'r>(&mut self, process: &'r ProcessVerdict, words: Option<&Words>) -> Space<'r> {
        let size = process.page_size;
        let vmas = process.vmas.iter().map(|vma| VmaData {
            start: vma.start.0 / size,
            end: vma.end.0 / size,
            permissions: &vma.permissions,
            name: vma.name.to_string(),
            mapped: vma.mapped,
            contiguous: vma.contiguous,
            largest_run: vma.largest_run,
            orders: &vma.orders,
            folios: &vma.folios,
            rows: vma.rows.len(),
        });
        let errors = |(rule, _): &(&RuleId, &u64)| !rule.is_information();
        Space {
            pid: Some(process.process.pid),
            name: process.process.name.to_string(),
            first: Hex(0),
            page_size: size,
            block_pages: process.block_size / size,
            vmas: vmas.collect(),
            rows: self.rows(process),
            words: words.map(|words| words.packed.text()),
            folios: words.and_then(|words| Some(words.folios.as_ref()?.text())),
            regions: Vec::new(),
            mapped: Vec::new(),
            entries: words.map_or(0, |words| words.entries),
            left_out: words.map_or(0, |words| words.left_out),
            findings: self.findings(&process.findings, 0, size),
            unlisted: process.dropped.iter().filter(errors).map(|it| it.1).sum(),
            notes: process.notes.clone(),
            not_judged: reasons(&process.not_judged),
        }
    }

    fn rows(&mut self, process: &ProcessVerdict) -> String {
        let mut packed = Packed::default();
        let mut end = 0;
        for row in process.vmas.iter().flat_map(|vma| &vma.rows) {
            let state = BLOCK_STATES.iter().position(|it| it.0 == row.state);
            let reason = row.reason.as_ref();
            let reason = reason.map_or(0, |reason| self.reasons.place(&reason.text()) + 1);
            let rules: Vec<String> = row.rules.iter().map(RuleId::to_string).collect();
            // A block that lies in two VMAs has a row in each.
            packed.signed((row.va.0 / process.block_size).wrapping_sub(end) as i64);
            packed.number(row.blocks);
            packed.number(state.unwrap_or_default() as u64);
            packed.number(reason);
            packed.number(self.patterns.place(&row.pages));
            packed.number(self.rule_sets.place(&rules.join(" ")));
            end = row.end.0 / process.block_size;
        }
        packed.text()
    }

    fn findings<'r>(&mut self, all: &'r [Finding], first: u64, size: u64) -> Vec<FindingData<'r>> {
        let page = |va: Hex| va.0.saturating_sub(first) / size;
        let number = |finding: &'r Finding| {
            let more = finding.more.iter().map(|place| (place.va, place.end));
            let places = std::iter::once((finding.va, finding.end)).chain(more);
            let places = places.filter(|_| is_of_entries(finding));
            let number = self.numbers;
            self.numbers += 1;
            FindingData {
                number,
                rule: finding.rule.to_string(),
                error: finding.severity == Severity::Error,
                places: places
                    .map(|(va, end)| (page(va), page(Hex(end.0.saturating_sub(1))) + 1))
                    .collect(),
                message: &finding.message,
            }
        };
        all.iter().map(number).collect()
    }
}

fn reasons(all: &[verdict::NotJudged]) -> Vec<&str> {
    all.iter().map(|it| it.reason.as_str()).collect()
}

fn mapped(kernel: &KernelVerdict) -> Vec<(String, Vec<(&str, u64)>)> {
    let regions = kernel.mapped.iter();
    regions
        .map(|(region, sizes)| {
            let sizes = sizes.iter().map(|(name, bytes)| (name.as_str(), *bytes));
            (region.to_string(), sizes.collect())
        })
        .collect()
}

fn regions(words: &Words) -> Vec<Region<'_>> {
    let page = |va: u64| va.saturating_sub(words.first) / words.granule;
    let regions = words.regions.iter();
    regions
        .map(|(name, start, end)| Region {
            name,
            start: page(*start),
            end: page(*end),
        })
        .collect()
}

/// Pages per level-3 group: `CONT_PTES` of asm/pgtable-hwdef.h.
fn block_pages(page_size: u64) -> u64 {
    match page_size {
        4096 => 16,
        16384 => 128,
        _ => 32,
    }
}
