// SPDX-License-Identifier: GPL-2.0-only
//! What the judge is told about one process.

use linux::order::OrderRecords;
use linux::release::Release;
use linux::vma::Vma;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stage1::Regime;

use crate::process::Process;
use crate::structures::{NotKnown, Structures};

/// One process at one instant. All of it must have been taken while the process stood still.
#[derive(Clone, Copy, Debug)]
pub struct ProcessInput<'a> {
    /// Who.
    pub process: &'a Process,
    /// The lower half, with TTBR0_EL1 of this process. Where CPUs differ in TCR_EL1.HA or HD, `ha`
    /// and `hd` must be set if they are on *any* CPU that may run the process.
    pub regime: &'a Regime,
    /// Its VMAs by address; with VmFlags (smaps) more can be judged than without.
    pub vmas: &'a [Vma],
    /// The kernel's order records, where the kernel has them.
    pub orders: Option<&'a OrderRecords>,
    /// What is known of the step that came before.
    pub expectations: &'a [Expectation],
    /// The kernel. Without it, or before 6.11, only the architecture's rules are applied:
    /// software bits lay elsewhere.
    pub release: Option<Release>,
    /// Whether the kernel folds at all (`CONFIG_ARM64_CONTPTE`); `None` if that is not known.
    pub contpte: Option<bool>,
    /// What the kernel's own structures say, or why nothing is known of them.
    pub structures: Result<Structures<'a>, &'a NotKnown>,
}

/// Something that whoever drove the workload knows to be so, of a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// First address.
    pub start: u64,
    /// First address behind the range.
    pub end: u64,
    /// What is known.
    pub what: Expected,
}

/// What may be known of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// Anonymous memory that was faulted in by the last step, and that nothing has changed since:
    /// no unmapping, no protection change, no move, no fork, no reclaim.
    FreshlyFaulted,
    /// Every page was written by this process, and not cleaned, forked, moved or reclaimed since.
    Written,
    /// No page of any folio in the range was ever written through this mapping, nor was one collapsed. (A write to
    /// one page of an anonymous folio makes all its pages dirty.)
    NotWritten,
    /// Every aligned block in the range carries the bit.
    Contiguous,
    /// No entry in the range carries it.
    NotContiguous,
    /// Every page was read (or written) by an instruction of the process just now, so that another read would not
    /// fault. A group need not have been accessed page by page.
    Readable,
    /// Every page was written by an instruction of the process just now, so that another write would not fault.
    Writable,
    /// Every *raw* entry has AF, those of a group one by one: software set or carried it, and the CPU has had no
    /// part in it since. Also of entries that are present and not valid (PROT_NONE).
    Young,
    /// No raw entry has AF: software cleared it, or never set it.
    Old,
    /// Every raw entry is dirty (DIRTY, or WRITE with AP\[2\] clear), those of a group one by one: software set or
    /// carried that state. Also of entries that are present and not valid.
    Dirty,
    /// No raw entry is dirty.
    Clean,
    /// Nothing holds a folio of the range but entries, the page cache and the swap cache: nothing is pinned, read or
    /// written by the kernel at this instant, and the batches of the LRU lists are drained.
    Unheld,
}

impl Expected {
    /// All.
    pub const ALL: [Expected; 12] = [
        Expected::FreshlyFaulted,
        Expected::Written,
        Expected::NotWritten,
        Expected::Contiguous,
        Expected::NotContiguous,
        Expected::Readable,
        Expected::Writable,
        Expected::Young,
        Expected::Old,
        Expected::Dirty,
        Expected::Clean,
        Expected::Unheld,
    ];
}

impl ProcessInput<'_> {
    /// Whether Linux's rules apply; else why not.
    pub(crate) fn linux_rules(&self) -> Result<(), String> {
        match self.release {
            Some(release) if release.has_this_layout() => Ok(()),
            other => Err(not_linux(other)),
        }
    }
}

/// Why Linux's own rules were not applied.
pub(crate) fn not_linux(release: Option<Release>) -> String {
    match release {
        Some(release) => format!(
            "Linux's own rules were not applied: kernel {release} lays its software bits out differently from 6.11 and later"
        ),
        None => "Linux's own rules were not applied: the kernel's release is not known".into(),
    }
}
