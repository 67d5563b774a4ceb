// SPDX-License-Identifier: GPL-2.0-only
//! Folios that CPUs hold to put them on an LRU list later: `cpu_fbatches`, mm/swap.c (mm/folio.c from 7.x on), and
//! `mlock_fbatch`, mm/mlock.c.

use serde::{Deserialize, Serialize};
use stage1::PhysMemory;

use crate::per_cpu::{word, PerCpu};
use crate::{Kernel, Structure, StructureError, View};

/// The batches of `struct cpu_fbatches`; a kernel need not have all.
const BATCHES: [&str; 6] = [
    "lru_add",
    "lru_deactivate_file",
    "lru_deactivate",
    "lru_lazyfree",
    "lru_activate",
    "lru_move_tail",
];
/// Low bits of a pointer that say what `mlock_fbatch` does with the folio (`LRU_FOLIO`, `NEW_FOLIO`).
const MARKS: u64 = 3;

/// Addresses of the first `struct page` of each folio in a batch, in order. Each entry has a reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LruBatches(Vec<u64>);

impl Structure for LruBatches {
    const NAME: &'static str = "lru_batches";

    fn read<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<LruBatches, StructureError> {
        let cpus = PerCpu::new(kernel, view)?;
        let member = |structure, path: &str| kernel.types.member(structure, path);
        let of_cpus = kernel.variable("cpu_fbatches")?;
        let of_mlock = kernel.variable("mlock_fbatch")?;
        let mut places = vec![(of_mlock, member("mlock_fbatch", "fbatch")?)];
        let batches = BATCHES.iter();
        let batches = batches.filter_map(|name| member("cpu_fbatches", name).ok());
        places.extend(batches.map(|batch| (of_cpus, batch)));
        let (count, folios) = (
            member("folio_batch", "nr")?,
            member("folio_batch", "folios")?,
        );
        let mut pages = Vec::new();
        for cpu in 0..cpus.offsets.len() {
            for (variable, batch) in &places {
                let at = cpus.address(*variable, cpu).wrapping_add(batch.offset);
                let entries = view.number("a batch of the LRU lists", at, count)?;
                for entry in 0..entries.min(folios.elements) {
                    let at = at.wrapping_add(folios.offset + 8 * entry);
                    let folio = view.number("a batch of the LRU lists", at, word(8))?;
                    pages.push(folio & !MARKS);
                }
            }
        }
        pages.sort_unstable();
        Ok(LruBatches(pages))
    }
}

impl LruBatches {
    /// Returns how often the batches have the folio whose first `struct page` is at this address.
    #[must_use]
    pub fn of(&self, page: u64) -> u64 {
        let first = self.0.partition_point(|at| *at < page);
        let behind = self.0.partition_point(|at| *at <= page);
        (behind - first) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folio_may_be_in_several() {
        let batches = LruBatches(vec![64, 128, 128, 256]);
        assert_eq!(
            [0, 64, 128, 192, 256, 320].map(|page| batches.of(page)),
            [0, 1, 2, 0, 1, 0]
        );
    }
}
