// SPDX-License-Identifier: GPL-2.0-only
//! Words at random, the same in each run.

use super::guest::PA;

/// xorshift64*.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn any(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A word that is often a leaf, often near others, and sometimes anything.
    pub fn word(&mut self) -> u64 {
        let word = self.any();
        match word % 8 {
            0 => 0,
            1 => word,
            2 => word & !3,
            3 => (word & 0x0fff_0000_0000_0fff) | 3,
            4 => (word & !0xffff_ffff_f000) | PA | 1,
            _ => PA | (word & 0xf_f000) | (word & 0x07f8_0000_0000_0fc0) | 3,
        }
    }
}
