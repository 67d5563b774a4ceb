// SPDX-License-Identifier: GPL-2.0-only
//! One process under all rules, in one walk.

use std::cell::RefCell;

use stage1::{walk, Checker, Descend, PhysMemory, Table, Violation, Visitor, WalkProblem};

use crate::group::Group;
use crate::orders::Newest;
use crate::rules;
use crate::seen::Seen;
use crate::violations::{finding_of, problem_of};
use crate::{ProcessInput, ProcessVerdict};

/// Walks the process's tables and judges them.
///
/// A table that is wrong is a finding, and one that cannot be read is listed as not judged; what
/// can be judged is judged all the same.
pub fn judge<M: PhysMemory + ?Sized>(memory: &M, input: &ProcessInput<'_>) -> ProcessVerdict {
    judge_all(memory, input, false)
}

/// [`judge`] entry by entry, never a run of alike ones at once: what [`judge`] says is held against this.
#[doc(hidden)]
pub fn judge_plainly<M: PhysMemory + ?Sized>(
    memory: &M,
    input: &ProcessInput<'_>,
) -> ProcessVerdict {
    judge_all(memory, input, true)
}

fn judge_all<M: PhysMemory + ?Sized>(
    memory: &M,
    input: &ProcessInput<'_>,
    plainly: bool,
) -> ProcessVerdict {
    let regime = input.regime;
    let violations = RefCell::new(Vec::new());
    let mut notes = Vec::new();
    let linux = input.linux_rules().map_err(|why| notes.push(why)).is_ok();
    let newest = Newest::new(input.orders, input.process.pid, regime.granule.bytes());
    let mut judge = Judge {
        input,
        checker: Checker::new(regime, |violation| violations.borrow_mut().push(violation)),
        violations: &violations,
        linux,
        seen: Seen::new(input, &newest),
        plainly,
    };
    walk(memory, regime, regime.first, regime.last, &mut judge);
    let mut seen = judge.seen;
    if linux {
        rules::check_expected(memory, input, &newest, &mut seen);
        notes.extend(
            input
                .release
                .and_then(|release| rules::untried(release, false)),
        );
    }
    if linux {
        notes.extend(seen.folios());
    }
    if let Some(orders) = input
        .orders
        .filter(|orders| orders.lost + orders.being_written > 0)
    {
        notes.push(format!(
            "{} order records were overwritten before they could be read, {} were being written",
            orders.lost, orders.being_written
        ));
    }
    seen.finish(notes)
}

struct Judge<'a, F> {
    input: &'a ProcessInput<'a>,
    checker: Checker<'a, F>,
    violations: &'a RefCell<Vec<Violation>>,
    linux: bool,
    seen: Seen<'a>,
    plainly: bool,
}

impl<'m, F: FnMut(Violation)> Visitor<'m> for Judge<'_, F> {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        self.checker.table(table);
        let (regime, vmas) = (self.input.regime, self.input.vmas);
        self.seen.folios.tables.table(table, regime, vmas);
        let size = self.input.regime.entry_size(table.level);
        let window = self
            .input
            .regime
            .contiguous_entries(table.level)
            .unwrap_or(16);
        let group_bytes = size * window as u64;
        self.seen.of_table.clear();
        for violation in self.violations.borrow_mut().drain(..) {
            let end = violation.va.0 + size * violation.words.len() as u64;
            let range = (violation.va.0, end);
            let mut group = range.0 - range.0 % group_bytes;
            while group < end {
                self.seen.of_table.insert(group);
                group += group_bytes;
            }
            let process = Some(self.input.process);
            self.seen.error(range, finding_of(violation, process, size));
        }
        for start in (0..table.words.len()).step_by(window) {
            let end = (start + window).min(table.words.len());
            let group = Group::new(
                (self.input.regime, table.level),
                table.va_of(start, self.input.regime).0,
                (table.address.0, start),
                &table.words[start..end],
            );
            let group = match self.plainly {
                true => group.plainly(),
                false => group,
            };
            if group
                .words
                .iter()
                .any(|&word| word != 0 && !group.is_table(word))
            {
                self.seen.group(&group, self.linux);
            }
        }
        Descend::Into
    }

    fn problem(&mut self, problem: &WalkProblem) {
        match problem_of(problem, Some(self.input.process)) {
            Ok(finding) => {
                let range = (problem.va.0, problem.va.0);
                self.seen.error(range, finding);
            }
            Err(reason) => {
                self.seen.folios.tables.unsure += 1;
                self.seen.not_judged(reason.reason);
            }
        }
    }
}
