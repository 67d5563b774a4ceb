// SPDX-License-Identifier: GPL-2.0-only
//! The settling of made-up looks.

use std::collections::BTreeMap;
use std::time::Duration;

use snapshot::{Cpu, Memory, Snapshot};
use verdict::{Basis, Process};

use super::*;
use evidence::{cpu_progress::RAN_NS, Capture, Extent, Work};

use crate::Sight;

/// The rule of this name.
fn id(name: &str) -> verdict::RuleId {
    verdict::RuleId::named(name).unwrap()
}

/// A group of the process, with these words.
fn finding(va: u64, words: &[u64]) -> Finding {
    Finding {
        va: Hex(va),
        end: Hex(va + 4096),
        level: 3,
        table: Hex(0x7000),
        index: 0,
        words: words.iter().copied().map(Hex).collect(),
        ..Finding::new(id("A4"), "made up".into())
    }
}

/// A process's verdict with these findings, and so many entries that may be on their way.
fn process(findings: Vec<Finding>, moving: u64) -> ProcessVerdict {
    let tables = stage1::testing::TableBuilder::new(stage1::testing::Layout::new(
        stage1::Granule::K4,
        stage1::Half::Lower,
        48,
    ));
    let regime = stage1::Regime::new(&tables.registers(), stage1::Half::Lower).unwrap();
    let made_up = verdict::NotKnown::never("it is made up");
    let input = verdict::ProcessInput {
        process: &Process {
            pid: 42,
            name: "made-up".into(),
        },
        regime: &regime,
        vmas: &[],
        orders: None,
        expectations: &[],
        release: None,
        structures: Err(&made_up),
        contpte: None,
    };
    let mut verdict = verdict::judge(tables.memory(), &input);
    verdict.findings = findings;
    verdict.entries.moving = moving;
    verdict
}

/// Looks that are made up need no time between them.
fn at_once(_: Duration) {}

/// A look with a CPU in the kernel at `pc`, which has run so far.
fn made(pc: u64, process: ProcessVerdict) -> Look {
    let mut cpu = Cpu::default();
    cpu.general.pstate = 5;
    cpu.general.pc = pc;
    cpu.system.sctlr_el1 = 1;
    let judged = Judged {
        processes: vec![process],
        ..Judged::default()
    };
    Look {
        capture: Capture {
            snapshot: Snapshot {
                cpus: vec![cpu],
                memory: Memory::new(Vec::new(), Vec::new()).unwrap(),
                notes: snapshot::Notes::default(),
            },
            companions: Vec::new(),
            stopped: Duration::ZERO,
            work: Work {
                idle: vec![false],
                ran_ns: vec![1 + pc * RAN_NS],
                rested: Vec::new(),
            },
            extent: Extent::default(),
        },
        judged,
        basis: Basis::default(),
        read_again: None,
    }
}

/// The verdict on its process.
fn verdict(mut look: Look) -> ProcessVerdict {
    look.judged.processes.remove(0)
}

/// Looks that are what `of` makes of their number, at a CPU that runs on.
fn looks(of: impl Fn(u32) -> ProcessVerdict) -> (ProcessVerdict, Settled) {
    let look = |number| Ok::<_, ()>(made(0x1000 * u64::from(number), of(number)));
    let (last, settled) = settle(true, at_once, look).unwrap();
    (verdict(last), settled)
}

/// Returns what is left of the verdict: where errors are, how many were taken back, and how many reasons there are.
fn held((mut verdict, settled): (ProcessVerdict, Settled)) -> (Vec<u64>, u64, usize) {
    Sight::new(&settled, true).hold_process(&mut verdict);
    let errors = verdict.findings.iter().map(|finding| finding.va.0);
    (
        errors.collect(),
        verdict.unsettled,
        verdict.not_judged.len(),
    )
}

const BROKEN: [u64; 2] = [0x0010_0000_4000_0f43, 0x4000_1f43];
/// Types 27 (poison, where there are no device entries) and 28 (migration, there).
const POISON: u64 = 27 << 6 | 5 << 12;
const MIGRATION: u64 = 28 << 6 | 5 << 12;

#[test]
fn an_error_counts_that_three_looks_show() {
    let (verdict, settled) = looks(|_| process(vec![finding(0x1000, &BROKEN)], 0));
    assert_eq!(settled.looks, AGREEING);
    assert_eq!(held((verdict, settled)), (vec![0x1000], 0, 0));
    let clean = looks(|_| process(vec![], 0));
    assert_eq!((clean.1.looks, held(clean)), (1, (vec![], 0, 0)));
}

#[test]
fn a_poisoned_page_takes_back_no_error_of_another_group() {
    let found = looks(|_| process(vec![finding(0x1000, &BROKEN)], 1));
    assert_eq!(
        (found.1.looks, held(found)),
        (AGREEING, (vec![0x1000], 0, 0))
    );
    // And it is no reason to say that nothing was judged.
    let poisoned = looks(|_| process(vec![], 1));
    assert_eq!((poisoned.1.looks, held(poisoned)), (2, (vec![], 0, 0)));
}

#[test]
fn what_holds_a_page_on_its_way_is_not_judged_and_the_rest_is() {
    for special in [POISON, MIGRATION] {
        let findings = || {
            vec![
                finding(0x1000, &BROKEN),
                finding(0x2000, &[BROKEN[0], special]),
            ]
        };
        let found = looks(|_| process(findings(), 1));
        assert_eq!(found.1.looks, LOOKS);
        assert!(found.1.open.values().eq([&Why::OnItsWay]));
        assert_eq!(held(found), (vec![0x1000], 1, 1));
    }
    // In the kernel half such a word is none of Linux's swap entries.
    let word = Fault::of((None, 7), &finding(0x2000, &[POISON])).unwrap();
    assert!(!word.may_move());
}

#[test]
fn words_that_change_are_not_judged_and_the_rest_is() {
    let found = looks(|number| {
        let changing = [BROKEN[0], u64::from(number) << 12 | 3];
        process(
            vec![finding(0x1000, &BROKEN), finding(0x2000, &changing)],
            0,
        )
    });
    assert_eq!(found.1.looks, LOOKS);
    assert_eq!(held(found), (vec![0x1000], 1, 1));
    // What is gone has been an update.
    let gone = looks(|number| {
        let findings = if number < 3 {
            vec![finding(0x2000, &BROKEN)]
        } else {
            vec![]
        };
        process(findings, 0)
    });
    assert_eq!((gone.1.looks, held(gone)), (3, (vec![], 0, 0)));
}

#[test]
fn without_proof_of_work_nothing_counts() {
    let error = || process(vec![finding(0x1000, &BROKEN)], 0);
    let stands = settle(true, at_once, |_| Ok::<_, ()>(made(0x1000, error())))
        .unwrap()
        .1;
    assert_eq!(stands.looks, ALL_LOOKS);
    assert!(stands.open.values().eq([&Why::Changing]));
    let still = settle(false, at_once, |_| Ok::<_, ()>(made(0x1000, error()))).unwrap();
    assert_eq!(still.1.looks, 1);
    assert!(still.1.open.values().eq([&Why::StoodStill]));
    assert_eq!(held((verdict(still.0), still.1)), (vec![], 1, 1));
}

#[test]
fn pauses_grow_and_stay() {
    let pauses = std::cell::RefCell::new(Vec::new());
    let error = || process(vec![finding(0x1000, &BROKEN)], 0);
    let pause = |time: Duration| pauses.borrow_mut().push(time.as_millis());
    settle(true, pause, |_| Ok::<_, ()>(made(0x1000, error()))).unwrap();
    let pauses = pauses.into_inner();
    assert_eq!(pauses[..3], [8, 16, 32]);
    assert_eq!(pauses[3..], [60; ALL_LOOKS as usize - 4]);
}

#[test]
fn a_cpu_that_is_slow_to_run_on_is_waited_for() {
    // It gets a turn between every ninth look and the next: the third that agrees is more than are taken of others.
    let error = || process(vec![finding(0x1000, &BROKEN)], 0);
    let look = |number: u32| Ok::<_, ()>(made(0x1000 * u64::from(number / 9), error()));
    let (last, settled) = settle(true, at_once, look).unwrap();
    assert_eq!(settled.looks, 18);
    assert_eq!(held((verdict(last), settled)), (vec![0x1000], 0, 0));
}

#[test]
fn what_is_counted_and_not_listed_has_to_stay_as_well() {
    let more = |count| {
        let mut verdict = process(vec![finding(0x1000, &BROKEN)], 0);
        verdict.dropped = BTreeMap::from([(id("A4"), count), (id("I-eligible"), count)]);
        verdict
    };
    let (mut stays, settled) = looks(|_| more(7));
    Sight::new(&settled, true).hold_process(&mut stays);
    assert_eq!((stays.errors(), stays.unsettled), (8, 0));
    let (mut changes, settled) = looks(|number| more(u64::from(number)));
    Sight::new(&settled, true).hold_process(&mut changes);
    assert_eq!((changes.errors(), changes.unsettled), (1, u64::from(LOOKS)));
    assert_eq!(changes.dropped[&id("I-eligible")], u64::from(LOOKS));
}

#[test]
fn what_is_not_sure_is_told_once_by_rule() {
    let mut streaks = Streaks::default();
    let owner = (Some(42), 8);
    for (va, streak) in [(0x2000, 1), (0x3000, 2)] {
        let fault = Fault::of(owner, &finding(va, &BROKEN)).unwrap();
        streaks.of.insert(fault, streak);
    }
    // What is counted is said, as its words do not tell.
    let counted = Finding {
        rule: id("L9"),
        ..finding(0x2000, &BROKEN)
    };
    let counted = Fault::of(owner, &counted).unwrap();
    streaks.of.insert(counted, 1);
    streaks.here.insert((None, 7));
    let sight = Sight::new(&streaks.end(5, true), false);
    let [open, counted] = sight.open.as_slice() else {
        panic!("{sight:?}");
    };
    assert_eq!((open.root, open.errors), (8, 2));
    assert!(open
        .reason
        .contains("process 42: what may be 2 error(s) by A4, the first at VA 0x0000000000002000"));
    assert!(open.reason.contains("not seen in user mode again"));
    assert!(open.reason.contains("was seen and is not known"));
    assert!(counted
        .reason
        .contains("was seen (made up) and is not known to stay"));
    // It outlives a file.
    let mut notes = snapshot::Notes::default();
    sight.keep(&mut notes);
    assert_eq!(Sight::of(&notes), Some(sight));
}

#[test]
fn an_error_in_tables_that_are_seldom_shown_is_waited_for() {
    let looks = |every: u32, broken: bool| {
        let look = |number: u32| {
            let found = broken.then(|| finding(0x1000, &BROKEN));
            let process = process(found.into_iter().collect(), 0);
            let away = number % every != 1;
            let mut look = made(0x1000 * u64::from(number), process);
            // No CPU shows its tables.
            look.judged.processes.retain(|_| !away);
            Ok::<_, ()>(look)
        };
        let (_, settled) = settle(true, at_once, look).unwrap();
        (
            settled.looks,
            settled.confirmed.len(),
            settled.open.into_values().collect::<Vec<_>>(),
        )
    };
    assert_eq!(looks(10, true), (21, 1, vec![]));
    assert_eq!(looks(40, true), (ALL_LOOKS, 0, vec![Why::NotSeenAgain]));
    assert_eq!(looks(40, false), (1, 0, vec![]));
}

#[test]
fn what_was_being_changed_is_looked_at_again() {
    let looks = |until: u32| {
        let look = |number| {
            let mut look = made(0x1000 * u64::from(number), process(vec![], 0));
            look.judged.later = number < until;
            Ok::<_, ()>(look)
        };
        settle(true, at_once, look).unwrap().1.looks
    };
    assert_eq!(looks(4), 4);
    // Not for ever: the verdict says what it lacks.
    assert_eq!(looks(u32::MAX), PATIENT);
}

#[test]
fn counts_that_a_look_leaves_open_are_looked_at_again() {
    let counted = |va| Finding {
        rule: id("L9"),
        ..finding(va, &BROKEN)
    };
    let looks = |open: fn(u32) -> bool, wrong: bool| {
        let (last, settled) = settle(true, at_once, |number| {
            let findings = (wrong && !open(number)).then(|| counted(0x1000));
            let process = process(findings.into_iter().collect(), 0);
            let mut look = made(0x1000 * u64::from(number), process);
            look.judged.uncounted = open(number);
            Ok::<_, ()>(look)
        })
        .unwrap();
        (verdict(last), settled)
    };
    // It is no proof that they are right, so the other looks count, and the last is none of these.
    let every_other = looks(|number| number % 2 == 0, true);
    assert_eq!(every_other.1.looks, 2 * AGREEING - 1);
    assert_eq!(held(every_other), (vec![0x1000], 0, 0));
    // Where nothing is wrong one that shows so is enough, whatever it took.
    let late = looks(|number| number < PATIENT + 4, false);
    assert_eq!((late.1.looks, held(late)), (PATIENT + 4, (vec![], 0, 0)));
    // Nor is what is wrong lost where few looks show it.
    let few = looks(|number| number % 12 != 0, true);
    assert_eq!(few.1.looks, 12 * AGREEING);
    assert_eq!(held(few), (vec![0x1000], 0, 0));
    assert_eq!(looks(|_| true, false).1.looks, ALL_LOOKS);
}
