// SPDX-License-Identifier: GPL-2.0-only
//! All structures that are read at each instant of a guest and kept with its snapshot: a line each.

use crate::anon_sizes::AnonSizes;
use crate::lru_batches::LruBatches;
use crate::structure::StructureReader;

/// All of them.
pub static STRUCTURES: &[StructureReader] = &[
    StructureReader::of::<AnonSizes>(),
    StructureReader::of::<LruBatches>(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_one_structures() {
        let mut names: Vec<_> = STRUCTURES.iter().map(|it| it.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }
}
