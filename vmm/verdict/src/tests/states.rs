// SPDX-License-Identifier: GPL-2.0-only
//! Blocks, rows and counts.

use super::guest::*;
use crate::BlockState::*;

#[test]
fn rows_of_a_vma_in_order() {
    let mut guest = Guest::new().maps("3fff8000-40078000 rw-p 00000000 00:00 0 ");
    for block in [0, 1, 3] {
        guest.fold(block, written());
    }
    guest.spread(2, written());
    guest.change(47, |_| 0);
    guest
        .tables
        .map_page(VA - 0x1000, PA - 0x1000, written(), false);
    let verdict = guest.judge();
    let rows: Vec<_> = verdict.vmas[0]
        .rows
        .iter()
        .map(|row| (row.va.0, row.blocks, row.state, row.pages.as_str()))
        .collect();
    assert_eq!(
        rows,
        [
            (VA - 0x1_0000, 1, Partial, "        .......-"),
            (VA, 2, Folded, "================"),
            (VA + 0x2_0000, 1, Partial, "---------------."),
            (VA + 0x3_0000, 1, Folded, "================"),
            (VA + 0x4_0000, 4, Empty, "................"),
        ]
    );
    assert_eq!(verdict.vmas[0].mapped, 64 << 12);
    assert_eq!(verdict.vmas[0].contiguous, 48 << 12);
    assert_eq!(verdict.vmas[0].blocks[&Folded], 3);
    assert_eq!(verdict.entries.pages, 64);
    assert_eq!(verdict.entries.contiguous_pages, 48);
}

#[test]
fn the_largest_run_is_aligned_in_both_addresses() {
    // Eight blocks that are consecutive, from an odd block on: the largest aligned run is four.
    let mut guest = Guest::new().maps("40000000-40100000 rw-p 00000000 00:00 0 ");
    for block in 1..9 {
        guest.fold(block, written());
    }
    assert_eq!(guest.judge().vmas[0].largest_run, 0x4_0000);
}

#[test]
fn a_broken_block_is_marked_and_its_neighbours_are_not() {
    let mut guest = Guest::new();
    (0..4).for_each(|block| guest.fold(block, written()));
    guest.change(20, |_| 0);
    let verdict = guest.judge();
    let states: Vec<_> = verdict.vmas[0]
        .rows
        .iter()
        .map(|row| (row.state, row.blocks))
        .collect();
    assert_eq!(states, [(Folded, 1), (Broken, 1), (Folded, 2)]);
    assert_eq!(verdict.vmas[0].rows[1].pages, "====.===========");
}
