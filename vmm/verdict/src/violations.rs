//! What breaks the architecture's rules, and tables that were not walked, as findings.

use stage1::{ArchRule, Violation, WalkProblem};

use crate::{Finding, Hex, NotJudged, RuleId};

impl From<ArchRule> for RuleId {
    fn from(rule: ArchRule) -> RuleId {
        match rule {
            ArchRule::A1 => RuleId::A1,
            ArchRule::A2 => RuleId::A2,
            ArchRule::A3 => RuleId::A3,
            ArchRule::A4 => RuleId::A4,
            ArchRule::A5 => RuleId::A5,
            ArchRule::A6 => RuleId::A6,
            ArchRule::A7 => RuleId::A7,
            ArchRule::A8 => RuleId::A8,
        }
    }
}

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
        ..Finding::new(violation.rule.into(), violation.sentence)
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
        ..Finding::new(RuleId::W1, problem.to_string())
    })
}
