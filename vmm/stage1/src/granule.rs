// SPDX-License-Identifier: GPL-2.0-only
//! Granules, halves of the address space and lookup levels.

use std::fmt;

/// The translation granule: the size of a page and of every table but the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Granule {
    /// 4 KiB pages, 512 descriptors a table.
    K4,
    /// 16 KiB pages, 2048 descriptors a table.
    K16,
    /// 64 KiB pages, 8192 descriptors a table.
    K64,
}

impl Granule {
    /// All granules, smallest first.
    pub const ALL: [Self; 3] = [Self::K4, Self::K16, Self::K64];

    /// Returns the binary logarithm of the page size in bytes.
    #[must_use]
    pub const fn shift(self) -> u32 {
        match self {
            Self::K4 => 12,
            Self::K16 => 14,
            Self::K64 => 16,
        }
    }

    /// Returns the page size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// Returns the number of address bits that one full table resolves. A descriptor has 8 bytes.
    #[must_use]
    pub const fn stride(self) -> u32 {
        self.shift() - 3
    }

    /// Returns the number of descriptors in a table that fills a page.
    #[must_use]
    pub const fn table_entries(self) -> usize {
        1 << self.stride()
    }
}

impl fmt::Display for Granule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::K4 => "4K",
            Self::K16 => "16K",
            Self::K64 => "64K",
        })
    }
}

/// One of the two VA ranges of the EL1&0 regime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Half {
    /// From VA 0 upwards: TTBR0_EL1, user memory under Linux.
    Lower,
    /// Down from the last VA: TTBR1_EL1, kernel memory under Linux.
    Upper,
}

impl Half {
    /// Both halves.
    pub const ALL: [Self; 2] = [Self::Lower, Self::Upper];

    /// Returns the digit in TTBRn, TnSZ, TGn and so on.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Lower => 0,
            Self::Upper => 1,
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lower => "lower half (TTBR0_EL1)",
            Self::Upper => "upper half (TTBR1_EL1)",
        })
    }
}

/// A lookup level: -1 (only with `TCR_EL1.DS` and more than 48 bits of VA) to 3 (pages).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i8)]
pub enum Level {
    /// Level -1.
    Minus1 = -1,
    /// Level 0.
    L0 = 0,
    /// Level 1.
    L1 = 1,
    /// Level 2.
    L2 = 2,
    /// Level 3, the last one.
    L3 = 3,
}

impl Level {
    /// All levels in the order of a walk.
    pub const ALL: [Self; 5] = [Self::Minus1, Self::L0, Self::L1, Self::L2, Self::L3];

    /// Returns the level as the Arm ARM numbers it.
    #[must_use]
    pub const fn number(self) -> i8 {
        self as i8
    }

    /// Returns the level with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: i8) -> Option<Self> {
        match number {
            -1 => Some(Self::Minus1),
            0 => Some(Self::L0),
            1 => Some(Self::L1),
            2 => Some(Self::L2),
            3 => Some(Self::L3),
            _ => None,
        }
    }

    /// Returns the index in an array that has one element per level: level -1 is 0, level 3 is 4.
    #[must_use]
    pub const fn index(self) -> usize {
        // Never negative: the smallest level is -1.
        (self as i8 + 1).unsigned_abs() as usize
    }

    /// Returns the level that a table descriptor of this level leads to.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        Self::from_number(self as i8 + 1)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}
