//! A step in the life of a block.

use crate::{Cover, Domain, Stored, Types};

/// A step in the life of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Who did it.
    pub by: Stored,
    /// What was done.
    pub did: Did,
}

/// What was done in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// The descriptor at this physical address was written.
    Store {
        /// Its physical address.
        entry: u64,
        /// What it held.
        old: u64,
        /// What it holds.
        new: u64,
    },
    /// A TLBI.
    Tlbi {
        /// The instruction.
        opcode: u32,
        /// Its operand.
        operand: u64,
        /// What it covers.
        cover: Cover,
    },
    /// A DSB.
    Dsb {
        /// How far it reaches.
        domain: Domain,
        /// What it waits for.
        types: Types,
    },
}
