// SPDX-License-Identifier: GPL-2.0-only
//! A translation regime: all fields of the registers that a walk needs, computed once.

use crate::geometry::{ADDRESS_51_48, ADDRESS_51_50};
use crate::geometry::{AP2, DBM};
use crate::{
    Granule, Half, Indirection, Level, LevelGeometry, Overlays, PhysicalAddress, VirtualAddress,
};

/// Stage 1 of the EL1&0 regime in one half of the address space.
///
/// [`Regime::new`] derives all fields from the registers. A field that enables a feature is its *effective* value: 0 if
/// by the ID registers the PE lacks the feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a bit of a register
pub struct Regime {
    /// The half, which selects TTBR0_EL1 or TTBR1_EL1.
    pub half: Half,
    /// TCR_EL1.TGn.
    pub granule: Granule,
    /// Input size in bits: 64 less TCR_EL1.TnSZ.
    pub va_bits: u32,
    /// Output size in bits: TCR_EL1.IPS, limited by ID_AA64MMFR0_EL1.PARange and by the format.
    pub pa_bits: u32,
    /// TCR_EL1.DS: 52-bit descriptors of the 4K and 16K granules (FEAT_LPA2).
    pub ds: bool,
    /// The 64K granule on a PE that has FEAT_LPA or may have it: bits \[15:12\] are address.
    pub lpa: bool,
    /// TCR_EL1.HA: the PE sets AF.
    pub ha: bool,
    /// TCR_EL1.HD (0 without HA): the PE clears AP\[2\] where DBM is 1.
    pub hd: bool,
    /// TCR_EL1.HPDn, or TCR2_EL1.PIE: hierarchical attributes are off.
    pub hpd: bool,
    /// TCR_EL1.TBIn: the top byte of an address is ignored.
    pub tbi: bool,
    /// TCR_EL1.TBIDn: TBIn applies to data only.
    pub tbid: bool,
    /// TCR_EL1.E0PDn: EL0 has no access to this half.
    pub e0pd: bool,
    /// TCR_EL1.EPDn: no walk. Only entries that TLBs still hold translate.
    pub epd: bool,
    /// TCR_EL1.NFDn: no walk for non-fault accesses.
    pub nfd: bool,
    /// SCTLR_EL1.WXN: writable memory is not executable.
    pub wxn: bool,
    /// TCR2_EL1.HAFT: bit 10 of a table descriptor is its AF.
    pub haft: bool,
    /// The permissions by PIIndex, with TCR2_EL1.PIE; `None` if a leaf's own bits are its permissions.
    pub indirection: Option<Indirection>,
    /// The permissions that overlays leave. An overlay that applies and could not be read is absent.
    pub overlays: Overlays,
    /// TCR2_EL1.AIE: bit 59 is AttrIndx\[3\].
    pub aie: bool,
    /// Bits \[62:59\] of a leaf that the PE may use: as PBHA, POIndex or AttrIndx\[3\].
    pub upper_attributes: u64,
    /// The ASID in use, from the TTBR that TCR_EL1.A1 names.
    pub asid: u16,
    /// TTBRn_EL1.CnP.
    pub cnp: bool,
    /// The first table.
    pub root: PhysicalAddress,
    /// Level of the first table.
    pub root_level: Level,
    /// Descriptors of the first table: from 2 to [`Granule::table_entries`].
    pub root_entries: usize,
    /// Lowest VA of the half.
    pub first: VirtualAddress,
    /// Highest VA of the half.
    pub last: VirtualAddress,
    /// MAIR_EL1.
    pub mair: u64,
    /// The geometry of each level, by [`Level::index`].
    pub levels: [LevelGeometry; 5],
}

impl Regime {
    /// Returns the geometry of `level`.
    #[must_use]
    pub const fn level(&self, level: Level) -> &LevelGeometry {
        &self.levels[level.index()]
    }

    /// Returns the number of bytes that one descriptor of `level` maps.
    #[must_use]
    pub const fn entry_size(&self, level: Level) -> u64 {
        1 << self.level(level).shift
    }

    /// Returns the number of descriptors in a table of `level`. The first table may be smaller than others.
    #[must_use]
    pub fn entries(&self, level: Level) -> usize {
        if level == self.root_level {
            self.root_entries
        } else {
            self.level(level).entries
        }
    }

    /// Returns the number of descriptors in a group of the Contiguous bit; `None` if the bit is RES0.
    #[must_use]
    pub const fn contiguous_entries(&self, level: Level) -> Option<usize> {
        match self.level(level).group {
            0 => None,
            entries => Some(entries),
        }
    }

    /// Returns whether a *block* may be at `level`. Level 3 has pages, and never a block.
    #[must_use]
    pub fn block_allowed(&self, level: Level) -> bool {
        level != Level::L3 && self.level(level).leaf_allowed
    }

    /// Returns whether this half's tables translate `va`; with TBI the top byte is ignored.
    #[must_use]
    pub fn contains(&self, va: VirtualAddress) -> bool {
        let va = self.canonical(va);
        self.first <= va && va <= self.last
    }

    /// Returns `va` without its tag. With TBI the top byte becomes a copy of bit 55.
    #[must_use]
    #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]
    pub const fn canonical(&self, va: VirtualAddress) -> VirtualAddress {
        if self.tbi {
            // Sign-extends from bit 55.
            VirtualAddress((((va.0 << 8) as i64) >> 8) as u64)
        } else {
            va
        }
    }

    /// Returns the index of `va` in a table of `level` that starts at `base`.
    #[must_use]
    pub const fn index(&self, level: Level, base: VirtualAddress, va: VirtualAddress) -> usize {
        #[allow(clippy::cast_possible_truncation)] // at most 8191
        let index = (va.0.wrapping_sub(base.0) >> self.level(level).shift) as usize;
        index
    }

    /// Returns the output address of a leaf of `level`.
    #[must_use]
    pub const fn output_address(&self, level: Level, word: u64) -> PhysicalAddress {
        PhysicalAddress(word & self.level(level).leaf_address | self.high_address(word))
    }

    /// Returns the next-level table address of a table descriptor (of any level).
    #[must_use]
    pub const fn next_table(&self, word: u64) -> PhysicalAddress {
        let low = self.level(Level::L3).leaf_address;
        PhysicalAddress(word & low | self.high_address(word))
    }

    /// Returns the address bits that a descriptor holds in another place.
    const fn high_address(&self, word: u64) -> u64 {
        if self.ds {
            (word & ADDRESS_51_50) << 42
        } else if self.lpa {
            (word & ADDRESS_51_48) << 36
        } else {
            0
        }
    }
}

impl Regime {
    /// Returns whether bit 7 of a leaf (AP\[2\], or nDirty) can mean that the memory is clean, rather than who may
    /// write.
    pub(crate) const fn has_dirty_state(&self, word: u64) -> bool {
        match self.indirection {
            Some(indirection) => indirection.writes(word),
            None => self.hd && word & DBM != 0,
        }
    }

    /// Returns whether the PE clears bit 7 of `word` by itself at a write.
    pub(crate) const fn dirty_managed(&self, word: u64) -> bool {
        self.hd && self.has_dirty_state(word)
    }

    /// Returns the PIIndex values for which [`Regime::dirty_managed`] is true, one bit each. With direct permissions
    /// the same bits of the descriptor are the value.
    pub(crate) fn dirty_indices(&self) -> u16 {
        let of = |index: u64| (index & 1) << 6 | (index >> 1 & 1) << 51 | (index >> 2 & 3) << 53;
        let managed = (0..16).filter(|index| self.dirty_managed(of(*index)));
        managed.fold(0, |all, index| all | 1 << index)
    }

    /// Returns whether bit 7 of `word` prevents all writes: it is set, and the PE does not clear it.
    pub(crate) const fn clean(&self, word: u64) -> bool {
        word & AP2 != 0 && !self.dirty_managed(word)
    }
}
