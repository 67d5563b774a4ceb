// SPDX-License-Identifier: GPL-2.0-only
//! Errors of reading a structure.

/// A structure that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StructureError {
    /// The kernel's types cannot be read.
    #[error("the kernel's types were not found in its memory (CONFIG_DEBUG_INFO_BTF): {0}")]
    NoTypes(String),
    /// A symbol, type or member that this kernel does not have.
    #[error("this kernel has no {0}, so what needs it was not read")]
    Missing(String),
    /// A kernel without this option has no such structure.
    #[error("this kernel was built without {0}")]
    NotBuilt(&'static str),
    /// Memory that a pointer leads to and that is not there.
    #[error("{what} at 0x{va:016x} could not be read: {why}")]
    Unreadable {
        /// The structure.
        what: &'static str,
        /// Its virtual address.
        va: u64,
        /// The reason.
        why: String,
    },
    /// Something that cannot be as it is: read in the middle of an update, or overwritten.
    #[error("{what} at 0x{va:016x} makes no sense: {why}")]
    Inconsistent {
        /// The structure.
        what: &'static str,
        /// Its virtual address.
        va: u64,
        /// The reason that it cannot be so.
        why: String,
    },
}

impl StructureError {
    /// Returns whether another instant may show what this one did not: it may just have been changed.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::Inconsistent { .. } => true,
            Self::NoTypes(_) | Self::Missing(_) | Self::NotBuilt(_) => false,
        }
    }
}
