// SPDX-License-Identifier: GPL-2.0-only
//! An unlinked table.

/// A table that was taken away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limbo {
    pub(crate) base: u64,
    pub(crate) entries: usize,
    /// The VAs that it mapped.
    pub(crate) vas: [u64; 2],
    /// The CPU whose TLBI was for it.
    pub(crate) flushed: Option<u16>,
}

/// Maximum number of unlinked tables that are watched.
pub(crate) const MOST_LIMBO: usize = 64;
