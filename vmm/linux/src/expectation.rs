// SPDX-License-Identifier: GPL-2.0-only
//! Facts about a range of memory that the driver of a workload knows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A fact about a range of addresses, known to the driver of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// First address.
    pub start: u64,
    /// First address behind the range.
    pub end: u64,
    /// The fact.
    pub what: Expected,
}

/// A fact that may be known of a range.
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
    /// Every aligned block in the range that could carry the bit carries it.
    ContiguousIfPossible,
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
    /// The kernel had no leave to take a page away: each is mapped, and not by the zero page. Also by an entry that is
    /// present and not valid.
    Mapped,
    /// Only entries, the page cache and the swap cache hold a folio of the range: nothing is pinned, read or
    /// written by the kernel at this instant, and the batches of the LRU lists are drained.
    Unheld,
    /// No other mapping ever had the anonymous pages of the range: since each was written, its process was not forked, and
    /// KSM has not looked at it. So each is exclusive (`PageAnonExclusive`). Not of hugetlb.
    Exclusive,
}

impl Expected {
    /// All.
    pub const ALL: [Expected; 15] = [
        Expected::FreshlyFaulted,
        Expected::Written,
        Expected::NotWritten,
        Expected::Contiguous,
        Expected::ContiguousIfPossible,
        Expected::NotContiguous,
        Expected::Readable,
        Expected::Writable,
        Expected::Young,
        Expected::Old,
        Expected::Dirty,
        Expected::Clean,
        Expected::Mapped,
        Expected::Unheld,
        Expected::Exclusive,
    ];
}
