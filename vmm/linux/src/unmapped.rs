// SPDX-License-Identifier: GPL-2.0-only
//! A folio that counts mappings, and that no table was seen to map.

/// Such a folio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmapped {
    /// The page frame number of its first page.
    pub head: u64,
    /// Where it may be mapped, by its reverse mapping.
    pub places: Vec<MayBe>,
    /// The reason that there may be entries all the same.
    pub open: Option<String>,
}

/// A place at which a folio may be mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MayBe {
    /// The physical address of the process's first table.
    pub table: u64,
    /// The virtual address.
    pub va: u64,
    /// The process in words: its id, and its name in brackets.
    pub process: String,
}
