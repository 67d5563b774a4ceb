//! Looks at a process that waits, until no kernel thread is seen at work on its tables.

use std::time::Duration;

use verdict::{Expectation, NotJudged, ProcessVerdict, RuleId, Severity};

use crate::{Capture, Error, Look, Reread};

/// Looks at one process at most, until two agree.
const LOOKS: u32 = 8;

/// A look that shows no kernel thread at work on the tables; `capture` makes one copy after the other.
///
/// The process waits, but compaction, reclaim and khugepaged do not: a machine may be stopped while one of them has
/// cleared half a group, or put migration entries where pages are on their way. What is wrong with a table
/// stays wrong, so an error counts when a second look, a little later, shows the same.
///
/// # Errors
/// As `capture`, and where the process's tables are not proved to be its own.
pub fn settle<E: From<Error>>(
    expectations: &[Expectation],
    mut capture: impl FnMut() -> Result<(Capture, Option<Reread>), E>,
) -> Result<Look, E> {
    let mut before = None;
    for attempt in 1.. {
        let (copy, reread) = capture()?;
        let mut seen = Look::of(copy, expectations)?;
        seen.reread = reread;
        let errors = seen.errors();
        if !seen.moving() && (errors.is_empty() || before.as_ref() == Some(&errors)) {
            return Ok(seen);
        }
        if attempt == LOOKS {
            seen.nothing_is_sure();
            return Ok(seen);
        }
        before = Some(errors);
        std::thread::sleep(Duration::from_millis(2 << attempt));
    }
    unreachable!("the last attempt returns")
}

impl Look {
    fn verdicts(&self) -> impl Iterator<Item = &ProcessVerdict> {
        std::iter::once(&self.verdict).chain(&self.companions)
    }

    /// What is wrong, and where: to be compared with another look.
    fn errors(&self) -> Vec<(u32, RuleId, u64)> {
        let of = |verdict: &ProcessVerdict| {
            let pid = verdict.process.pid;
            let errors = verdict.findings.iter();
            let errors = errors.filter(|finding| finding.severity == Severity::Error);
            errors
                .map(|finding| (pid, finding.rule, finding.va.0))
                .collect::<Vec<_>>()
        };
        self.verdicts().flat_map(of).collect()
    }

    /// Whether pages are on their way.
    fn moving(&self) -> bool {
        self.verdicts().any(|verdict| verdict.entries.moving > 0)
    }

    /// Takes every error back: the tables did not stand still.
    fn nothing_is_sure(&mut self) {
        for verdict in std::iter::once(&mut self.verdict).chain(&mut self.companions) {
            let errors = verdict.errors();
            let moving = verdict.entries.moving;
            if errors == 0 && moving == 0 {
                continue;
            }
            verdict
                .findings
                .retain(|finding| finding.severity != Severity::Error);
            verdict.dropped.retain(|rule, _| *rule == RuleId::Eligible);
            verdict.not_judged.push(NotJudged {
                reason: format!(
                    "the tables of process {} did not stand still: in {LOOKS} looks no two showed the same, the last one \
                     {moving} entries in migration and {errors} errors; look again when the guest has less to do",
                    verdict.process.pid
                ),
            });
        }
    }
}
