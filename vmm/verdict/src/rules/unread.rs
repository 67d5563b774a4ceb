// SPDX-License-Identifier: GPL-2.0-only
//! The reasons that rules on the kernel's counters were not judged.

use linux::counted::{Known, NotRead};

use super::rule::Need;
use super::without::without;
use crate::{Lack, NotJudged, ProcessVerdict, Severity};

/// Returns the reason that no counter can be compared with pages, if a rule reports a page that is not what it should
/// be.
pub(super) fn of_pages(verdicts: &[ProcessVerdict]) -> Option<NotRead> {
    let mut findings = verdicts.iter().flat_map(|verdict| &verdict.findings);
    let told = findings
        .find(|it| it.severity == Severity::Error && it.rule.rule().on_break.voids_counts())?;
    Some(NotRead {
        why: format!(
            "{} has told of pages that are not what they should be",
            told.rule
        ),
        later: false,
        not_built: false,
    })
}

/// Says why rules were not judged, where what they need was not read.
pub(super) fn why_not<T>(verdict: &mut ProcessVerdict, need: Need, known: &Known<T>) {
    let Err(not_read) = known else {
        return;
    };
    let without = without(&[need]);
    let reason = format!("{}: {}", without.sentence(), not_read.why);
    match not_read.later {
        true => verdict.not_judged.push(NotJudged { reason }),
        false => verdict.lacks.push(Lack {
            not_built: not_read.not_built,
            ..Lack::new(without.rules, reason)
        }),
    }
}

/// Says why rules ask less. `said`: what was not judged. What may be there at another instant was not judged, and of
/// what the kernel was built without there is nothing to say.
pub(super) fn note(verdict: &mut ProcessVerdict, said: &str, not_read: &NotRead) {
    let reason = format!("{said}: {}", not_read.why);
    match (not_read.later, not_read.not_built) {
        (true, _) => verdict.not_judged.push(NotJudged { reason }),
        (false, false) => verdict.notes.push(reason),
        (false, true) => (),
    }
}
