// SPDX-License-Identifier: GPL-2.0-only
//! The pages that the tables of an address space map.

use linux::pte::{Kind, Pte, SwapKind};
use stage1::{Descend, Level, Regime, Table, Visitor};

/// The pages that tables map, as runs of page frame numbers (first and count), and the tables themselves.
pub struct MappedPages {
    pub regime: Regime,
    pub runs: Vec<(u64, u64)>,
    /// The same for entries that no counter has, or that may be counted and map nothing.
    pub uncounted: Vec<(u64, u64)>,
    /// The physical addresses of all but the first one, which need not be a page of its own and has no lock of its own.
    pub tables: Vec<u64>,
}

impl<'m> Visitor<'m> for MappedPages {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let regime = &{ self.regime };
        if table.address != regime.root {
            self.tables.push(table.address.0);
        }
        let size = regime.granule.bytes();
        let pages = regime.entry_size(table.level) / size;
        for &word in table.words {
            let pte = Pte(word);
            let leaf = match table.level {
                Level::L3 => word & 3 == 3,
                level => word & 3 == 1 && regime.level(level).leaf_allowed,
            };
            if !(leaf || pte.present_invalid()) {
                if word != 0 {
                    self.lent(pte, pages);
                }
                continue;
            }
            let pfn = regime.output_address(table.level, word).0 / size;
            if pte.special() || pte.devmap() {
                self.uncounted.push((pfn, pages));
                continue;
            }
            match self
                .runs
                .last_mut()
                .filter(|(first, count)| first + count == pfn)
            {
                Some((_, count)) => *count += pages,
                None => self.runs.push((pfn, pages)),
            }
        }
        Descend::Into
    }
}

impl MappedPages {
    /// Creates it for the tables of this half, before any walk.
    pub fn new(regime: Regime) -> MappedPages {
        MappedPages {
            regime,
            runs: Vec::new(),
            uncounted: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// An entry of the kind that a page has on its way, or while a device has it for itself: that page may be counted still.
    fn lent(&mut self, pte: Pte, pages: u64) {
        match pte.kind() {
            Kind::Swap(entry) if entry.kind() == SwapKind::Special => {
                let bits = self.regime.granule.bytes().trailing_zeros();
                let pfn = entry.offset & ((1 << (PHYSICAL - bits)) - 1);
                self.uncounted.push((pfn, pages));
            }
            _ => {}
        }
    }
}

/// Above the page frame number of an address so wide there may be more in such an entry (`SWP_PFN_BITS`).
const PHYSICAL: u32 = 48;
