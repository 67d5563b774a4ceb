// SPDX-License-Identifier: GPL-2.0-only
//! Pages that now belong to another address space, and the target of a word.

use stage1::{Descriptor, Half, Kind};

use crate::stale::Key;
use crate::Stored;

/// A page that now belongs to another address space, and that a TLB entry may still lead to.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) key: Key,
    /// The event that took its old word away.
    pub(crate) event: u64,
    /// The new mapping: its descriptor, its word and its address space.
    pub(crate) entry: u64,
    pub(crate) new: u64,
    pub(crate) by: Stored,
}

/// Returns the table that a word leads to, or the page that it maps in the lower half. The kernel half is left out:
/// vfree() frees pages at once and flushes lazily (mm/vmalloc.c), which endangers only the kernel itself.
pub(crate) fn leads_to(word: &Descriptor<'_>) -> Option<u64> {
    match word.kind() {
        _ if word.regime().half == Half::Upper => None,
        Kind::Table => Some(word.next_table().0),
        Kind::Page => Some(word.output_address().0),
        _ => None,
    }
}
