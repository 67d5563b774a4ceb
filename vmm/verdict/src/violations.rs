// SPDX-License-Identifier: GPL-2.0-only
//! Violations of the architecture's rules, and tables that were not walked, as findings.

use stage1::{Violation, WalkProblem};

use crate::rules::WALKED;
use crate::{Finding, Hex, NotJudged};

/// An architecture finding as ours.
pub(crate) fn finding_of(
    violation: Violation,
    process: Option<&crate::Process>,
    size: u64,
) -> Finding {
    let va = violation.va.0;
    Finding {
        process: process.cloned(),
        va: Hex(va),
        end: Hex(va.wrapping_add(size * violation.words.len() as u64)),
        level: violation.level.number(),
        table: Hex(violation.table.0),
        index: violation.index,
        words: violation.words.into_iter().map(Hex).collect(),
        ..Finding::new(violation.rule, violation.sentence)
    }
}

/// A table that was not walked, as ours: a finding, or a reason why something was not judged.
pub(crate) fn problem_of(
    problem: &WalkProblem,
    process: Option<&crate::Process>,
) -> Result<Finding, NotJudged> {
    if !problem.kind.is_finding() {
        return Err(NotJudged {
            reason: problem.to_string(),
        });
    }
    let (table, index, word) = problem.from.unwrap_or((problem.address, 0, 0));
    Ok(Finding {
        process: process.cloned(),
        va: Hex(problem.va.0),
        end: Hex(problem.va.0),
        level: problem.level.number() - i8::from(problem.from.is_some()),
        table: Hex(table.0),
        index,
        words: problem.from.map(|_| Hex(word)).into_iter().collect(),
        ..Finding::new(&WALKED, problem.to_string())
    })
}
