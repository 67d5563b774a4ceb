// SPDX-License-Identifier: GPL-2.0-only
//! Uses of types from an unknown source: shared by the tests and the fuzz target `btf`.

use structures::types::Types;

/// Structures and members as the readers ask for them: through names, anonymous members, arrays and pointers.
const ASKED: [(&str, &str); 7] = [
    ("page", "flags"),
    ("page", "mapping"),
    ("page", "ref.counter"),
    ("maple_tree", "ma_root"),
    ("task", "comm"),
    ("task", "mm.pgd"),
    ("loop", "missing"),
];

/// Reads any bytes as BTF and asks of it what is asked of a kernel's; gives how much is there.
pub fn is_read(bytes: &[u8]) -> Option<usize> {
    let types = Types::parse(bytes).ok()?;
    let mut found = 0;
    for (structure, path) in ASKED {
        found += usize::from(types.size(structure).is_ok());
        found += usize::from(types.member(structure, path).is_ok());
        found += usize::from(types.pointer(structure, path).is_ok());
    }
    found += types.enumerators("maple_type").len();
    found += usize::from(types.enumerator("maple_type", "maple_leaf_64").is_ok());
    Some(found)
}
