// SPDX-License-Identifier: GPL-2.0-only
//! Tests what a status of 0 asserts: each kind of lack makes a verdict not judged, with its reason first; what was not
//! asked for does not.

use crate::testing::id;
use std::collections::BTreeSet;

use super::guest::*;
use crate::basis::{names, Because, Context, Input, Scope};
use crate::rules::{Tier, RULES};
use crate::{
    AddressSpace, Basis, Hex, Kernel, KernelVerdict, Lack, Machine, Outcome, ProcessVerdict,
    Report, RuleId, Step,
};

fn space(pid: u32) -> AddressSpace {
    AddressSpace {
        pid,
        name: format!("p{pid}").into(),
        root: Hex(0x8000_0000 + u64::from(pid)),
    }
}

/// A verdict on one process that lacks nothing.
fn judged(pid: u32) -> ProcessVerdict {
    let mut verdict = Guest::new().judge();
    verdict.lacks.clear();
    verdict.not_judged.clear();
    verdict.process.pid = pid;
    verdict.process.name = format!("p{pid}").into();
    verdict.root = space(pid).root;
    verdict
}

/// A guest of which all is known: two processes and the kernel half.
fn whole() -> (Context, Vec<ProcessVerdict>, Option<KernelVerdict>) {
    let known = Context {
        scope: Scope::Guest,
        release: Some("6.12.117".into()),
        recognised_by: Some("the banner in its memory".into()),
        spaces: Some(Ok(vec![space(1), space(2)])),
        console: Input::Given,
        ..Context::default()
    };
    (
        known,
        vec![judged(1), judged(2)],
        Some(KernelVerdict::default()),
    )
}

type Change = fn(&mut Context, &mut Vec<ProcessVerdict>, &mut Option<KernelVerdict>);

/// The outcome of a guest that is whole but for this, its first reason, and its basis.
fn without(change: Change) -> (Outcome, String, Basis) {
    let (mut known, mut processes, mut kernel) = whole();
    change(&mut known, &mut processes, &mut kernel);
    let basis = Basis::new(known, &processes, kernel.as_ref());
    let mut report = Report::new(Machine::default(), Kernel::default());
    report.push(Step {
        processes,
        kernel,
        basis: Some(basis.clone()),
        ..Step::default()
    });
    assert_eq!(report.exit_status, report.outcome.exit_status());
    (report.outcome, report.reason.unwrap_or_default(), basis)
}

#[test]
fn a_status_of_0_needs_all_that_was_asked_for() {
    const NO_TYPES: &str =
        "the kernel's types were not found in its memory (CONFIG_DEBUG_INFO_BTF)";
    let cases: [(&str, Change, Outcome, &str); 18] = [
        ("all is known", |_, _, _| (), Outcome::Ok, ""),
        (
            "one process that was named",
            |known, processes, _| {
                known.scope = Scope::Processes;
                processes.truncate(1);
            },
            Outcome::Ok,
            "",
        ),
        (
            "the kernel half alone",
            |known, processes, _| {
                known.scope = Scope::KernelHalf;
                processes.clear();
            },
            Outcome::Ok,
            "",
        ),
        (
            "no kernel half, which was asked for",
            |known, _, kernel| {
                known.no_kernel_half = Some("the kernel half was not judged: EL2".into());
                *kernel = None;
            },
            Outcome::NotJudged,
            "the kernel half was not judged: EL2",
        ),
        (
            "a kernel half that nobody asked for",
            |known, _, kernel| {
                known.scope = Scope::Processes;
                *kernel = None;
            },
            Outcome::Ok,
            "",
        ),
        (
            "nothing: the MMU is off",
            |known, processes, kernel| {
                *known = Context {
                    no_kernel_half: Some("the kernel half was not judged: the MMU is off".into()),
                    spaces: Some(Err("no CPU showed the kernel's tables".into())),
                    ..Context::default()
                };
                processes.clear();
                *kernel = None;
            },
            Outcome::NotJudged,
            "the kernel half was not judged: the MMU is off",
        ),
        (
            "no release",
            |known, _, _| known.release = None,
            Outcome::NotJudged,
            "Linux's own rules were not applied: the kernel's release is not known",
        ),
        (
            "6.1",
            |known, _, _| known.release = Some("6.1.55".into()),
            Outcome::NotJudged,
            "Linux's own rules were not applied: kernel 6.1.55 lays its software bits out differently",
        ),
        (
            "no types",
            |known, processes, _| {
                known.spaces = Some(Err(NO_TYPES.into()));
                processes.clear();
            },
            Outcome::NotJudged,
            "which processes the guest has is not known, so not all were judged: the kernel's types",
        ),
        (
            "processes that are known and were not judged",
            |_, processes, _| processes.truncate(1),
            Outcome::NotJudged,
            "process 2 p2 of 2 address spaces were not judged",
        ),
        (
            "no process at all",
            |known, processes, _| {
                known.spaces = Some(Ok(Vec::new()));
                processes.clear();
            },
            Outcome::NotJudged,
            "no address space was judged: the guest has no process with memory of its own",
        ),
        (
            "a process that could not be judged",
            |known, _, _| known.lacks = vec!["process 3 p3: no table".into()],
            Outcome::NotJudged,
            "process 3 p3: no table",
        ),
        (
            "an input that a verdict lacks",
            |_, processes, _| {
                let lack = Lack::new([id("L16")], "L16 was not judged: no swap_lock");
                processes[1].lacks.push(lack);
            },
            Outcome::NotJudged,
            "L16 was not judged: no swap_lock",
        ),
        (
            "an input that the kernel was built without",
            |_, processes, _| {
                let lack = Lack::new([id("L16")], "L16 was not judged: no CONFIG_SWAP");
                let not_built = true;
                processes[1].lacks.push(Lack { not_built, ..lack });
            },
            Outcome::Ok,
            "",
        ),
        (
            "the kernel half lacks one",
            |_, _, kernel| {
                let lack = Lack::new([id("K1")], "K1 was not judged: no symbols");
                kernel.as_mut().unwrap().lacks.push(lack);
            },
            Outcome::NotJudged,
            "K1 was not judged: no symbols",
        ),
        (
            "a log that could not be read",
            |known, _, _| known.console = Input::Absent("no printk".into()),
            Outcome::NotJudged,
            "V1 was not judged: no printk",
        ),
        (
            "a console that nobody asked for",
            |known, _, _| known.console = Input::NotAsked,
            Outcome::Ok,
            "",
        ),
        (
            "an error beside a lack",
            |known, processes, _| {
                known.release = None;
                processes[0] = super::guest::scene().judge();
            },
            Outcome::Errors,
            "",
        ),
    ];
    for (what, change, outcome, reason) in cases {
        let (got, why, basis) = without(change);
        assert_eq!(got, outcome, "{what}: {why}");
        assert!(why.starts_with(reason), "{what}: {why:?}");
        assert_eq!(why.is_empty(), reason.is_empty(), "{what}: {why:?}");
        // No rule is silent: it was in force, or there is a reason.
        let mut told: BTreeSet<RuleId> = basis.in_force.clone();
        for out in &basis.not_in_force {
            assert!(told.insert(out.rule), "{what}: {} twice", out.rule);
            assert!(!out.reason.is_empty(), "{what}: {}", out.rule);
            // One that was asked for is named by a lack.
            let lacking = out.because == Because::Absent;
            assert!(!lacking || got != Outcome::Ok, "{what}: {}", out.rule);
        }
        let rules = RULES.iter().filter(|rule| rule.tier != Tier::Information);
        let all: BTreeSet<RuleId> = rules.map(|rule| rule.id()).collect();
        assert_eq!(told, all, "{what}");
    }
}

#[test]
fn rules_in_force_by_what_they_need() {
    let (_, _, basis) = without(|_, _, _| ());
    assert_eq!(
        names(&basis.in_force),
        "A1 to A8, W1, L1 to L10, L12 to L16, L18, L19, K1, K2, V1"
    );
    let out: Vec<(RuleId, Because)> = basis
        .not_in_force
        .iter()
        .map(|it| (it.rule, it.because))
        .collect();
    let not_asked = "L11 L17 C1 C2 C3 C4 C5 C6 C7 C8 F1 S1 S2 S3 S4 S5 S6 S7".split(' ');
    let not_asked = not_asked.map(|rule| (id(rule), Because::NotAsked));
    assert_eq!(out, not_asked.collect::<Vec<_>>());
    assert_eq!((basis.known, basis.judged.len()), (Some(2), 2));
    let (_, _, driven) = without(|known, _, _| {
        known.expectations = Input::Given;
        known.records = Input::Given;
        known.getters = Input::Given;
    });
    assert_eq!(
        names(&driven.in_force),
        "A1 to A8, W1, L1 to L19, C1 to C7, K1, K2, V1"
    );
    let (_, _, old) = without(|known, _, _| known.release = Some("6.1.55".into()));
    assert_eq!(names(&old.in_force), "A1 to A8, W1, V1");
}

#[test]
fn a_driven_guest_whose_console_is_silent_is_not_judged_by_it() {
    use crate::basis::Input::{Absent, Given, NotBuilt};
    let asked = without(|known, _, _| known.console = Input::NotAsked).2;
    const WHY: &str = "this kernel was built without CONFIG_PRINTK";
    let why = WHY;
    for (console, because) in [
        (NotBuilt(why.into()), Because::NotThere),
        (Absent(why.into()), Because::Absent),
    ] {
        let mut basis = asked.clone();
        basis.add(&Basis::of_driven(console));
        assert!(basis.in_force.contains(&id("F1")) && !basis.in_force.contains(&id("V1")));
        let mut out = basis.not_in_force.iter();
        let out = out.find(|out| out.rule == id("V1")).unwrap();
        assert_eq!((out.because, out.reason.as_str()), (because, why));
    }
    // Of a snapshot's log: there is nothing to judge then, and the verdict lacks nothing.
    let none = without(|known, _, _| known.console = NotBuilt(WHY.into())).2;
    let out = none.not_in_force.iter().find(|out| out.rule == id("V1"));
    assert_eq!(out.unwrap().because, Because::NotThere);
    assert!(
        !none.lacks.iter().any(|lack| lack.contains(why)),
        "{:?}",
        none.lacks
    );
    let mut basis = asked;
    basis.add(&Basis::of_driven(Given));
    assert!(basis.in_force.contains(&id("V1")));
    assert!(basis.not_in_force.iter().all(|out| out.rule != id("V1")));
}

#[test]
fn notifiers_are_asked_where_there_is_a_secondary_mmu() {
    let told = Basis::of_notifiers(true);
    assert_eq!(names(&told.in_force), "C8");
    let lacking = Basis::of_notifiers(false);
    assert_eq!(lacking.in_force, BTreeSet::new());
    let why = &lacking.not_in_force[0];
    assert_eq!((why.rule, why.because), (id("C8"), Because::NotThere));
    let (_, _, mut basis) = without(|_, _, _| ());
    basis.add(&lacking);
    assert!(basis.not_in_force.contains(why));
    basis.add(&told);
    assert!(basis.in_force.contains(&id("C8")));
}
