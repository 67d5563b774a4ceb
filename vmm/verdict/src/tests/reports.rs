// SPDX-License-Identifier: GPL-2.0-only
//! Tests of the outcome of a report of made-up steps.

use super::guest::*;
use crate::{Kernel, Machine, NotJudged, Outcome, Report, Step};

#[test]
fn outcomes_and_exit_statuses() {
    let mut empty = Report::new(Machine::default(), Kernel::default());
    assert_eq!((empty.outcome, empty.exit_status), (Outcome::NotJudged, 2));
    let good = Step {
        processes: vec![Guest::new().judge()],
        basis: Some(all_known()),
        ..Step::default()
    };
    // Nothing says what it stands on.
    let bare = Step {
        basis: None,
        ..good.clone()
    };
    assert_eq!(
        (good.outcome(), bare.outcome()),
        (Outcome::Ok, Outcome::NotJudged)
    );
    empty.push(good.clone());
    assert_eq!((empty.outcome, empty.exit_status), (Outcome::Ok, 0));
    assert_eq!(empty.reason, None);
    empty.push_not_judged("the guest was lost");
    assert_eq!((empty.outcome, empty.exit_status), (Outcome::NotJudged, 2));
    assert_eq!(empty.reason.as_deref(), Some("the guest was lost"));
    // Errors win over what could not be judged.
    empty.push(Step {
        processes: vec![scene().judge()],
        ..Step::default()
    });
    assert_eq!((empty.outcome, empty.exit_status), (Outcome::Errors, 1));
    // A step that looked at nothing is no success.
    let mut nothing = Report::new(Machine::default(), Kernel::default());
    nothing.push(Step::default());
    assert_eq!(nothing.exit_status, 2);
    let mut partly = Report::new(Machine::default(), Kernel::default());
    let not_judged = vec![NotJudged {
        reason: "maps is torn".into(),
    }];
    partly.push(Step { not_judged, ..good });
    assert_eq!(partly.exit_status, 2);
}

#[test]
fn gathering_again_changes_nothing_and_loses_nothing() {
    let mut guest = Guest::new().maps("40000000-50000000 rw-p 00000000 00:00 0 ");
    for block in 0..150 {
        guest.fold(block, written());
        guest.change(block * 16, |_| 0);
    }
    let single = guest.judge();
    let mut once = single.clone();
    once.gather();
    assert_eq!((single.findings.len(), once.findings.len()), (100, 1));
    assert_eq!((single.errors(), once.errors()), (150, 150));
    let mut twice = once.clone();
    twice.gather();
    assert_eq!(once, twice);
    // Who takes back what was not listed takes it from the count as well.
    let mut settled = single;
    settled.dropped.clear();
    settled.findings.truncate(70);
    settled.gather();
    assert_eq!((settled.errors(), settled.findings[0].places), (70, 70));
}
