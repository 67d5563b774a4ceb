// SPDX-License-Identifier: GPL-2.0-only
//! The part of a finding on a sequence (S1 to S7) that other findings do not have.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Hex;

/// The stores and the TLB maintenance of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sequence {
    /// Where the architecture says so.
    pub reference: String,
    /// The word that a TLB may still hold.
    pub old: Hex,
    /// The word that was written.
    pub new: Hex,
    /// The page frame that the old word led to; absent where it was a table's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_frame: Option<Hex>,
    /// That of the new word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_frame: Option<Hex>,
    /// The folio that the old word's page was of when that word was taken away; absent where that was not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_folio: Option<Folio>,
    /// That of the new word's page, when that word was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_folio: Option<Folio>,
    /// The first VA of the block around it; what it holds is in the finding's `words`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Hex>,
    /// The block's entries before: those that a TLB may hold, if it may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Hex>,
    /// The store that made it so.
    pub made: Instruction,
    /// The store that took the old word away; absent where `made` did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<Instruction>,
    /// The TLBI that came nearest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlbi: Option<Instruction>,
    /// The last events of the block, in order.
    pub life: Vec<Moment>,
}

/// A folio, as the kernel had it at that store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Folio {
    /// Its first page frame.
    pub first: Hex,
    /// It has 2 to the power of this pages.
    pub order: u8,
    /// `anonymous`, `file` (shmem too), `ksm`, `movable` (a driver's), or `unowned` (no mapping).
    pub kind: String,
}

impl fmt::Display for Folio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, order, kind } = self;
        write!(f, "order {order}, {kind}, from page frame {:#x}", first.0)
    }
}

/// An instruction that was part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Instruction {
    /// The CPU.
    pub cpu: u16,
    /// Its address, by function where that is known.
    pub place: String,
    /// Which event of the trace, from 1.
    pub event: u64,
    /// The callers, the nearest first.
    pub callers: Vec<String>,
}

/// A step in the life of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Moment {
    /// Which event of the trace, from 1.
    pub event: u64,
    /// The CPU.
    pub cpu: u16,
    /// Its address, by function where that is known.
    pub place: String,
    /// The system call or the exception for which it was done, if that is known by its handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// The action.
    #[serde(flatten)]
    pub did: Did,
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "did")]
pub enum Did {
    /// A descriptor was written.
    Store {
        /// The first VA that it maps, where it is one of the block.
        #[serde(skip_serializing_if = "Option::is_none")]
        va: Option<Hex>,
        /// The word before.
        old: Hex,
        /// The word after.
        new: Hex,
    },
    /// TLB maintenance.
    Tlbi {
        /// The operation, as the assembler has it.
        operation: String,
        /// Its operand.
        operand: Hex,
    },
    /// A DSB.
    Dsb {
        /// Its option, as the assembler has it.
        option: String,
    },
}

/// A character for each descriptor, as in the map: contiguous, single, invalid, nothing.
#[must_use]
pub fn pattern(words: impl IntoIterator<Item = u64>) -> String {
    let of = |word: u64| match (word & 1, word >> 52 & 1) {
        (0, _) if word == 0 => '.',
        (0, _) => 'x',
        (_, 1) => '=',
        _ => '-',
    };
    words.into_iter().map(of).collect()
}
