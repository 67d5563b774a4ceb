// SPDX-License-Identifier: GPL-2.0-only
//! The half of L8 that looks across mappings.

use crate::testing::id;
use crate::tests::guest::*;
use crate::{judge_sharing, ProcessVerdict, RuleId};
use stage1::testing::{Layout, TableBuilder};
use stage1::{Granule, Half};

/// Two processes in one memory: the second's tables lie elsewhere.
fn pair() -> (Guest, Guest) {
    let one = Guest::new();
    let mut two = Guest::new();
    two.tables = TableBuilder::at(Layout::new(Granule::K4, Half::Lower, 48), 0xc000_0000);
    two.process.pid = 43;
    (one, two)
}

fn errors(one: &Guest, two: &Guest) -> Vec<(u32, RuleId, u64)> {
    let mut verdicts = [one.judge(), two.judge()];
    let mut memory = one.tables.clone().into_memory();
    memory.merge(two.tables.clone().into_memory());
    judge_sharing(&memory, &[one.regime(), two.regime()], &mut verdicts);
    let found = |verdict: &ProcessVerdict| {
        let pid = verdict.process.pid;
        let errors = verdict
            .findings
            .iter()
            .filter(|f| f.rule != id("I-eligible"));
        errors.map(|f| (pid, f.rule, f.va.0)).collect::<Vec<_>>()
    };
    verdicts.iter().flat_map(found).collect()
}

#[test]
fn pages_of_two_processes_that_both_only_read_are_legal() {
    let (mut one, mut two) = pair();
    one.fold(0, read_only());
    two.fold(0, read_only());
    assert_eq!(errors(&one, &two), []);
}

#[test]
fn a_page_that_one_may_write_and_the_other_maps() {
    let (mut one, mut two) = pair();
    one.spread(0, read_only());
    two.spread(0, read_only());
    two.change(5, |word| (word | WRITE | DIRTY) & !RDONLY);
    assert_eq!(errors(&one, &two), [(43, id("L8"), VA + 0x5000)]);
    let mut verdicts = [one.judge(), two.judge()];
    let mut memory = one.tables.clone().into_memory();
    memory.merge(two.tables.clone().into_memory());
    judge_sharing(&memory, &[one.regime(), two.regime()], &mut verdicts);
    let finding = verdicts[1]
        .findings
        .iter()
        .find(|f| f.rule == id("L8"))
        .unwrap();
    assert_eq!(finding.words.len(), 16);
    assert!(
        finding.message.contains("made-up (42)"),
        "{}",
        finding.message
    );
}

#[test]
fn one_process_that_maps_a_writable_page_twice() {
    let (mut one, two) = pair();
    one.spread(0, written());
    one.tables
        .map_page(VA + 0x2_0000, PA + 0x3000, read_only(), false);
    assert_eq!(errors(&one, &two), [(42, id("L8"), VA + 0x3000)]);
}

#[test]
fn shared_memory_threads_and_the_zero_page_are_legal() {
    let (mut one, mut two) = pair();
    one = one.maps("40000000-40040000 rw-s 00000000 00:01 5 /dev/zero (deleted)");
    two = two.maps("40000000-40040000 rw-s 00000000 00:01 5 /dev/zero (deleted)");
    one.spread(0, written());
    two.spread(0, written());
    assert_eq!(errors(&one, &two), []);
    // A driver's mapping of the same frame, as /dev/mem makes it.
    let (mut one, mut two) = pair();
    one.spread(0, written());
    two = two.maps("40000000-40040000 rw-s 00000000 00:05 5 /dev/mem");
    two.spread(0, written());
    for at in 0..16 {
        two.change(at, |word| word | SPECIAL);
    }
    assert_eq!(errors(&one, &two), []);
    // Two threads, or a vfork: the same tables under two ids.
    let mut one = Guest::new();
    one.spread(0, written());
    let mut verdicts = [one.judge(), one.judge()];
    judge_sharing(
        one.tables.memory(),
        &[one.regime(), one.regime()],
        &mut verdicts,
    );
    assert_eq!(verdicts.iter().map(ProcessVerdict::errors).sum::<u64>(), 0);
}
