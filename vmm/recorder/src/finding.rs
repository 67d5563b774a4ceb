// SPDX-License-Identifier: GPL-2.0-only
//! Findings of the judge, and its counts of events that are not judged.

use std::collections::HashMap;
use std::fmt;

use stage1::{Cause, Level};

use crate::{Folio, Moment, Stored};

/// A rule on sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A change from a valid word to another that needs break-before-make, without the invalid word between.
    S1,
    /// No TLBI of the right scope, ASID and VA between.
    S2,
    /// A DSB is missing before the TLBI or after it.
    S3,
    /// A change of one member alone of a live contiguous group.
    S4,
    /// A table or a page used as another thing before the TLBI.
    S5,
    /// The TLBI between has a level hint, a last-level form or a range that leaves the change out.
    S6,
    /// Memory that a process removed from its address space, or a right that it removed, may still be in a TLB when it
    /// returns to user space.
    S7,
}

impl Rule {
    /// Returns the id, "S1" and so on.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::S1 => "S1",
            Self::S2 => "S2",
            Self::S3 => "S3",
            Self::S4 => "S4",
            Self::S5 => "S5",
            Self::S6 => "S6",
            Self::S7 => "S7",
        }
    }

    /// Returns the requirement as a phrase.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::S1 => "a change that needs break-before-make goes through an invalid word",
            Self::S2 => "a TLBI between covers every TLB that may hold the old word",
            Self::S3 => "a DSB before that TLBI and one after it",
            Self::S4 => "no member of a live contiguous group is changed alone",
            Self::S5 => "a page is used as something else only behind its TLBI",
            Self::S6 => "level hint and range of that TLBI cover what changed",
            Self::S7 => "memory and rights that a process gives up are in no TLB when it goes on",
        }
    }

    /// Returns the place in the Arm ARM (DDI 0487) that states it.
    #[must_use]
    pub const fn reference(self) -> &'static str {
        match self {
            Self::S1 | Self::S2 => "Arm ARM D8.17.1, break-before-make",
            Self::S3 => "Arm ARM D8.17.1 and D8.17.5, R_DDMVT",
            Self::S4 => "Arm ARM D8.7.1, R_QTRPM and R_SKQHL",
            Self::S5 => "Arm ARM D8.17, TLB maintenance, on intermediate walks; Linux: mmu_gather frees behind the TLBI",
            Self::S6 => "Arm ARM C5.5 and D8.17.5, TTL and the range forms",
            Self::S7 => "Linux: include/asm-generic/tlb.h, mmu_gather; Documentation/core-api/cachetlb.rst",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// A sequence that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The store that made it so.
    pub made: Stored,
    /// The store that took the old word away; `None` where `made` did.
    pub broken: Option<Stored>,
    /// The TLBI that came nearest to covering the word.
    pub tlbi: Option<Stored>,
    /// The first table of the address space.
    pub root: u64,
    /// The first VA that the descriptor maps.
    pub va: u64,
    /// Its level.
    pub level: Level,
    /// Its physical address.
    pub entry: u64,
    /// The word that a TLB may still hold.
    pub old: u64,
    /// The word that was written.
    pub new: u64,
    /// The difference between the two words.
    pub cause: Cause,
    /// The block around it: the contiguous group, at a level that has any.
    pub block: Option<Block>,
    /// The place of the finding, and its events.
    pub scene: Scene,
    /// A sentence with the missing operation.
    pub sentence: String,
}

/// The place of a finding, and its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    /// Bytes that a descriptor of its level maps.
    pub bytes: u64,
    /// The page frames that the old word and the new one map, if they do.
    pub frames: [Option<u64>; 2],
    /// Their folios, each in the kernel's state at the time its word was removed or written. If a block has several,
    /// they are those of the finding's page. `None` if they were not recorded.
    pub folios: [Option<Folio>; 2],
    /// The physical address of the table that has the block, or the descriptor alone, and the first one's index.
    pub table: u64,
    /// The index in `table`.
    pub index: usize,
    /// The last events of the block, in order. The last of them is the finding.
    pub life: Vec<Moment>,
}

/// The present and former words of a contiguous group, or of a possible one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first VA.
    pub va: u64,
    /// For each descriptor the word that a TLB may hold, if there is one, else the word before the last store.
    pub before: Vec<u64>,
    /// The words after the last store.
    pub after: Vec<u64>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule,
            va,
            level,
            old,
            new,
            made,
            sentence,
            ..
        } = self;
        write!(
            f,
            "{rule} VA {va:#018x} level {level}: {old:#018x} -> {new:#018x} by CPU {} at PC {:#018x}: {sentence}",
            made.cpu, made.pc
        )
    }
}

/// All findings: those of one rule, place in the code and cause are one with a count.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    counts: HashMap<(Rule, u64, Cause), u64>,
    most: usize,
    vas: Vec<u64>,
    /// Number of all findings.
    pub total: u64,
}

/// Number of findings of one cause that are kept.
const OF_ONE: u64 = 3;

/// Number of findings whose VAs are kept.
const VAS: usize = 4096;

impl Findings {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Returns whether it would be kept whole.
    pub(crate) fn keeps(&self, finding: &Finding) -> bool {
        self.kept.len() < self.most && self.count(finding) < OF_ONE
    }

    pub(crate) fn push(&mut self, finding: Finding) {
        self.total += 1;
        if self.vas.len() < VAS {
            self.vas.push(finding.va);
        }
        let cause = (finding.rule, finding.made.pc, finding.cause);
        if self.counts.len() >= self.most && !self.counts.contains_key(&cause) {
            return;
        }
        let count = self.counts.entry(cause).or_insert(0);
        *count += 1;
        if *count <= OF_ONE && self.kept.len() < self.most {
            self.kept.push(finding);
        }
    }

    /// Returns the first findings of each cause, in order of time.
    #[must_use]
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }

    /// Returns the VAs of all findings, in order of time, up to 4096.
    #[must_use]
    pub fn vas(&self) -> &[u64] {
        &self.vas
    }

    /// Returns how often the cause of `finding` was found.
    #[must_use]
    pub fn count(&self, finding: &Finding) -> u64 {
        let cause = (finding.rule, finding.made.pc, finding.cause);
        self.counts.get(&cause).copied().unwrap_or(0)
    }
}

/// Counts of events that could not be judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotJudged {
    /// Stores to tables that are used at several VAs or in several formats, or whose words were lost.
    pub ambiguous: u64,
    /// Tables that were out of step with memory.
    pub out_of_step: u64,
    /// Address spaces forgotten, and tables not followed, to stay within the memory limit.
    pub forgotten: u64,
    /// Old words forgotten to stay within the limit.
    pub stale: u64,
    /// Registers that describe no translation that can be judged.
    pub registers: u64,
    /// Changes of address of read-only memory: allowed if the bytes are the same.
    pub read_only: u64,
    /// Tables that replaced another without a break: allowed if both map the same.
    pub tables: u64,
    /// TLB maintenance before any regime is known.
    pub tlbi: u64,
    /// Stores of two CPUs to one word at the same time, whose order is unknown.
    pub late: u64,
    /// Returns to EL0 without the TLBI of an earlier removal, if the thread is unknown.
    pub nameless: u64,
}

impl NotJudged {
    /// Returns each with a sentence; those that are 0 are left out.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        [
            (self.ambiguous, "stores to tables with several VAs or formats, or whose words were lost"),
            (self.out_of_step, "tables that differ from memory: something wrote to them unseen"),
            (self.forgotten, "address spaces or tables beyond the limit of memory"),
            (self.stale, "old words beyond the limit of memory"),
            (self.registers, "register writes that describe no stage 1 that can be judged"),
            (self.read_only, "changes of the address of read-only memory, which are allowed where the bytes are the same"),
            (self.tables, "tables exchanged without a break, which is allowed where they map the same"),
            (self.late, "stores of two CPUs to one word at the same time, whose order is not known"),
            (self.nameless, "returns to EL0 without the TLBI of what was taken away before, of a kernel that does not say whose it was (CONFIG_PID_IN_CONTEXTIDR)"),
            (self.tlbi, "TLBIs before any translation was on"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
    }
}
