// SPDX-License-Identifier: GPL-2.0-only
//! Which entries are shown, and how.

use linux::absent::SwapTypes;

use verdict::VmaVerdict;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns for people.
    Text,
    /// One JSON array, an object per line.
    Json,
    /// Comma-separated, with a line of names.
    Csv,
}

/// Which entries to show.
#[derive(Clone, Debug)]
pub struct DumpOptions {
    /// First address.
    pub first: u64,
    /// Last address.
    pub last: u64,
    /// Only entries of this level.
    pub level: Option<i8>,
    /// Only entries with the Contiguous bit.
    pub contiguous: bool,
    /// Only entries of groups in which a rule of the tables alone is broken (A1 to A8, L1 to L6).
    pub findings: bool,
    /// Table descriptors too.
    pub tables: bool,
    /// Linux's rules and software bits apply: a kernel from 6.11 on.
    pub linux: bool,
    /// The verdict on each VMA of the process, with the state of each block. Empty if there is none.
    pub judged: Vec<VmaVerdict>,
    /// The names of entries that are not present.
    pub names: SwapTypes,
}

impl Default for DumpOptions {
    fn default() -> DumpOptions {
        DumpOptions {
            first: 0,
            last: u64::MAX,
            level: None,
            contiguous: false,
            findings: false,
            tables: false,
            linux: true,
            judged: Vec::new(),
            names: SwapTypes::OPEN,
        }
    }
}
