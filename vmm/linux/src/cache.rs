// SPDX-License-Identifier: GPL-2.0-only
//! The page cache of one file: the folios in its tree, as they were at one instant (`struct address_space`, include/linux/fs.h).

use serde::{Deserialize, Serialize};

use crate::counted::Known;

/// The page cache of a file that is mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// A process that maps it, and where, in words.
    pub whose: String,
    /// The address of its `struct address_space`.
    pub mapping: u64,
    /// Address of `nrpages`.
    pub at: u64,
    /// Contents of the tree, or the reason why it was not read.
    pub tree: Known<Tree>,
}

/// Contents of the tree (`i_pages`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// `nrpages`.
    pub counted: u64,
    /// The pages of all folios in it.
    pub found: u64,
    /// Number of places with a swap entry or a shadow entry in place of a page.
    pub values: u64,
    /// Counts that shmem keeps of its file; `None` for other files.
    #[serde(default)]
    pub shmem: Option<Shmem>,
    /// The first folios that are in a wrong place, one sentence each.
    pub wrong: Vec<String>,
    /// Number of further ones.
    pub more: u64,
}

impl Tree {
    /// Returns whether a task may be between a change of the tree and that of shmem's counts.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.shmem.is_some_and(|counts| counts.busy)
    }
}

/// Counts that shmem keeps of a file (`struct shmem_inode_info`), in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shmem {
    /// `alloced`: pages that the file has, in the page cache and in swap.
    pub alloced: u64,
    /// `swapped`: those in swap.
    pub swapped: u64,
    /// Pages for which the tree has a swap entry.
    pub in_swap: u64,
    /// True if a task may be between a change of the tree and that of the counts: it holds the inode's lock or
    /// that of a folio, or a page is lost.
    pub busy: bool,
    /// The addresses of the two counts.
    pub at: [u64; 2],
}
