// SPDX-License-Identifier: GPL-2.0-only
//! The rules by name, and one violation of one of them.

use std::fmt;

use crate::{Level, PhysicalAddress, VirtualAddress};

/// A rule of the architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArchRule {
    /// A group of the Contiguous bit is naturally aligned in its table.
    A1,
    /// Its output range is aligned to the group's size.
    A2,
    /// Its output addresses are consecutive.
    A3,
    /// All its valid members have the Contiguous bit.
    A4,
    /// Its members' attributes and permissions are equal.
    A5,
    /// The Contiguous bit is not set where it is RES0.
    A6,
    /// No reserved descriptor type, RES0 bit, or address above the output size.
    A7,
    /// No block at a level where the granule has none.
    A8,
}

impl ArchRule {
    /// All rules in order.
    pub const ALL: [Self; 8] = [
        Self::A1,
        Self::A2,
        Self::A3,
        Self::A4,
        Self::A5,
        Self::A6,
        Self::A7,
        Self::A8,
    ];

    /// Returns the id, "A1" to "A8".
    #[must_use]
    pub const fn id(self) -> &'static str {
        ["A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8"][self as usize]
    }

    /// Returns the requirement as a phrase.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::A1 => "a contiguous group is naturally aligned in its table",
            Self::A2 => "a contiguous group's output range is aligned to its size",
            Self::A3 => "a contiguous group's output addresses are consecutive",
            Self::A4 => "all valid members of a group agree on the Contiguous bit",
            Self::A5 => "a contiguous group's attributes and permissions are equal",
            Self::A6 => "the Contiguous bit is 0 where it is RES0",
            Self::A7 => "no reserved type, RES0 bit or address above the output size",
            Self::A8 => "no block at a level where the granule has none",
        }
    }

    /// Returns the place in the Arm ARM (DDI 0487) that states it.
    #[must_use]
    pub const fn reference(self) -> &'static str {
        match self {
            Self::A1 | Self::A2 => "Arm ARM D8.7.1, R_CBXXM and table D8-104; R_WMNPV",
            Self::A3 => "Arm ARM D8.7.1, R_SKQHL",
            Self::A4 => "Arm ARM D8.7.1.1, R_QTRPM and I_PGVGZ",
            Self::A5 => "Arm ARM D8.7.1, R_SKQHL and I_CQTNL",
            Self::A6 => "Arm ARM D8.7.1, R_HMQXG",
            Self::A7 => "Arm ARM D8.3, VMSAv8-64 descriptor formats",
            Self::A8 => "Arm ARM D8.3, VMSAv8-64 Block descriptors",
        }
    }
}

impl fmt::Display for ArchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// One violation of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: ArchRule,
    /// Level of the table.
    pub level: Level,
    /// The VA that the first of `words` maps.
    pub va: VirtualAddress,
    /// The table.
    pub table: PhysicalAddress,
    /// Index of the first of `words` in it.
    pub index: usize,
    /// The raw words: of the whole group for A1 to A5, else of the one descriptor.
    pub words: Vec<u64>,
    /// A sentence with what was found and what is expected.
    pub sentence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule,
            level,
            va,
            sentence,
            ..
        } = self;
        write!(f, "{rule} VA {va} level {level}: {sentence}")
    }
}
