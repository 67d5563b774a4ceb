//! The upper half: the architecture's rules, and what Linux says of its own memory where the
//! layout is known for sure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use linux::release::Release;
use schemars::JsonSchema;
use serde::Serialize;
use stage1::{
    lookup, walk, Checker, Descend, Granule, Lookup, PhysMemory, Regime, Shown, Table, Violation,
    VirtualAddress, Visitor, WalkProblem,
};

use crate::cause::{self, Cause};
use crate::finding::Findings;
use crate::group::Group;
use crate::judge::{finding_of, problem_of};
use crate::rules;
use crate::{Finding, Hex, Lack, NotJudged, RuleId};

/// Where the parts of kernel memory are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLayout {
    /// The linear map of all RAM.
    pub linear: Range<u64>,
    /// The shadow of all of the half that KASAN writes to, where the kernel has it: behind the linear map. Its tables are shared
    /// where nothing is shadowed, and no rule of Linux's asks for more than that they are tables.
    pub shadow: Option<Range<u64>>,
    /// The kernel image, `_text` to `_end` at their runtime addresses; `None` without a vmlinux
    /// that matches. What lies outside linear map and image is judged only if this is known,
    /// because the image lies in the middle of it.
    pub image: Option<Range<u64>>,
    /// The Contiguous bit of the linear map.
    pub linear_bit: LinearBit,
    /// Whether vmalloc never uses the bit: so before 6.16.
    pub vmalloc_plain: bool,
    /// The kernel.
    pub release: Release,
}

/// What is known of the Contiguous bit in the linear map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinearBit {
    /// No entry has it: the map must stay changeable page by page.
    None,
    /// Every aligned run has it: `alloc_init_cont_pte()` and `alloc_init_cont_pmd()`, arch/arm64/mm/mmu.c. Runs
    /// that touch the image's alias are mapped by themselves, without it.
    EveryRun,
    /// Nothing is: whether `rodata=full` or something like it is in force cannot be told.
    Unknown,
    /// Nothing is: from 6.18 on a kernel may have blocks, and split them on demand.
    Split,
}

impl KernelLayout {
    /// The layout of 6.11 and later, from `asm/memory.h`: the linear map runs from the half's
    /// first address to `_PAGE_END(VA_BITS_MIN)`. `None` for other kernels.
    ///
    /// `rodata_full`: whether the linear map must stay changeable page by page (`rodata=full`, the default, or
    /// debug_pagealloc, or a realm); `None` if that is not known. From 6.18 on [`KernelLayout::without_splits`]
    /// may follow.
    pub fn new(
        regime: &Regime,
        release: Option<Release>,
        image: Option<Range<u64>>,
        rodata_full: Option<bool>,
    ) -> Option<KernelLayout> {
        let release = release.filter(|release| release.has_this_layout())?;
        // A kernel for 52 bits runs with VA_BITS_MIN where the CPU has no more: 47 at 16K, where 48 need a level
        // of their own, else 48.
        let bits_min = match (regime.granule, regime.va_bits) {
            (Granule::K16, 49..) => 47,
            (_, bits) => bits.min(48),
        };
        let end = (1u64 << (bits_min - 1)).wrapping_neg();
        let linear_bit = match rodata_full {
            None => LinearBit::Unknown,
            Some(_) if release >= SPLITS => LinearBit::Split,
            Some(true) => LinearBit::None,
            Some(false) => LinearBit::EveryRun,
        };
        Some(KernelLayout {
            linear: regime.first.0..end,
            shadow: None,
            image,
            linear_bit,
            vmalloc_plain: release < Release::new(6, 16, 0),
            release,
        })
    }

    /// The same for a kernel that does not split blocks: its CPUs have no BBML2_NOABORT (7.x: BBML3), which
    /// ID_AA64MMFR2_EL1.BBM does not tell (some CPUs have it and do not say so; 6.18 asks no other register than
    /// MIDR_EL1). 6.18 then does as those before it did.
    #[must_use]
    pub fn without_splits(mut self, rodata_full: Option<bool>) -> Self {
        if self.linear_bit == LinearBit::Split {
            self.linear_bit = match rodata_full {
                Some(true) => LinearBit::None,
                Some(false) => LinearBit::EveryRun,
                None => LinearBit::Unknown,
            };
        }
        self
    }

    /// Whether runs of the image's alias in the linear map may have the bit though nothing else of it may: it stays as it
    /// was mapped where the CPU that booted could split blocks and another one cannot
    /// (`linear_map_maybe_split_to_ptes()`, arch/arm64/mm/mmu.c).
    pub(crate) fn alias_may_be_contiguous(&self) -> bool {
        self.release >= SPLITS
    }

    /// The same for a kernel with KASAN, which has a byte for 2 to the power of `scale` bytes of the half (3, by tags 4): the
    /// linear map ends where the shadow begins (`PAGE_END` and `KASAN_SHADOW_START`, asm/memory.h).
    #[must_use]
    pub fn with_shadow(mut self, regime: &Regime, scale: Option<u8>) -> Self {
        if let Some(scale) = scale {
            let end = self.linear.end;
            let start = end.wrapping_sub(1 << (regime.va_bits - u32::from(scale)));
            self.linear.end = start;
            self.shadow = Some(start..end);
        }
        self
    }

    pub(crate) fn region(&self, va: u64) -> Region {
        if self.linear.contains(&va) {
            return Region::Linear;
        }
        if self
            .shadow
            .as_ref()
            .is_some_and(|shadow| shadow.contains(&va))
        {
            return Region::Shadow;
        }
        match &self.image {
            Some(image) if image.contains(&va) => Region::Image,
            Some(_) => Region::Rest,
            None => Region::Unknown,
        }
    }
}

/// The first release that has blocks in the linear map with `rodata=full`, where the CPUs have BBML2_NOABORT.
const SPLITS: Release = Release::new(6, 18, 0);

/// Part of kernel memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Region {
    /// The linear map.
    Linear,
    /// KASAN's shadow.
    Shadow,
    /// The kernel image.
    Image,
    /// vmalloc, modules, vmemmap, fixmap.
    Rest,
    /// Not known.
    Unknown,
}

/// The upper half, judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KernelVerdict {
    /// Findings by address.
    pub findings: Vec<Finding>,
    /// Places that no finding of the list accounts for, by rule.
    pub dropped: BTreeMap<RuleId, u64>,
    /// What could not be judged.
    pub not_judged: Vec<NotJudged>,
    /// What may be errors and did not show to stay from look to look: counted here, and none of the findings.
    pub unsettled: u64,
    /// Inputs of rules that are missing for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<Lack>,
    /// What was left out on purpose, and why.
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
        finding.remarks = rules::remark(finding.rule, &finding.message, release);
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
                verdict.lacks.push(Lack::new([RuleId::K1, RuleId::K2], why));
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
        rules::k1::misplaced(group, layout, self.image.as_ref(), &mut self.findings);
        if let Some(image) = &self.image {
            rules::k1::lacking(group, layout, image, &mut self.findings);
        }
        rules::k2::check(group, layout, &mut self.findings);
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

/// A region's name for people.
impl std::fmt::Display for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Region::Linear => "linear map",
            Region::Shadow => "KASAN's shadow",
            Region::Image => "kernel image",
            Region::Rest => "vmalloc and others",
            Region::Unknown => "kernel",
        })
    }
}

/// First and last address of a region, for people.
impl KernelLayout {
    /// Linear map and image, with their names.
    pub fn known(&self) -> Vec<(Region, Hex, Hex)> {
        let linear = (Region::Linear, Hex(self.linear.start), Hex(self.linear.end));
        let image = self.image.as_ref();
        let image = image.map(|image| (Region::Image, Hex(image.start), Hex(image.end)));
        let shadow = self.shadow.as_ref();
        let shadow = shadow.map(|it| (Region::Shadow, Hex(it.start), Hex(it.end)));
        std::iter::once(linear).chain(shadow).chain(image).collect()
    }
}
