// SPDX-License-Identifier: GPL-2.0-only
//! Contents of pages that rules ask for: of shmem's folios that are not dirty (C5).

use linux::pte::Pte;
use linux::structures::Folios;
use stage1::{
    walk, Descend, Level, PhysMemory, PhysicalAddress, Regime, Table, Visitor, WalkProblem,
};

/// `KPF_DIRTY` (include/uapi/linux/kernel-page-flags.h).
const DIRTY: u64 = 1 << 4;

/// Reads the contents of each such folio that one of these halves maps, so that a copy holds them.
pub(crate) fn read_clean<M: PhysMemory + ?Sized>(
    memory: &M,
    folios: &dyn Folios,
    halves: &[Regime],
) {
    for half in halves {
        let mut read = Read {
            memory,
            folios,
            regime: *half,
        };
        walk(memory, half, half.first, half.last, &mut read);
    }
}

struct Read<'a, M: ?Sized> {
    memory: &'a M,
    folios: &'a dyn Folios,
    regime: Regime,
}

impl<'m, M: PhysMemory + ?Sized> Visitor<'m> for Read<'_, M> {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let size = self.regime.granule.bytes();
        let pages = self.regime.entry_size(table.level) / size;
        for word in table.words {
            let pte = Pte(*word);
            // A table descriptor and a page's descriptor differ by the level alone.
            let is_leaf = table.level == Level::L3 || *word & 0b11 == 0b01;
            if !is_leaf || !pte.present() || pte.special() {
                continue;
            }
            let first = self.regime.output_address(table.level, *word).0 / size;
            let mut pfn = first;
            while pfn < first + pages {
                let Ok(page) = self.folios.page(pfn) else {
                    break;
                };
                let (known, set) = self.folios.copied(&page);
                let behind = page.head + page.pages();
                if page.shmem() && known & DIRTY != 0 && set & DIRTY == 0 {
                    for pfn in page.head..behind {
                        let _ = self
                            .memory
                            .words(PhysicalAddress(pfn * size), (size / 8) as usize);
                    }
                }
                pfn = behind.max(pfn + 1);
            }
        }
        Descend::Into
    }

    fn problem(&mut self, _: &WalkProblem) {}
}
