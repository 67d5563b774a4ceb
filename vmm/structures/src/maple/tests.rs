// SPDX-License-Identifier: GPL-2.0-only
//! Trees made here, word by word, as `lib/maple_tree.c` describes them.

use super::testing::{layout, Ram, VA};
use super::*;

impl Ram {
    /// A node of this kernel's, 256 bytes aligned; gives the pointer that leads to it.
    fn node(&mut self, number: u64, kind: Node, pivots: &[u64], slots: &[u64]) -> u64 {
        let va = VA + 0x1000 + number * 256;
        for (at, pivot) in (0..).zip(pivots) {
            self.set(va + kind.pivots.offset + 8 * at, *pivot);
        }
        for (at, slot) in (0..).zip(slots) {
            self.set(va + kind.slots.offset + 8 * at, *slot);
        }
        va | kind.kind << TYPE_SHIFT | 4
    }
}

/// Values that the tree's owner stores: addresses of its own.
const A: u64 = 0xffff_0000_1000_0000;
const B: u64 = 0xffff_0000_2000_0000;
const C: u64 = 0xffff_0000_3000_0000;

fn entry(first: u64, last: u64, value: u64) -> Entry {
    Entry { first, last, value }
}

#[test]
fn entries_of_a_leaf_come_with_their_ranges() {
    let (mut ram, leaf) = (Ram::new(), layout().leaf);
    // 0-0xfff nothing, A, nothing, B, nothing up to the end; what lies behind the last pivot is of old.
    let pivots = [0xfff, 0x1fff, 0x3fff, 0x4fff, 0];
    let root = ram.node(0, leaf, &pivots, &[0, A, 0, B, 0, C]) | INTERNAL;
    let both = [entry(0x1000, 0x1fff, A), entry(0x4000, 0x4fff, B)];
    assert_eq!(ram.read(root).unwrap(), both);
}

#[test]
fn a_full_leaf_has_a_slot_more_than_pivots() {
    let (mut ram, leaf) = (Ram::new(), layout().leaf);
    let pivots: Vec<u64> = (1..16).map(|at| at * 0x1000 - 1).collect();
    let slots: Vec<u64> = (0..16).map(|at| A + at * 0x1000).collect();
    let root = ram.node(0, leaf, &pivots, &slots) | INTERNAL;
    let found = ram.read(root).unwrap();
    assert_eq!(found.len(), 16);
    assert_eq!(found[15], entry(0xf000, u64::MAX, A + 0xf000));
}

#[test]
fn nodes_are_followed_and_pass_on_their_bounds() {
    let (mut ram, Layout { leaf, arange, .. }) = (Ram::new(), layout());
    let low = ram.node(0, leaf, &[0xfff, 0x7fff], &[A, B]);
    // A leaf whose last pivot is its parent's and not stored.
    let high = ram.node(1, leaf, &[0x8fff, 0], &[C, 0]);
    let root = ram.node(2, arange, &[0x7fff, 0], &[low, high]) | INTERNAL;
    let all = [
        entry(0, 0xfff, A),
        entry(0x1000, 0x7fff, B),
        entry(0x8000, 0x8fff, C),
    ];
    assert_eq!(ram.read(root).unwrap(), all);
}

#[test]
fn an_empty_tree_and_one_of_a_single_number_have_no_node() {
    assert_eq!(Ram::new().read(0).unwrap(), []);
    assert_eq!(Ram::new().read(A).unwrap(), [entry(0, 0, A)]);
}

#[test]
fn what_is_no_tree_is_said_to_be_none() {
    let Layout {
        leaf,
        arange,
        range,
        ..
    } = layout();
    let why = |ram: &Ram, root: u64| match ram.read(root) {
        Err(StructureError::Inconsistent { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    let mut ram = Ram::new();
    let falling = ram.node(0, leaf, &[0x1fff, 0xfff], &[A, B]) | INTERNAL;
    assert_eq!(why(&ram, falling), "its pivots do not rise");
    let nowhere = ram.node(1, arange, &[0xfff, u64::MAX], &[0, 0]) | INTERNAL;
    assert_eq!(why(&ram, nowhere), "it leads to no node");
    let kind = 7 << TYPE_SHIFT | INTERNAL;
    assert_eq!(
        why(&ram, (VA + 0x2000) | kind),
        "it is of no type that holds ranges"
    );
    let myself = ram.node(2, range, &[u64::MAX], &[]);
    ram.node(2, range, &[], &[myself]);
    assert_eq!(why(&ram, myself | INTERNAL), "it is deeper than any tree");
    let outside = ram.read(0xffff_ff80_1000_0000 | 1 << TYPE_SHIFT | INTERNAL);
    assert!(
        matches!(outside, Err(StructureError::Unreadable { .. })),
        "{outside:?}"
    );
}

/// The seed of the fuzz target.
const SEED: &[u8] = include_bytes!("../../../fuzz/seeds/maple/three-nodes");

/// The tree of `nodes_are_followed_and_pass_on_their_bounds`, as the fuzz target takes it.
#[test]
fn the_fuzz_targets_seed_is_a_tree() {
    assert_eq!(testing::is_read(SEED), Some(3));
}

proptest::proptest! {
    /// Trees that are damaged are read, or there is a sentence.
    #[test]
    fn any_memory_is_read_or_refused(
        edits in proptest::collection::vec((0..SEED.len() / 8, 0..8usize, 0..SEED.len() / 8), 1..20),
    ) {
        let mut bytes = SEED.to_vec();
        for (to, skew, from) in edits {
            // Words that lead elsewhere, and such that are turned.
            let word: [u8; 8] = bytes[8 * from..8 * from + 8].try_into().unwrap();
            bytes[8 * to..8 * to + 8].copy_from_slice(&u64::from_le_bytes(word).rotate_left(8 * skew as u32).to_le_bytes());
        }
        let _ = testing::is_read(&bytes);
    }
}
