// SPDX-License-Identifier: GPL-2.0-only
//! Geometry of a lookup level: sizes, the groups of the Contiguous bit, and the bits of a descriptor. It is computed
//! once per regime, so that the walk and the rules only mask.

use crate::{Granule, Level};

/// Bit 0 of a descriptor: it is valid.
pub(crate) const VALID: u64 = 1;
/// Bit 1: table or page, where bit 0 is set.
pub(crate) const TABLE_OR_PAGE: u64 = 1 << 1;
/// Bits \[1:0\], the descriptor type.
pub(crate) const TYPE: u64 = VALID | TABLE_OR_PAGE;
/// AttrIndx\[2:0\], bits \[4:2\] of a leaf.
pub(crate) const ATTR_INDX: u64 = 0b111 << 2;
/// NS, bit 5 of a leaf. RES0 in Non-secure state, which cannot be read from outside.
pub(crate) const NS: u64 = 1 << 5;
/// AP\[2:1\], bits \[7:6\] of a leaf.
pub(crate) const AP: u64 = 0b11 << 6;
/// AP\[1\], bit 6: EL0 has access.
pub(crate) const AP1: u64 = 1 << 6;
/// AP\[2\], bit 7: read-only (and clean, where hardware manages the dirty state).
pub(crate) const AP2: u64 = 1 << 7;
/// SH\[1:0\], bits \[9:8\] of a leaf, unless TCR_EL1.DS makes them OA\[51:50\].
pub(crate) const SH: u64 = 0b11 << 8;
/// Bits \[9:8\] of any descriptor with TCR_EL1.DS: address bits \[51:50\].
pub(crate) const ADDRESS_51_50: u64 = 0b11 << 8;
/// AF, bit 10 of a leaf (and of a table descriptor with FEAT_HAFT).
pub(crate) const AF: u64 = 1 << 10;
/// nG, bit 11 of a leaf.
pub(crate) const NG: u64 = 1 << 11;
/// Bits \[15:12\] of any descriptor of the 64K granule with FEAT_LPA: address bits \[51:48\].
pub(crate) const ADDRESS_51_48: u64 = 0b1111 << 12;
/// nT, bit 16 of a block with FEAT_BBM.
pub(crate) const NT: u64 = 1 << 16;
/// GP, bit 50 of a leaf with FEAT_BTI.
pub(crate) const GP: u64 = 1 << 50;
/// DBM, bit 51 of a leaf.
pub(crate) const DBM: u64 = 1 << 51;
/// Contiguous, bit 52 of a leaf.
pub(crate) const CONTIGUOUS: u64 = 1 << 52;
/// PXN, bit 53 of a leaf.
pub(crate) const PXN: u64 = 1 << 53;
/// UXN, bit 54 of a leaf.
pub(crate) const UXN: u64 = 1 << 54;
/// PBHA, bits \[62:59\] of a leaf: IGNORED unless TCR_EL1 enables them one by one.
pub(crate) const PBHA: u64 = 0b1111 << 59;
/// PXNTable, bit 59 of a table descriptor.
pub(crate) const PXN_TABLE: u64 = 1 << 59;
/// UXNTable, bit 60 of a table descriptor.
pub(crate) const UXN_TABLE: u64 = 1 << 60;
/// NSTable, bit 63 of a table descriptor.
pub(crate) const NS_TABLE: u64 = 1 << 63;

/// Returns the bits `low` to `high`, both inclusive.
pub(crate) const fn bits(high: u32, low: u32) -> u64 {
    if high < low {
        0
    } else {
        (u64::MAX >> (63 - high)) & (u64::MAX << low)
    }
}

/// One lookup level of a regime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelGeometry {
    /// Binary logarithm of the bytes that one descriptor of the level maps.
    pub shift: u32,
    /// Descriptors in a table of this level that fills a page.
    pub entries: usize,
    /// Descriptors in a group of the Contiguous bit; 0 where the bit is RES0 (R_HMQXG).
    pub group: usize,
    /// True if a leaf may be here: a page at level 3, a block where the granule has blocks.
    pub leaf_allowed: bool,
    /// Bits \[49:0\] of a leaf that hold output address in place. With TCR_EL1.DS bits \[9:8\] and at
    /// the 64K granule with FEAT_LPA bits \[15:12\] hold its high bits besides.
    pub leaf_address: u64,
    /// Bits of a leaf that have to be 0: RES0, or output address above the output size.
    pub leaf_zero: u64,
    /// Bits of `leaf_zero` that are output address above the output size.
    pub leaf_beyond: u64,
    /// Bits of a table descriptor that have to be 0.
    pub table_zero: u64,
    /// Bits of `table_zero` that are next-level address above the output size.
    pub table_beyond: u64,
}

/// The features that decide the bits of a descriptor, besides granule and level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    /// Effective TCR_EL1.DS.
    pub ds: bool,
    /// 64K granule with FEAT_LPA: bits \[15:12\] are address, and level 1 has blocks.
    pub lpa: bool,
    /// True if the PE is known to lack FEAT_BBM, so that bit 16 of a block is RES0.
    pub no_nt: bool,
    /// Output size in bits.
    pub pa_bits: u32,
}

impl LevelGeometry {
    pub(crate) fn new(granule: Granule, level: Level, features: Features) -> Self {
        let below = 3 - i32::from(level.number());
        let shift = granule.shift() + granule.stride() * below.unsigned_abs();
        let block = match (granule, level) {
            (Granule::K4, Level::L1 | Level::L2) | (Granule::K16 | Granule::K64, Level::L2) => true,
            (Granule::K4, Level::L0) | (Granule::K16, Level::L1) => features.ds,
            (Granule::K64, Level::L1) => features.lpa,
            _ => false,
        };
        // Table D8-104; blocks that are not in it have a RES0 Contiguous bit (R_HMQXG).
        let group = match (granule, level) {
            (Granule::K4, Level::L1 | Level::L2 | Level::L3) => 16,
            (Granule::K16, Level::L3) => 128,
            (Granule::K16, Level::L2) | (Granule::K64, Level::L2 | Level::L3) => 32,
            _ => 0,
        };
        let top = if features.ds { 49 } else { 47 };
        let beyond = beyond(features);
        // [49:48] are address only with DS. The bits between the address and the attributes are RES0. [15:12] may be
        // address at the 64K granule, and bit 16 of a block may be nT.
        let high = if features.ds { 0 } else { bits(49, 48) };
        let low = |shift: u32| {
            let at_64k = if features.lpa { ADDRESS_51_48 } else { 0 };
            bits(shift - 1, 12) & !at_64k
        };
        let page = level == Level::L3;
        let nt = if page || features.no_nt { 0 } else { NT };
        Self {
            shift,
            entries: granule.table_entries(),
            group,
            leaf_allowed: page || block,
            leaf_address: if shift > top { 0 } else { bits(top, shift) },
            leaf_zero: high | (low(shift.min(48)) & !nt) | beyond,
            leaf_beyond: beyond,
            // Bit 50 of a table descriptor is RES0 in every format; [58:51] are IGNORED.
            table_zero: GP | high | low(granule.shift()) | beyond,
            table_beyond: beyond,
        }
    }
}

/// Returns the bits of a descriptor that hold address bits `pa_bits` and up.
fn beyond(features: Features) -> u64 {
    let mut mask = 0;
    for bit in features.pa_bits..52 {
        mask |= match bit {
            0..=47 => 1 << bit,
            48 | 49 if features.ds => 1 << bit,
            50 | 51 if features.ds => 1 << (bit - 42),
            48..=51 if features.lpa => 1 << (bit - 36),
            _ => 0,
        };
    }
    mask
}
