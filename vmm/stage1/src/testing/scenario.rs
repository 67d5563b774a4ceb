// SPDX-License-Identifier: GPL-2.0-only
//! Tables for measurements: 4 GiB mapped by 4K pages, 1.05 million descriptors.

use super::{Attributes, Layout, TableBuilder};
use crate::{walk, Descend, Granule, Half, PhysMemory, Regime, Table, Visitor};

/// Number of pages mapped: 2048 full tables of 4K pages.
pub const PAGES: u64 = 1 << 20;

/// The way the pages are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// All pages are in contiguous groups.
    Folded,
    /// No page is in a contiguous group.
    Unfolded,
    /// Groups, single pages and holes in turn, with AF and the dirty state differing.
    Mixed,
    /// As `Folded`, but in each table one member of one group lacks the bit: 2048 violations.
    Broken,
}

impl Scenario {
    /// All scenarios.
    pub const ALL: [Self; 4] = [Self::Folded, Self::Unfolded, Self::Mixed, Self::Broken];

    /// Returns the name of the scenario.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Folded => "folded",
            Self::Unfolded => "unfolded",
            Self::Mixed => "mixed",
            Self::Broken => "broken",
        }
    }

    /// Writes the tables.
    #[must_use]
    pub fn build(self) -> TableBuilder {
        let mut tables =
            TableBuilder::new(Layout::new(Granule::K4, Half::Lower, 48).hardware_dirty());
        let pa = 0x1_0000_0000;
        for page in 0..PAGES {
            let (block, member) = (page / 16, page % 16);
            let contiguous = match self {
                Self::Folded => true,
                Self::Unfolded => false,
                Self::Mixed => match block % 4 {
                    0 | 1 => true,
                    2 if member > 11 => continue,
                    _ => false,
                },
                Self::Broken => page % 512 != 77,
            };
            let mixed = self == Self::Mixed;
            let attributes = Attributes {
                af: !mixed || page % 3 != 0,
                ap: if mixed && page % 5 == 0 { 0b11 } else { 0b01 },
                ..Attributes::default()
            };
            tables.map_page(page << 12, pa + (page << 12), attributes, contiguous);
        }
        tables
    }
}

#[derive(Default)]
struct Collect<'m>(Vec<&'m [u64]>);

impl<'m> Visitor<'m> for Collect<'m> {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        self.0.push(table.words);
        Descend::Into
    }
}

/// Returns all tables of a regime, in the walk's order, so that they can be summed without walking.
pub fn tables<'m, M: PhysMemory + ?Sized>(memory: &'m M, regime: &Regime) -> Vec<&'m [u64]> {
    let mut collect = Collect::default();
    walk(memory, regime, regime.first, regime.last, &mut collect);
    collect.0
}

/// Returns the sum of all words, by vectors if the CPU has them: the lower bound on the cost of reading them.
#[must_use]
pub fn sum(tables: &[&[u64]]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { sum_avx2(tables) };
    }
    lanes(tables)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
// SAFETY: the caller checks that the CPU has AVX2. The body is safe code.
unsafe fn sum_avx2(tables: &[&[u64]]) -> u64 {
    lanes(tables)
}

#[inline(always)] // so that it is compiled for AVX2 where it is called from there
#[allow(clippy::inline_always)]
fn lanes(tables: &[&[u64]]) -> u64 {
    let mut lanes = [0_u64; 16];
    for words in tables {
        for part in words.chunks_exact(16) {
            for (lane, word) in lanes.iter_mut().zip(part) {
                *lane = lane.wrapping_add(*word);
            }
        }
    }
    lanes.iter().fold(0, |all, lane| all.wrapping_add(*lane))
}
