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
    /// Where `nrpages` is.
    pub at: u64,
    /// What is in it; or why it was not looked through.
    pub tree: Known<Tree>,
}

/// What hangs in the tree (`i_pages`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// `nrpages`.
    pub counted: u64,
    /// The pages of all folios in it.
    pub found: u64,
    /// Places of pages that are in swap, or of which something is remembered.
    pub values: u64,
    /// The first folios that must not be where they are, in words.
    pub wrong: Vec<String>,
    /// How many more there are.
    pub more: u64,
}
