// SPDX-License-Identifier: GPL-2.0-only
//! The upper half: the architecture's rules, and what Linux says of its own memory where the
//! layout is known for sure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;
use stage1::{
    lookup, walk, Checker, Descend, Lookup, PhysMemory, Regime, Shown, Table, Violation,
    VirtualAddress, Visitor, WalkProblem,
};

use crate::cause::{self, Cause};
use crate::check::KernelSeen;
use crate::findings::Findings;
use crate::group::Group;
use crate::kernel_layout::{KernelLayout, LinearBit, Region};
use crate::rules;
use crate::rules::checks::CHECKS;
use crate::rules::without::without;
use crate::rules::Need;
use crate::violations::{finding_of, problem_of};
use crate::{Finding, Lack, NotJudged, RuleId};

/// The upper half, judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KernelVerdict {
    /// Findings by address.
    pub findings: Vec<Finding>,
    /// Places that no finding of the list accounts for, by rule.
    pub dropped: BTreeMap<RuleId, u64>,
    /// Parts that could not be judged.
    pub not_judged: Vec<NotJudged>,
    /// Number of possible errors that were not confirmed by several looks; they are not among the findings.
    pub unsettled: u64,
    /// Inputs of rules that are missing for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<Lack>,
    /// Parts left out on purpose, with the reason.
    pub notes: Vec<String>,
    /// Bytes that are mapped, by region and by Linux's name of the size (PTE, CONTPTE, PMD,
    /// CONTPMD, PUD, CONTPUD, P4D). What tables of KASAN's shadow map that several entries lead to counts once.
    pub mapped: BTreeMap<Region, BTreeMap<String, u64>>,
    /// Findings that are not listed, by cause.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) beyond: BTreeMap<Cause, u64>,
}

impl KernelVerdict {
    /// Places where a rule is broken, listed or not.
    pub fn errors(&self) -> u64 {
        let places = self.findings.iter().map(|finding| finding.places);
        places.sum::<u64>() + self.dropped.values().sum::<u64>()
    }

    /// Makes findings of one cause one.
    pub fn gather(&mut self) {
        cause::gather(&mut self.findings, &mut self.dropped, &mut self.beyond);
    }
}

/// Walks the upper half and judges it. Without a layout only the architecture's rules apply.
pub fn judge_kernel<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    layout: Option<&KernelLayout>,
) -> KernelVerdict {
    let violations = RefCell::new(Vec::new());
    let mut judge = Judge {
        regime,
        layout,
        image: layout.and_then(|layout| physical_image(memory, regime, layout)),
        checker: Checker::new(regime, |violation| violations.borrow_mut().push(violation)),
        violations: &violations,
        shown: Shown::default(),
        findings: Findings::new(),
        verdict: KernelVerdict::default(),
    };
    walk(memory, regime, regime.first, regime.last, &mut judge);
    let alias_is_known = judge.image.is_some();
    let (mut verdict, findings) = (judge.verdict, judge.findings);
    verdict.dropped = findings.dropped();
    verdict.findings = findings.list;
    verdict.beyond = findings.beyond;
    verdict
        .findings
        .sort_by_key(|finding| (finding.va, finding.rule));
    let release = layout.map(|layout| layout.release);
    for finding in &mut verdict.findings {
        finding.remarks = finding.rule.rule().remark(&finding.message, release);
    }
    verdict
        .notes
        .extend(release.and_then(|release| rules::untried(release, true)));
    let notes = &mut verdict.notes;
    let mut note = |text: &str| notes.push(text.to_owned());
    match layout {
        None => note(
            "Linux's rules on kernel memory were not applied: its layout is known from 6.11 on",
        ),
        Some(layout) => {
            if layout.image.is_none() {
                let why = "vmalloc, vmemmap and fixmap were not judged: where the image lies is not known without the kernel's symbols, which it does not say, or the matching vmlinux";
                verdict
                    .lacks
                    .push(Lack::new(without(&[Need::Layout]).rules, why));
            }
            match layout.linear_bit {
                LinearBit::Unknown => note("the Contiguous bit on the linear map was not judged: whether rodata=full is in force is not known"),
                LinearBit::Split => note("the Contiguous bit on the linear map was not judged: from 6.18 on a kernel may have blocks there and split them (BBML2_NOABORT, BBML3), and this one does, or what it does could not be read (arm64_features, system_cpucaps)"),
                LinearBit::None if layout.alias_may_be_contiguous() && !alias_is_known => note("the Contiguous bit on the linear map was not judged: where the kernel image's alias in it lies, which may have the bit, is not known"),
                LinearBit::EveryRun if !alias_is_known => note("the Contiguous bit on the linear map was not asked for: where the kernel image's alias in it lies, which lacks the bit, is not known"),
                LinearBit::None | LinearBit::EveryRun => (),
            }
        }
    }
    verdict
}

/// Where the image lies in physical memory: `map_kernel()` maps it as one run.
fn physical_image<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    layout: &KernelLayout,
) -> Option<Range<u64>> {
    let image = layout.image.as_ref()?;
    match lookup(memory, regime, VirtualAddress(image.start)) {
        Lookup::Mapped { pa, .. } => Some(pa.0..pa.0.checked_add(image.end - image.start)?),
        _ => None,
    }
}

struct Judge<'a, F> {
    regime: &'a Regime,
    layout: Option<&'a KernelLayout>,
    /// Physical addresses of the image; known where the layout's image is mapped.
    image: Option<Range<u64>>,
    checker: Checker<'a, F>,
    violations: &'a RefCell<Vec<Violation>>,
    /// Tables of KASAN's shadow.
    shown: Shown,
    findings: Findings,
    verdict: KernelVerdict,
}

impl<'m, F: FnMut(Violation)> Visitor<'m> for Judge<'_, F> {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let region = self.layout.map(|layout| layout.region(table.va.0));
        if region == Some(Region::Shadow) && self.shown.again(table) {
            return Descend::Skip;
        }
        self.checker.table(table);
        let size = self.regime.entry_size(table.level);
        for violation in self.violations.borrow_mut().drain(..) {
            self.findings.add(finding_of(violation, None, size));
        }
        let window = self.regime.contiguous_entries(table.level).unwrap_or(16);
        for start in (0..table.words.len()).step_by(window) {
            let end = (start + window).min(table.words.len());
            let group = Group::new(
                (self.regime, table.level),
                table.va_of(start, self.regime).0,
                (table.address.0, start),
                &table.words[start..end],
            );
            if group.words.iter().any(|&word| group.is_leaf(word)) {
                self.group(&group);
            }
        }
        Descend::Into
    }

    fn problem(&mut self, problem: &WalkProblem) {
        match problem_of(problem, None) {
            Ok(finding) => self.findings.add(finding),
            Err(reason) => self.verdict.not_judged.push(reason),
        }
    }
}

impl<F> Judge<'_, F> {
    fn group(&mut self, group: &Group<'_>) {
        for (at, pte) in group.leaves() {
            let region = self
                .layout
                .map_or(Region::Unknown, |layout| layout.region(group.va_of(at)));
            let sizes = self.verdict.mapped.entry(region).or_default();
            let name = size_name(group.level.number(), pte.valid_cont());
            match sizes.get_mut(name) {
                Some(bytes) => *bytes += group.step(),
                None => drop(sizes.insert(name.to_owned(), group.step())),
            }
        }
        let Some(layout) = self.layout else { return };
        let seen = KernelSeen {
            layout,
            image: self.image.as_ref(),
        };
        for (rule, check) in &CHECKS.kernel {
            if let Some(message) = check(group, &seen) {
                self.findings.add(Finding::on(group, *rule, None, message));
            }
        }
    }
}

/// Linux's name of what one leaf maps.
pub fn size_name(level: i8, contiguous: bool) -> &'static str {
    match (level, contiguous) {
        (3, false) => "PTE",
        (3, true) => "CONTPTE",
        (2, false) => "PMD",
        (2, true) => "CONTPMD",
        (1, false) => "PUD",
        (1, true) => "CONTPUD",
        _ => "P4D",
    }
}
