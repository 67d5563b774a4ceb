// SPDX-License-Identifier: GPL-2.0-only
//! Reasons why a table cannot be walked.

use std::fmt;

use crate::{Level, PhysicalAddress, VirtualAddress};

/// The reason why a table was not walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// The table is one of the tables that lead to it.
    Loop,
    /// The table is not in the machine's RAM, or only a part of its bytes is.
    OutsideRam,
    /// The table is in RAM, but the snapshot does not hold it: not judged.
    NotSaved,
    /// The table's address has more bits than the output size: an access is an Address size fault. The rules also
    /// report the descriptor that leads to it (A7).
    BeyondOutputSize,
    /// The walk has read its budget of descriptors: the rest of the range is not judged. Tables that share their
    /// children can have more entries than a walk has time for.
    Budget,
}

impl ProblemKind {
    /// Returns whether the guest's tables are wrong. Otherwise the table is only not judged.
    #[must_use]
    pub const fn is_finding(self) -> bool {
        matches!(self, Self::Loop | Self::OutsideRam | Self::BeyondOutputSize)
    }
}

/// A table that was not walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WalkProblem {
    /// The reason.
    pub kind: ProblemKind,
    /// Its level.
    pub level: Level,
    /// The VA that its descriptor 0 would map.
    pub va: VirtualAddress,
    /// Its address.
    pub address: PhysicalAddress,
    /// Table, index and word of the descriptor that leads there; `None` for the first table.
    pub from: Option<(PhysicalAddress, usize, u64)>,
}

impl fmt::Display for WalkProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            level,
            va,
            address,
            from,
        } = self;
        write!(f, "VA {va}: the level {level} table at {address}")?;
        if let Some((table, index, word)) = from {
            write!(f, " (descriptor {index} of table {table}: {word:#018x})")?;
        }
        f.write_str(match kind {
            ProblemKind::Loop => " is one of the tables that lead to it, expected another",
            ProblemKind::OutsideRam => " is not in RAM, expected an address of the guest's RAM",
            ProblemKind::NotSaved => " is in RAM but not in this snapshot: not judged",
            ProblemKind::BeyondOutputSize => {
                " is above the output size, expected TCR_EL1.IPS to cover it"
            }
            ProblemKind::Budget => {
                " and what follows was not judged: the walk read as many descriptors as it may"
            }
        })
    }
}
