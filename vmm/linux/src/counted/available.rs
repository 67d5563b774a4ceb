// SPDX-License-Identifier: GPL-2.0-only
//! Available memory, as the kernel estimates it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Memory that can be allocated without swapping (`MemAvailable`), and its parts, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Available {
    /// All of it ([`Available::sum`]).
    pub pages: i64,
    /// `NR_FREE_PAGES`, over all zones.
    pub free: i64,
    /// `totalreserve_pages`: pages that the kernel reserves.
    pub reserved: i64,
    /// `NR_ACTIVE_FILE` and `NR_INACTIVE_FILE`: the page cache that can be reclaimed.
    pub cache: i64,
    /// `NR_SLAB_RECLAIMABLE_B` and `NR_KERNEL_MISC_RECLAIMABLE`.
    pub reclaimable: i64,
    /// The low marks of all zones (`low_wmark_pages()`).
    pub low: i64,
}

impl Available {
    /// Sums it up as `si_mem_available()` (mm/show_mem.c) does: of reclaimable memory a low watermark or half of it is
    /// kept, whichever is less.
    pub fn sum(&mut self) {
        let most = |pages: i64| pages - (pages / 2).min(self.low);
        let pages = self.free - self.reserved + most(self.cache) + most(self.reclaimable);
        self.pages = pages.max(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_can_be_reclaimed_some_is_kept() {
        let sum = |free, cache, reclaimable| {
            let (reserved, low, pages) = (50, 40, 0);
            let mut all = Available {
                pages,
                free,
                reserved,
                cache,
                reclaimable,
                low,
            };
            all.sum();
            all.pages
        };
        // The low watermark of each zone, or half of the memory if that is less; never below 0.
        let sums = [sum(1000, 100, 10), sum(1000, 60, 0), sum(10, 0, 0)];
        assert_eq!(sums, [950 + 60 + 5, 950 + 30, 0]);
    }
}
