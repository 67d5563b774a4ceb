// SPDX-License-Identifier: GPL-2.0-only
//! Permission indirection (FEAT_S1PIE) and permission overlays (FEAT_S1POE).
//!
//! With TCR2_EL1.PIE a leaf holds a PIIndex, bits \[54:53\], 51 and 6, in place of permissions. It selects four bits of
//! PIR_EL1 (EL1) and of PIRE0_EL1 (EL0): Arm ARM D8.4.2, tables of the two registers, and
//! `AArch64.S1IndirectBasePermissions()`. Bit 7 is nDirty. Linux uses it since 6.10 (`PIE_E0` and `PIE_E1`,
//! arch/arm64/include/asm/pgtable-prot.h).

use crate::geometry::{AP1, DBM, PXN, UXN};

/// PIRE0_EL1 and PIR_EL1, where TCR2_EL1.PIE is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indirection {
    /// PIRE0_EL1: permissions of EL0.
    pub el0: u64,
    /// PIR_EL1: permissions of EL1.
    pub el1: u64,
}

/// POR_EL0 and POR_EL1, each where TCR2_EL1 applies it and it could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlays {
    /// POR_EL0, with TCR2_EL1.E0POE.
    pub el0: Option<u64>,
    /// POR_EL1, with TCR2_EL1.POE.
    pub el1: Option<u64>,
}

/// Bits of a leaf that make up PIIndex.
pub(crate) const PI_INDEX: u64 = AP1 | DBM | PXN | UXN;

/// Returns the PIIndex of a leaf.
pub(crate) const fn pi_index(word: u64) -> u8 {
    ((word & AP1) >> 6 | (word & DBM) >> 50 | (word & (PXN | UXN)) >> 51) as u8
}

/// Returns the POIndex of a leaf, bits \[62:60\].
pub(crate) const fn po_index(word: u64) -> u8 {
    (word >> 60 & 0b111) as u8
}

/// Permissions of one exception level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent permissions
pub(crate) struct Access {
    pub read: bool,
    pub write: bool,
    pub exec: bool,
    /// A Guarded Control Stack: GCS instructions may write, stores may not.
    gcs: bool,
    /// Memory that is writable after overlays is not executable.
    wxn: bool,
    /// True if an overlay is applied.
    overlaid: bool,
}

impl Access {
    pub const fn new(read: bool, write: bool, exec: bool) -> Self {
        Self {
            read,
            write,
            exec,
            gcs: false,
            wxn: false,
            overlaid: true,
        }
    }

    /// Decodes one field of PIR_EL1 or PIRE0_EL1. A reserved value gives no access.
    const fn of(field: u8) -> Self {
        let mut access = match field {
            0b0001 | 0b1000 | 0b1001 => Self::new(true, false, false),
            0b0010 => Self::new(false, false, true),
            0b0011 | 0b1010 => Self::new(true, false, true),
            0b0101 | 0b1100 => Self::new(true, true, false),
            0b0110 | 0b0111 | 0b1110 => Self::new(true, true, true),
            _ => Self::new(false, false, false),
        };
        access.gcs = field == 0b1001;
        access.wxn = field == 0b0110;
        access.overlaid = field < 0b1000;
        access
    }

    /// Removes the permissions that the overlay of `index` takes, then execution if WXN requires it.
    pub const fn under(mut self, overlay: Option<u64>, index: u8) -> Self {
        if let (Some(por), true) = (overlay, self.overlaid) {
            let allowed = match por >> (index * 4) & 0xf {
                allowed @ 0..=7 => allowed,
                _ => 0,
            };
            self.read &= allowed & 1 != 0;
            self.exec &= allowed & 2 != 0;
            self.write &= allowed & 4 != 0;
        }
        self.exec &= !(self.wxn && self.write);
        self
    }
}

/// Returns the four bits of a register that `index` selects.
const fn field(register: u64, index: u8) -> u8 {
    (register >> (index * 4) & 0xf) as u8
}

impl Indirection {
    /// Returns EL0's and EL1's base permissions by the PIIndex of `word`, before overlays and nDirty.
    ///
    /// If EL0 may write (a Guarded Control Stack counts as writable) and EL1 may execute, neither has access.
    pub(crate) const fn base(self, word: u64) -> (Access, Access) {
        let index = pi_index(word);
        let (el0, el1) = (
            Access::of(field(self.el0, index)),
            Access::of(field(self.el1, index)),
        );
        if (el1.exec || el1.gcs) && (el0.write || el0.gcs) {
            let none = Access::of(0);
            (none, none)
        } else {
            (el0, el1)
        }
    }

    /// Returns whether two leaves' PIIndex select the same permissions.
    pub(crate) const fn same(self, one: u64, other: u64) -> bool {
        let (one, other) = (pi_index(one), pi_index(other));
        field(self.el0, one) == field(self.el0, other)
            && field(self.el1, one) == field(self.el1, other)
    }

    /// Returns whether EL0 or EL1 may write by the base permissions of `word`, so that nDirty counts.
    pub(crate) const fn writes(self, word: u64) -> bool {
        let (el0, el1) = self.base(word);
        el0.write || el0.gcs || el1.write || el1.gcs
    }
}
