//! Why rules on what the kernel counts were not judged.

use linux::counted::{Known, NotRead};

use crate::{Lack, NotJudged, ProcessVerdict, RuleId, Severity};

/// Why nothing can be held to pages, where a rule has told of one that is not what it should be.
pub(super) fn of_pages(verdicts: &[ProcessVerdict]) -> Option<NotRead> {
    use RuleId::{L10, L2, L7, L8, L9};
    let mut findings = verdicts.iter().flat_map(|verdict| &verdict.findings);
    let told = findings
        .find(|it| it.severity == Severity::Error && [L2, L7, L8, L9, L10].contains(&it.rule))?;
    Some(NotRead {
        why: format!(
            "{} has told of pages that are not what they should be",
            told.rule
        ),
        later: false,
        not_built: false,
    })
}

/// Says why a rule was not judged, where what it needs was not read.
/// What only makes the rules ask less is a note.
pub(super) fn why_not<T>(
    verdict: &mut ProcessVerdict,
    (rule, rules): (&str, &[RuleId]),
    known: &Known<T>,
) {
    let Err(not_read) = known else {
        return;
    };
    let reason = format!("{rule} was not judged: {}", not_read.why);
    match (not_read.later, rules) {
        (true, _) => verdict.not_judged.push(NotJudged { reason }),
        (false, []) if !not_read.not_built => verdict.notes.push(reason),
        (false, []) => (),
        (false, rules) => verdict.lacks.push(Lack {
            not_built: not_read.not_built,
            ..Lack::new(rules, reason)
        }),
    }
}
