// SPDX-License-Identifier: GPL-2.0-only
//! Whole views: whose they are, how tables become entries, and how it is written.

use linux::pte::bits;
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{Granule, Half, Regime};

use super::scene::*;
use crate::{entries, Lives};

#[test]
fn processes_are_known_by_pid_and_start() {
    let (one, mut other) = (Instant::new().page(0, FRAME, DIRTY), Instant::new());
    other.who.started_ns = Some(9_000_000_000);
    let diff = compared(&one, &other);
    let lives: Vec<_> = diff
        .processes
        .iter()
        .map(|it| (it.pid, it.started_ns, it.lives))
        .collect();
    assert_eq!(
        lives,
        [
            (44, Some(1_250_000_000), Lives::Ended),
            (44, Some(9_000_000_000), Lives::Started)
        ]
    );
    // Where the start is not known the pid has to do.
    other.who.started_ns = None;
    assert_eq!(told(&one, &other), ["zap 0-1"]);
    // Of one that a snapshot was not taken of nothing is said.
    let mut apart = one.clone();
    apart.who.pid = 45;
    (apart.all, other.all) = (false, false);
    let diff = compared(&apart, &other);
    assert!(diff.processes.is_empty());
    assert_eq!(diff.notes.len(), 2);
    let note =
        |which, pid| format!("not looked at the {which} time, so nothing is said of: mine ({pid})");
    assert_eq!(diff.notes, [note("first", 44), note("second", 45)]);
}

#[test]
fn a_program_that_was_executed_is_not_compared_with_the_one_before() {
    let (one, mut other) = (
        Instant::new().page(0, FRAME, DIRTY),
        Instant::new().page(0, FRAME + 1, DIRTY),
    );
    other.mm = 2;
    let diff = compared(&one, &other);
    let [process] = &diff.processes[..] else {
        panic!("{diff:?}")
    };
    let kinds: Vec<&str> = process.events.iter().map(|it| it.kind.name()).collect();
    assert_eq!(kinds, ["exec"]);
    let mut text = Vec::new();
    diff.write(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("\n  exec            it has another address space since"));
}

#[test]
fn unknown_vmas_and_tables_are_said() {
    let (mut one, other) = (Instant::new().page(0, FRAME, DIRTY), Instant::new());
    one.vmas = "no VMA".into();
    let diff = compared(&one, &other);
    assert!(diff.processes[0].notes[0].starts_with("its VMAs were not compared"));
    // Its pages are gone all the same.
    assert_eq!(diff.processes[0].events[0].kind.name(), "zap");
}

#[test]
fn it_is_written_in_lines() {
    let before = Instant::new().folio(0, FRAME, 4, DIRTY);
    let after = Instant::new()
        .folio(0, FRAME, 4, DIRTY | bits::CONT)
        .page(16, FRAME + 16, CLEAN);
    let mut text = Vec::new();
    compared(&before, &after).write(&mut text).unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "\
mine (44), started 1.25 s after boot
  fold            fffff7c00000-fffff7c10000    16 pages
  fault           fffff7c10000-fffff7c11000     1 page  anonymous, order 0
"
    );
    let mut text = Vec::new();
    compared(&before, &before).write(&mut text).unwrap();
    assert_eq!(text, b"nothing happened to 1 process(es)\n");
}

#[test]
fn a_contiguous_group_is_young_and_dirty_as_one() {
    let mut tables = TableBuilder::at(Layout::new(Granule::K4, Half::Lower, 48), 0x8000_0000);
    let pa = FRAME * PAGE;
    for page in 0..17 {
        let va = VA + page * PAGE;
        tables.map_page(va, pa + page * PAGE, Attributes::default(), false);
        let mut word = (CLEAN & !bits::AF) | (pa + page * PAGE);
        word |= if page < 16 { bits::CONT } else { 0 };
        word |= if page == 3 { bits::AF } else { 0 };
        word &= if page == 7 { !bits::RDONLY } else { !0 };
        tables.poke(va, 3, word);
    }
    let regime = Regime::new(&tables.registers(), Half::Lower).unwrap();
    let (found, problems) = entries(&tables.into_memory(), &regime);
    assert_eq!((found.len(), problems), (17, 0));
    assert!(found[..16].iter().all(|entry| entry.young && entry.dirty));
    assert!(!found[16].young && !found[16].dirty);
    let frames: Vec<u64> = found.iter().map(|entry| entry.frame).collect();
    assert_eq!(frames, (FRAME..FRAME + 17).collect::<Vec<_>>());
}
