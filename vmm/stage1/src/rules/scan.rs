// SPDX-License-Identifier: GPL-2.0-only
//! The quick path: checks whether a stretch of a level 3 table is faultless, eight descriptors at a time and without a
//! branch on any of them.
//!
//! It answers only "clean" or "may have a fault". It compares each descriptor with a pattern that the first one of its
//! window (its possible group) sets:
//!
//! - A valid descriptor has bit 1 set, and 0 where 0 has to be.
//! - If the first one is valid and has the Contiguous bit, the other valid ones have it too. They differ from it only
//!   in the bits that may differ and in the output address, which grows by a page each.
//! - Otherwise no valid descriptor has the bit.

use std::ops::AddAssign;

use super::group;
use crate::geometry::{ADDRESS_51_48, ADDRESS_51_50, AP2, CONTIGUOUS, TABLE_OR_PAGE, VALID};
use crate::indirection::pi_index;
use crate::{Level, Regime};

/// Number of descriptors compared together: two vectors of AVX2, four of NEON or SSE2.
const LANES: usize = 8;

/// Counts of a stretch of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Valid blocks and pages.
    pub leaves: u64,
    /// Groups of the Contiguous bit.
    pub groups: u64,
    /// Violations reported.
    pub violations: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.leaves += other.leaves;
        self.groups += other.groups;
        self.violations += other.violations;
    }
}

/// The pattern with which the pages of a regime are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    group: usize,
    /// The size of a page, in the place of the output address.
    step: u64,
    /// Bits that have to be 0 in a valid page. Bit 1 is included, inverted.
    zero: u64,
    /// Bits of the first member's output address that are 0 in an aligned group.
    alignment: u64,
    /// Bits in which members may not differ.
    same: u64,
    /// The PIIndex values (or direct permissions in the same bits) for which the PE clears AP\[2\] itself.
    dirty: u16,
}

impl Pattern {
    pub fn pages(regime: &Regime) -> Self {
        let level = regime.level(Level::L3);
        let step = 1 << level.shift;
        let high = match (regime.ds, regime.lpa) {
            (true, _) => ADDRESS_51_50,
            (false, true) => ADDRESS_51_48,
            (false, false) => 0,
        };
        Self {
            group: level.group,
            step,
            zero: level.leaf_zero | TABLE_OR_PAGE,
            alignment: step * (level.group as u64 - 1),
            same: group::compared(regime) | level.leaf_address | high,
            dirty: regime.dirty_indices(),
        }
    }

    /// Returns the number of descriptors in a group.
    pub const fn group(&self) -> usize {
        self.group
    }

    /// Returns the counts of `words`, whole windows of level 3, if no rule has a finding there; `None` if one may.
    pub fn clean(&self, words: &[u64]) -> Option<Tally> {
        match self.group {
            16 => self.dispatch::<16>(words),
            32 => self.dispatch::<32>(words),
            _ => self.dispatch::<128>(words),
        }
    }

    fn dispatch<const GROUP: usize>(&self, words: &[u64]) -> Option<Tally> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2, which is the function's only requirement.
            return unsafe { self.scan_avx2::<GROUP>(words) };
        }
        self.scan::<GROUP>(words)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    // SAFETY: the caller checks that the CPU has AVX2. The body is safe code.
    unsafe fn scan_avx2<const GROUP: usize>(&self, words: &[u64]) -> Option<Tally> {
        self.scan::<GROUP>(words)
    }

    #[inline(always)] // so that it is compiled for AVX2 where it is called from there
    #[allow(clippy::inline_always)]
    fn scan<const GROUP: usize>(&self, words: &[u64]) -> Option<Tally> {
        let mut wrong = [0_u64; LANES];
        let mut leaves = [0_u64; LANES];
        let mut misaligned = 0;
        let mut groups = 0;
        let mut lane = [0_u64; LANES];
        for (i, offset) in lane.iter_mut().enumerate() {
            *offset = i as u64 * self.step;
        }
        for window in words.chunks_exact(GROUP) {
            let first = window[0];
            // All ones where the window is a group, and where it is one that hardware marks dirty.
            let is_group = ((first & VALID) & (first / CONTIGUOUS)).wrapping_neg();
            let dirty = u64::from(self.dirty >> pi_index(first) & 1) * AP2;
            // In a window that is no group only the Contiguous bit is compared, with 0.
            let same = (is_group & self.same & !dirty) | CONTIGUOUS;
            let mut expected = [0_u64; LANES];
            for i in 0..LANES {
                expected[i] = (first & is_group).wrapping_add(lane[i]);
            }
            misaligned |= first & is_group & self.alignment;
            groups += is_group & 1;
            for part in window.chunks_exact(LANES) {
                for i in 0..LANES {
                    let word = part[i];
                    let valid = (word & VALID).wrapping_neg();
                    let bad = ((word ^ TABLE_OR_PAGE) & self.zero) | ((word ^ expected[i]) & same);
                    wrong[i] |= bad & valid;
                    leaves[i] = leaves[i].wrapping_sub(valid);
                    expected[i] = expected[i].wrapping_add(self.step * LANES as u64);
                }
            }
        }
        if misaligned | wrong.iter().fold(0, |all, lane| all | lane) != 0 {
            return None;
        }
        Some(Tally {
            leaves: leaves.iter().sum(),
            groups,
            violations: 0,
        })
    }
}
