// SPDX-License-Identifier: GPL-2.0-only
//! A step in the life of a block.

use crate::{Cover, Domain, Stored, Types};

/// A step in the life of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The CPU and event.
    pub by: Stored,
    /// The action.
    pub did: Did,
}

/// An action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// The descriptor at this physical address was written.
    Store {
        /// Its physical address.
        entry: u64,
        /// The old word.
        old: u64,
        /// The new word.
        new: u64,
    },
    /// A TLBI.
    Tlbi {
        /// The instruction.
        opcode: u32,
        /// Its operand.
        operand: u64,
        /// Its coverage.
        cover: Cover,
    },
    /// A DSB.
    Dsb {
        /// Its shareability domain.
        domain: Domain,
        /// The accesses that it waits for.
        types: Types,
    },
}
