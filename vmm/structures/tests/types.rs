// SPDX-License-Identifier: GPL-2.0-only
//! Types from an unknown source: they are read or refused, in bounded time.

mod hostile;

use proptest::prelude::*;
use structures::types::{Member, Types};

/// The seed of the fuzz target.
const SMALL: &[u8] = include_bytes!("../../fuzz/seeds/btf/small");
/// `struct loop`, with 16 anonymous members of its own type: 16^16 ways to a name.
const OF_ITSELF: &[u8] = include_bytes!("../../fuzz/seeds/btf/of-itself");

#[test]
fn members_are_found_through_names_and_without() {
    let types = Types::parse(SMALL).unwrap();
    let member = |structure, path| types.member(structure, path).unwrap();
    let at = |offset, size, elements| Member {
        offset,
        size,
        elements,
    };
    assert_eq!(member("page", "flags"), at(0, 8, 1));
    assert_eq!(member("page", "index"), at(16, 8, 1));
    assert_eq!(member("page", "ref.counter"), at(24, 4, 1));
    assert_eq!(member("task", "comm"), at(0, 16, 16));
    assert_eq!(types.pointer("task", "mm.pgd").unwrap().offset, 16);
    assert_eq!(hostile::is_read(SMALL), Some(20));
}

#[test]
fn types_that_hold_themselves_are_gone_through_in_bounded_time() {
    let types = Types::parse(OF_ITSELF).unwrap();
    let missing = types.member("loop", "missing").unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
}

proptest! {
    /// Bytes that are changed, and such that are left out.
    #[test]
    fn any_bytes_are_read_or_refused(
        edits in prop::collection::vec((0..SMALL.len(), any::<u8>()), 1..10),
        cut in 0..2 * SMALL.len(),
    ) {
        let mut bytes = SMALL.to_vec();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        bytes.truncate(cut);
        let _ = hostile::is_read(&bytes);
    }
}
