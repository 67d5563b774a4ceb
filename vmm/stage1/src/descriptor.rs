// SPDX-License-Identifier: GPL-2.0-only
//! Decodes one descriptor: its kind and its fields by the Arm ARM's names, from the raw word, the level and the regime
//! alone.

use std::fmt;

use crate::geometry::{
    AF, AP, AP2, ATTR_INDX, CONTIGUOUS, DBM, GP, NG, NS, NS_TABLE, NT, PBHA, PXN, PXN_TABLE, SH,
    TYPE, UXN, UXN_TABLE, VALID,
};
use crate::indirection::pi_index;
use crate::{Level, PhysicalAddress, Regime};

/// Kind of a descriptor, by its bits \[1:0\] and its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bit 0 is 0: no translation. All other bits are free for software.
    Invalid,
    /// 0b01 at level 3, or where the granule has no block. Reserved: no translation.
    Reserved,
    /// Leads to a table of the next level.
    Table,
    /// A leaf above level 3.
    Block,
    /// A leaf at level 3.
    Page,
}

impl Kind {
    /// Returns whether the descriptor is a block or a page, so that it holds an output address.
    #[must_use]
    pub const fn is_leaf(self) -> bool {
        matches!(self, Self::Block | Self::Page)
    }
}

/// A stage 1 descriptor. The accessor of a field that its kind does not have returns the bits at that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor<'r> {
    /// The raw word.
    pub word: u64,
    /// The level of its table.
    pub level: Level,
    regime: &'r Regime,
}

impl<'r> Descriptor<'r> {
    /// Reads `word` as a descriptor of `level`.
    #[must_use]
    pub const fn new(word: u64, level: Level, regime: &'r Regime) -> Self {
        Self {
            word,
            level,
            regime,
        }
    }

    /// Returns the regime that gives the bits their meaning.
    #[must_use]
    pub const fn regime(&self) -> &'r Regime {
        self.regime
    }

    /// Returns the kind. A RES0 bit that is set does not change it.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match (self.word & TYPE, self.level) {
            (0b11, Level::L3) => Kind::Page,
            (0b11, _) => Kind::Table,
            (0b01, Level::L3) => Kind::Reserved,
            (0b01, _) if self.regime.level(self.level).leaf_allowed => Kind::Block,
            (0b01, _) => Kind::Reserved,
            _ => Kind::Invalid,
        }
    }

    const fn has(&self, mask: u64) -> bool {
        self.word & mask != 0
    }

    #[allow(clippy::cast_possible_truncation)] // every field has at most 4 bits
    const fn field(&self, mask: u64) -> u8 {
        ((self.word & mask) >> mask.trailing_zeros()) as u8
    }

    /// Returns bit 0.
    #[must_use]
    pub const fn valid(&self) -> bool {
        self.has(VALID)
    }

    /// Returns the output address of a leaf.
    #[must_use]
    pub const fn output_address(&self) -> PhysicalAddress {
        self.regime.output_address(self.level, self.word)
    }

    /// Returns the next-level table address of a table descriptor.
    #[must_use]
    pub const fn next_table(&self) -> PhysicalAddress {
        self.regime.next_table(self.word)
    }

    /// Returns AttrIndx\[2:0\], and AttrIndx\[3\] with TCR2_EL1.AIE.
    #[must_use]
    pub const fn attr_indx(&self) -> u8 {
        let high = if self.regime.aie {
            self.field(1 << 59)
        } else {
            0
        };
        self.field(ATTR_INDX) | high << 3
    }

    /// Returns the byte of MAIR_EL1 that AttrIndx selects; `None` if it is in MAIR2_EL1.
    #[must_use]
    pub const fn memory_attributes(&self) -> Option<u8> {
        match self.attr_indx() {
            index @ 0..=7 => Some((self.regime.mair >> (index * 8) & 0xff) as u8),
            _ => None,
        }
    }

    /// Returns NS, bit 5. It has a meaning in Secure state only.
    #[must_use]
    pub const fn ns(&self) -> bool {
        self.has(NS)
    }

    /// Returns AP\[2:1\]: 0b00 read-write for EL1, 0b01 also for EL0, 0b10 and 0b11 read-only.
    #[must_use]
    pub const fn ap(&self) -> u8 {
        self.field(AP)
    }

    /// Returns SH\[1:0\]; `None` with TCR_EL1.DS, where the bits are part of the address.
    #[must_use]
    pub const fn sh(&self) -> Option<u8> {
        if self.regime.ds {
            None
        } else {
            Some(self.field(SH))
        }
    }

    /// Returns AF.
    #[must_use]
    pub const fn af(&self) -> bool {
        self.has(AF)
    }

    /// Returns nG.
    #[must_use]
    pub const fn ng(&self) -> bool {
        self.has(NG)
    }

    /// Returns nT (FEAT_BBM). Only a block has it; in a page the bit is part of the address.
    #[must_use]
    pub const fn nt(&self) -> bool {
        matches!(self.kind(), Kind::Block) && self.has(NT)
    }

    /// Returns GP (FEAT_BTI).
    #[must_use]
    pub const fn gp(&self) -> bool {
        self.has(GP)
    }

    /// Returns DBM.
    #[must_use]
    pub const fn dbm(&self) -> bool {
        self.has(DBM)
    }

    /// Returns the Contiguous bit of a leaf. Other descriptors have none (I_PGVGZ).
    #[must_use]
    pub const fn contiguous(&self) -> bool {
        self.kind().is_leaf() && self.has(CONTIGUOUS)
    }

    /// Returns PIIndex, which stands for all permissions with TCR2_EL1.PIE.
    #[must_use]
    pub const fn pi_index(&self) -> Option<u8> {
        match self.regime.indirection {
            Some(_) => Some(pi_index(self.word)),
            None => None,
        }
    }

    /// Returns PXN.
    #[must_use]
    pub const fn pxn(&self) -> bool {
        self.has(PXN)
    }

    /// Returns UXN.
    #[must_use]
    pub const fn uxn(&self) -> bool {
        self.has(UXN)
    }

    /// Returns bits \[58:55\], which the architecture leaves to software.
    #[must_use]
    pub const fn software(&self) -> u8 {
        self.field(0xf << 55)
    }

    /// Returns PBHA, bits \[62:59\] of a leaf. [`Regime::upper_attributes`] has the bits in use.
    #[must_use]
    pub const fn pbha(&self) -> u8 {
        self.field(PBHA)
    }

    /// Returns NSTable of a table descriptor.
    #[must_use]
    pub const fn ns_table(&self) -> bool {
        self.has(NS_TABLE)
    }

    /// Returns APTable\[1:0\] of a table descriptor.
    #[must_use]
    pub const fn ap_table(&self) -> u8 {
        self.field(0b11 << 61)
    }

    /// Returns UXNTable of a table descriptor.
    #[must_use]
    pub const fn uxn_table(&self) -> bool {
        self.has(UXN_TABLE)
    }

    /// Returns PXNTable of a table descriptor.
    #[must_use]
    pub const fn pxn_table(&self) -> bool {
        self.has(PXN_TABLE)
    }

    /// Returns the set bits that have to be 0 in a descriptor of this kind: RES0, or address above the output size.
    #[must_use]
    pub const fn nonzero_res0(&self) -> u64 {
        let level = self.regime.level(self.level);
        match self.kind() {
            Kind::Invalid | Kind::Reserved => 0,
            Kind::Table => self.word & level.table_zero,
            Kind::Block | Kind::Page => self.word & level.leaf_zero,
        }
    }
}

impl fmt::Display for Descriptor<'_> {
    /// Writes the fields by the Arm ARM's names: a field of several bits with its value, a single bit if it is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = |f: &mut fmt::Formatter<'_>, flags: &[(bool, &str)]| {
            flags
                .iter()
                .filter(|(set, _)| *set)
                .try_for_each(|(_, name)| write!(f, " {name}"))
        };
        match self.kind() {
            Kind::Invalid => write!(f, "invalid {:#018x}", self.word)?,
            Kind::Reserved => write!(f, "reserved {:#018x}", self.word)?,
            Kind::Table => {
                write!(f, "table next={}", self.next_table())?;
                if self.ap_table() != 0 {
                    write!(f, " APTable={:#04b}", self.ap_table())?;
                }
                let bits = [
                    (self.regime.haft && self.af(), "AF"),
                    (self.uxn_table(), "UXNTable"),
                    (self.pxn_table(), "PXNTable"),
                    (self.ns_table(), "NSTable"),
                ];
                flags(f, &bits)?;
            }
            kind @ (Kind::Block | Kind::Page) => {
                let name = if kind == Kind::Page { "page" } else { "block" };
                let (oa, attr) = (self.output_address(), self.attr_indx());
                write!(f, "{name} OA={oa} AttrIndx={attr}")?;
                let index = self.pi_index();
                match index {
                    Some(index) => write!(f, " PIIndex={index:#06b}")?,
                    None => write!(f, " AP={:#04b}", self.ap())?,
                }
                if let Some(sh) = self.sh() {
                    write!(f, " SH={sh:#04b}")?;
                }
                let bits = [
                    (self.af(), "AF"),
                    (self.ng(), "nG"),
                    (self.nt(), "nT"),
                    (self.gp(), "GP"),
                    (index.is_some() && self.has(AP2), "nDirty"),
                    (index.is_none() && self.dbm(), "DBM"),
                    (self.contiguous(), "Contiguous"),
                    (index.is_none() && self.pxn(), "PXN"),
                    (index.is_none() && self.uxn(), "UXN"),
                    (self.ns(), "NS"),
                ];
                flags(f, &bits)?;
                if self.software() != 0 {
                    write!(f, " software={:#06b}", self.software())?;
                }
                if self.pbha() != 0 {
                    write!(f, " PBHA={:#06b}", self.pbha())?;
                }
            }
        }
        match self.nonzero_res0() {
            0 => Ok(()),
            bits => write!(f, " RES0={bits:#x}"),
        }
    }
}
