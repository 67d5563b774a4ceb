// SPDX-License-Identifier: GPL-2.0-only
//! The tables of a swap area's clusters, a word for each slot, whose highest bits count (mm/swap_table.h, since 7.1).

use stage1::PhysMemory;

use super::area::{add, Area, WHAT};
use crate::kernel::View;
use crate::lock::SpinLock;
use crate::pages::{Pages, Passed};
use crate::types::Member;
use crate::{Kernel, StructureError};

/// `SWP_TB_COUNT_SHIFT`: arm64 has room for all four bits of the count beside a page frame number.
const COUNT_SHIFT: u32 = 60;
/// `SWP_TB_COUNT_MAX`: the count goes on in `extend_table`.
const CONTINUED: u8 = 15;
/// `SWP_TB_BAD`: no slot.
const BAD: u64 = u64::MAX << 3;
/// The mark of a slot whose folio is in the swap cache, in the lowest two bits, above which is its page frame number.
const CACHED: u64 = 0b10;
const MARK: u64 = 0b11;
const PFN_SHIFT: u32 = 2;

/// Where they are.
#[derive(Debug)]
pub(super) struct Tables {
    clusters: Member,
    size: u64,
    lock: SpinLock,
    lock_of: Member,
    table: Member,
    /// Slots of a cluster.
    slots: u64,
}

impl Tables {
    /// `None` where the kernel counts elsewhere.
    pub(super) fn new(kernel: &Kernel) -> Result<Option<Tables>, StructureError> {
        let member = |structure, path| kernel.types.member(structure, path);
        // What does not fit into a table is counted in this one; kernels with tables that do not count have none.
        if member("swap_cluster_info", "extend_table").is_err() {
            return Ok(None);
        }
        Ok(Some(Tables {
            clusters: member("swap_info_struct", "cluster_info")?,
            size: kernel.types.size("swap_cluster_info")?,
            lock: SpinLock::new(&kernel.types)?,
            lock_of: member("swap_cluster_info", "lock")?,
            table: member("swap_cluster_info", "table")?,
            slots: member("swap_table", "entries")?.elements,
        }))
    }

    /// The slots of the area at `at` that are counted.
    pub(super) fn area<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pages: &Pages<'_, M>,
        at: u64,
        slots: u64,
    ) -> Result<Option<Area>, StructureError> {
        let clusters = view.number(WHAT, at, self.clusters)?;
        if clusters == 0 || slots == 0 || self.slots == 0 {
            return Ok(None);
        }
        let (mut runs, mut first, mut passed) = (Vec::new(), 0, Passed::default());
        for cluster in 0..slots.div_ceil(self.slots) {
            let info = clusters.wrapping_add(cluster * self.size);
            let lock = info.wrapping_add(self.lock_of.offset);
            if self.lock.is_held(view, lock)? {
                return Err(StructureError::Inconsistent {
                    what: WHAT,
                    va: info,
                    why: "the lock of a cluster was held".into(),
                });
            }
            let table = view.number(WHAT, info, self.table)?;
            if table == 0 {
                continue;
            }
            let here = cluster * self.slots;
            let words = view.bytes(WHAT, table, 8 * self.slots.min(slots - here))?;
            for (word, slot) in words.chunks_exact(8).zip(here..) {
                let word = u64::from_le_bytes(std::array::from_fn(|byte| word[byte]));
                let locked = || match word & MARK {
                    CACHED => self.is_locked(pages, word, &mut passed),
                    _ => false,
                };
                if let Some(count) = counted(word, locked) {
                    if runs.is_empty() {
                        first = table.wrapping_add(8 * (slot - here));
                    }
                    add(&mut runs, slot, count);
                }
            }
        }
        Ok(Some((runs, first)))
    }

    /// Returns whether a task has the folio of a slot in the swap cache to itself: shmem's are counted before they are in a file's
    /// tree.
    fn is_locked<'p, M: PhysMemory + ?Sized>(
        &self,
        pages: &Pages<'p, M>,
        word: u64,
        passed: &mut Passed<'p>,
    ) -> bool {
        let pfn = word << 4 >> (PFN_SHIFT + 4);
        pages.cached_at(pfn, passed).map_or(true, |it| it.is_locked)
    }
}

/// How often a slot is counted by its word: `None` where not at all, and within that where it is not known.
fn counted(word: u64, locked: impl FnOnce() -> bool) -> Option<Option<u8>> {
    if word == BAD {
        return Some(None);
    }
    match (word >> COUNT_SHIFT) as u8 {
        0 => None,
        CONTINUED => Some(None),
        count => Some(Some(count).filter(|_| !locked())),
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn words_of_slots() {
        let free = |word| counted(word, || false);
        // Free, swapped out once and twice with and without what is remembered, in the swap cache alone and counted.
        assert_eq!(free(0), None);
        assert_eq!(free(1 << 60 | 1), Some(Some(1)));
        assert_eq!(free(2 << 60 | 0x1234 << 1 | 1), Some(Some(2)));
        assert_eq!(free(0x4_1234 << 2 | 2), None);
        assert_eq!(free(14 << 60 | 0x4_1234 << 2 | 2), Some(Some(14)));
        // What marks pages of zeroes (7.2) counts nothing.
        assert_eq!(free(1 << 60 | 1 << 59 | 1), Some(Some(1)));
        assert_eq!(free(1 << 59 | 2), None);
        // It goes on elsewhere; no slot; a task is changing it.
        assert_eq!(free(15 << 60 | 1), Some(None));
        assert_eq!(free(!7), Some(None));
        assert_eq!(counted(1 << 60 | 2, || true), Some(None));
    }
}
