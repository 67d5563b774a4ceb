// SPDX-License-Identifier: GPL-2.0-only
//! Tests of all rules: a good process has no finding, a bad one no more than can be read.

use super::guest::*;
use crate::testing::id;

#[test]
fn a_good_process_has_no_error_in_any_format() {
    for mut guest in Guest::all() {
        guest.fold(0, written());
        guest.fold(1, read_only());
        guest.spread(2, written());
        guest.assert_legal();
    }
}

#[test]
fn findings_are_limited_and_counted() {
    let mut guest = Guest::new().maps("40000000-50000000 rw-p 00000000 00:00 0 ");
    for block in 0..150 {
        guest.fold(block, written());
        guest.change(block * 16, |_| 0);
    }
    let verdict = guest.judge();
    assert_eq!(verdict.findings.len(), 100);
    assert_eq!(verdict.dropped[&id("L1")], 50);
    assert_eq!(verdict.errors(), 150);
    assert_eq!(verdict.blocks()[&crate::BlockState::Broken], 150);
}
