// SPDX-License-Identifier: GPL-2.0-only
//! Memory that a process maps in one piece.

/// Consecutive pages, mapped consecutively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub pa: u64,
    pub va: u64,
    pub bytes: u64,
    /// Writable, and in private memory.
    pub exclusive: bool,
    /// True for a folio: page frames that a driver maps may belong to any owner.
    pub folio: bool,
    pub vma: u32,
}

/// Adds a mapping to a list, to the last one where it goes on.
pub(crate) fn push(mappings: &mut Vec<Mapping>, new: Mapping) {
    if let Some(last) = mappings.last_mut() {
        let follows = last.pa.wrapping_add(last.bytes) == new.pa
            && last.va.wrapping_add(last.bytes) == new.va;
        let alike = last.exclusive == new.exclusive && last.folio == new.folio;
        if follows && alike && last.vma == new.vma {
            last.bytes += new.bytes;
            return;
        }
    }
    mappings.push(new);
}

/// The largest power of two that is aligned in both addresses and lies in the mapping.
pub(crate) fn largest_run(mapping: &Mapping) -> u64 {
    let apart = (mapping.va ^ mapping.pa).trailing_zeros().min(52);
    (0..=apart)
        .rev()
        .map(|shift| 1u64 << shift)
        .find(|&size| {
            let start = mapping.va.next_multiple_of(size);
            start.saturating_add(size) <= mapping.va + mapping.bytes
        })
        .unwrap_or(0)
}
