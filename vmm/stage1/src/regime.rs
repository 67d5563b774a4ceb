//! A translation regime: everything that a walk needs of the registers, worked out once.

use crate::geometry::{ADDRESS_51_48, ADDRESS_51_50};
use crate::geometry::{AP2, DBM};
use crate::{
    Granule, Half, Indirection, Level, LevelGeometry, Overlays, PhysicalAddress, VirtualAddress,
};

/// Stage 1 of the EL1&0 regime in one half of the address space.
///
/// Flat, and all of it derived from the registers by [`Regime::new`]: the fields that enable a
/// feature are *effective* values, so 0 where the ID registers say that the PE lacks the feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a bit of a register
pub struct Regime {
    /// Which half, and so which of TTBR0_EL1 and TTBR1_EL1.
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
    /// TCR_EL1.TBIDn: TBIn holds for data only.
    pub tbid: bool,
    /// TCR_EL1.E0PDn: EL0 has no access to this half.
    pub e0pd: bool,
    /// TCR_EL1.EPDn: no walk. Nothing is mapped then beyond what TLBs still hold.
    pub epd: bool,
    /// TCR_EL1.NFDn: no walk for non-fault accesses.
    pub nfd: bool,
    /// SCTLR_EL1.WXN: what is writable is not executable.
    pub wxn: bool,
    /// TCR2_EL1.HAFT: bit 10 of a table descriptor is its AF.
    pub haft: bool,
    /// With TCR2_EL1.PIE what a leaf's PIIndex stands for; `None` where its own bits are its permissions.
    pub indirection: Option<Indirection>,
    /// What permission overlays leave. One that applies and could not be read is not here.
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
    /// By [`Level::index`].
    pub levels: [LevelGeometry; 5],
}

impl Regime {
    /// The geometry of `level`.
    #[must_use]
    pub const fn level(&self, level: Level) -> &LevelGeometry {
        &self.levels[level.index()]
    }

    /// Bytes that one descriptor of `level` maps.
    #[must_use]
    pub const fn entry_size(&self, level: Level) -> u64 {
        1 << self.level(level).shift
    }

    /// Descriptors of a table of `level` as this regime walks it: the first may be smaller.
    #[must_use]
    pub fn entries(&self, level: Level) -> usize {
        if level == self.root_level {
            self.root_entries
        } else {
            self.level(level).entries
        }
    }

    /// Descriptors in a group of the Contiguous bit, or `None` where the bit is RES0.
    #[must_use]
    pub const fn contiguous_entries(&self, level: Level) -> Option<usize> {
        match self.level(level).group {
            0 => None,
            entries => Some(entries),
        }
    }

    /// Whether a *block* may be at `level` (so never at level 3, which has pages).
    #[must_use]
    pub fn block_allowed(&self, level: Level) -> bool {
        level != Level::L3 && self.level(level).leaf_allowed
    }

    /// Whether `va` is translated by this half's tables; with TBI whatever its top byte.
    #[must_use]
    pub fn contains(&self, va: VirtualAddress) -> bool {
        let va = self.canonical(va);
        self.first <= va && va <= self.last
    }

    /// `va` without its tag: with TBI the top byte is a copy of bit 55, else `va` itself.
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

    /// Place of `va` in a table of `level` that starts at `base`.
    #[must_use]
    pub const fn index(&self, level: Level, base: VirtualAddress, va: VirtualAddress) -> usize {
        #[allow(clippy::cast_possible_truncation)] // at most 8191
        let index = (va.0.wrapping_sub(base.0) >> self.level(level).shift) as usize;
        index
    }

    /// The output address of a leaf of `level`.
    #[must_use]
    pub const fn output_address(&self, level: Level, word: u64) -> PhysicalAddress {
        PhysicalAddress(word & self.level(level).leaf_address | self.high_address(word))
    }

    /// The next-level table address of a table descriptor (of any level).
    #[must_use]
    pub const fn next_table(&self, word: u64) -> PhysicalAddress {
        let low = self.level(Level::L3).leaf_address;
        PhysicalAddress(word & low | self.high_address(word))
    }

    /// The address bits that a descriptor does not hold in place.
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
    /// Whether bit 7 of a leaf (AP\[2\], or nDirty) can mean that nothing has been written yet, and does not
    /// say who may write.
    pub(crate) const fn has_dirty_state(&self, word: u64) -> bool {
        match self.indirection {
            Some(indirection) => indirection.writes(word),
            None => self.hd && word & DBM != 0,
        }
    }

    /// Whether the PE clears bit 7 of `word` by itself at a write.
    pub(crate) const fn dirty_managed(&self, word: u64) -> bool {
        self.hd && self.has_dirty_state(word)
    }

    /// The PIIndex values, or with direct permissions the values of the same bits, for which
    /// [`Regime::dirty_managed`] holds: bit by bit.
    pub(crate) fn dirty_indices(&self) -> u16 {
        let of = |index: u64| (index & 1) << 6 | (index >> 1 & 1) << 51 | (index >> 2 & 3) << 53;
        let managed = (0..16).filter(|index| self.dirty_managed(of(*index)));
        managed.fold(0, |all, index| all | 1 << index)
    }

    /// Whether bit 7 of `word` keeps everyone from writing: it is set, and the PE does not clear it.
    pub(crate) const fn clean(&self, word: u64) -> bool {
        word & AP2 != 0 && !self.dirty_managed(word)
    }
}
