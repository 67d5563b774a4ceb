// SPDX-License-Identifier: GPL-2.0-only
//! The results on one process: counts, blocks, findings.

use std::collections::BTreeMap;
use std::ops::Range;

use linux::pte::{Kind, Pte, SwapKind};
use linux::release::Release;
use schemars::JsonSchema;
use serde::Serialize;
use untrusted::Text;

use crate::cause::{self, Cause};
use crate::mapping::Mapping;
use crate::marks::Marks;
use crate::{BlockRow, BlockState, Finding, Hex, Lack, NotJudged, Process, RuleId};

/// Entries by what is in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EntryCounts {
    /// Valid pages (level 3).
    pub pages: u64,
    /// Those of them with the Contiguous bit.
    pub contiguous_pages: u64,
    /// Valid blocks, by level.
    pub blocks: BTreeMap<i8, u64>,
    /// Those of them with the Contiguous bit.
    pub contiguous_blocks: BTreeMap<i8, u64>,
    /// Valid and special: the zero page, page frames without a folio.
    pub special: u64,
    /// PROT_NONE, NUMA hints and others that are present for Linux and not for the CPU.
    pub present_invalid: u64,
    /// Swapped out.
    pub swapped: u64,
    /// Migration entries; poison and device entries as well, which their type does not tell apart. While there
    /// are any, the kernel may be moving the process's pages.
    pub moving: u64,
    /// Markers and reserved words.
    pub other: u64,
}

/// One VMA's part of a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VmaVerdict {
    /// First address.
    pub start: Hex,
    /// First address behind it.
    pub end: Hex,
    /// As in `/proc/PID/maps`: `rw-p`.
    pub permissions: String,
    /// As in `/proc/PID/maps`, or empty.
    pub name: Text,
    /// Bytes that valid entries map.
    pub mapped: u64,
    /// Those of them by entries with the Contiguous bit.
    pub contiguous: u64,
    /// Bytes of the largest naturally aligned range (a power of two, aligned in virtual and
    /// physical address alike) that is mapped without a gap.
    pub largest_run: u64,
    /// Blocks by state.
    pub blocks: BTreeMap<BlockState, u64>,
    /// The blocks in order.
    pub rows: Vec<BlockRow>,
    /// Bytes that entries map, by the order of the folios behind them; empty where those are not known.
    pub folios: BTreeMap<u8, u64>,
    /// Order choices that the kernel recorded for this VMA, by chosen order; `-1` is none.
    pub orders: BTreeMap<i8, u64>,
}

/// One process, judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProcessVerdict {
    /// The process.
    pub process: Process,
    /// Bytes per page.
    pub page_size: u64,
    /// Bytes per block: what a level-3 group maps.
    pub block_size: u64,
    /// Findings by address.
    pub findings: Vec<Finding>,
    /// Places that no finding of the list accounts for, by rule: each cause's first hundred are listed, one by one
    /// until they are made one finding.
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
    /// Entries.
    pub entries: EntryCounts,
    /// Bytes that entries map, by the order of the folios behind them; empty where those are not known.
    pub folios: BTreeMap<u8, u64>,
    /// By VMA.
    pub vmas: Vec<VmaVerdict>,
    /// Physical address of the first table: tells address spaces apart.
    pub root: Hex,
    /// The mapped ranges, for [`crate::judge_sharing`].
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) mappings: Vec<Mapping>,
    /// Page frames that it maps and that are folios of one page, mapped once by their own count: anonymous ones, those
    /// of shmem, of files, and others.
    #[serde(skip)]
    pub(crate) once: [Vec<Range<u64>>; 4],
    /// Ranges of which nothing but entries, the page cache and the swap cache holds a folio.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) unheld: Vec<Range<u64>>,
    /// Ranges whose anonymous pages no other mapping ever had.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) exclusive: Vec<Range<u64>>,
    /// Ranges of its VMAs with `VM_LOCKED`; `None` if its VMAs do not say so.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) locked: Option<Vec<Range<u64>>>,
    /// Findings that are not listed, by cause.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) beyond: BTreeMap<Cause, u64>,
    /// The kernel, for what is counted later and the remarks on that.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) release: Option<Release>,
}

impl ProcessVerdict {
    /// Says which kernel it is, where Linux's rules on user memory were not applied ([`crate::ProcessInput::release`]).
    pub fn set_release(&mut self, release: Option<Release>) {
        self.release = release;
    }
}

impl EntryCounts {
    /// Counts so many words of one kind that are not table descriptors.
    pub(crate) fn add(&mut self, level: i8, (pte, leaf): (Pte, bool), count: u64) {
        match pte.kind() {
            Kind::None => {}
            Kind::Valid if !leaf => self.other += count,
            Kind::Valid => {
                self.special += if pte.special() { count } else { 0 };
                let contiguous = if pte.valid_cont() { count } else { 0 };
                if level == 3 {
                    self.pages += count;
                    self.contiguous_pages += contiguous;
                } else {
                    *self.blocks.entry(level).or_default() += count;
                    *self.contiguous_blocks.entry(level).or_default() += contiguous;
                }
            }
            Kind::ProtNone | Kind::PresentInvalid => self.present_invalid += count,
            Kind::Swap(entry) if entry.kind() == SwapKind::Swapped => self.swapped += count,
            Kind::Swap(entry) if entry.kind() == SwapKind::Special => self.moving += count,
            Kind::Swap(_) => self.other += count,
        }
    }
}

impl ProcessVerdict {
    /// Places where a rule is broken, listed or not.
    pub fn errors(&self) -> u64 {
        let errors = |f: &&Finding| f.severity == crate::Severity::Error;
        let listed = self.findings.iter().filter(errors).map(|f| f.places);
        let dropped = self
            .dropped
            .iter()
            .filter(|(rule, _)| !rule.is_information());
        listed.sum::<u64>() + dropped.map(|(_, n)| n).sum::<u64>()
    }

    /// Makes findings of one cause one.
    pub fn gather(&mut self) {
        cause::gather(&mut self.findings, &mut self.dropped, &mut self.beyond);
    }

    /// Marks rows in which rules turned out to be broken after the process itself was judged.
    pub(crate) fn mark(&mut self, broken: Vec<(RuleId, Range<u64>)>) {
        let marks = Marks::new(broken);
        for vma in &mut self.vmas {
            if marks.mark(&mut vma.rows, vma.start.0..vma.end.0, self.block_size) {
                vma.recount();
            }
        }
    }

    /// Blocks by state, over all VMAs.
    pub fn blocks(&self) -> BTreeMap<BlockState, u64> {
        let mut all = BTreeMap::new();
        for (state, count) in self.vmas.iter().flat_map(|vma| &vma.blocks) {
            *all.entry(*state).or_default() += count;
        }
        all
    }
}

impl VmaVerdict {
    /// Counts the rows again.
    pub(crate) fn recount(&mut self) {
        self.blocks.clear();
        for row in &self.rows {
            *self.blocks.entry(row.state).or_default() += row.blocks;
        }
    }
}

/// The row of the block that has `va`, in the VMA that has it; `vmas` are by address.
pub fn row_at(vmas: &[VmaVerdict], va: u64) -> Option<&BlockRow> {
    let at = vmas.partition_point(|vma| vma.end.0 <= va);
    let vma = vmas.get(at).filter(|vma| vma.start.0 <= va)?;
    let at = vma.rows.partition_point(|row| row.end.0 <= va);
    vma.rows.get(at).filter(|row| row.va.0 <= va)
}
