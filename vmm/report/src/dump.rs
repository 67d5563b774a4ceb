// SPDX-License-Identifier: GPL-2.0-only
//! Single entries, streamed: a million of them in a few MB of memory.

mod options;
mod row;

use std::cell::RefCell;
use std::io::{self, Write};
use std::ops::Range;

use linux::pte::Pte;
use linux::vma::Vma;
use stage1::{
    walk, Checker, Descend, Descriptor, Level, PhysMemory, Regime, Table, Violation,
    VirtualAddress, Visitor, WalkProblem,
};

use verdict::rules::breaks_by_itself;
use verdict::{row_at, BlockState};

pub use options::{DumpOptions, Format};
pub use row::Row;
use row::Sink;

/// Counts of what was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpSummary {
    /// Rows.
    pub rows: u64,
    /// Tables that could not be walked, in one sentence each.
    pub problems: Vec<String>,
}

/// Writes the entries of `regime` that `options` choose, in address order; the table descriptors
/// of a table come together, before everything that they lead to.
pub fn dump<M: PhysMemory + ?Sized>(
    out: &mut impl Write,
    memory: &M,
    regime: &Regime,
    vmas: &[Vma],
    format: Format,
    options: &DumpOptions,
) -> io::Result<DumpSummary> {
    let violations = RefCell::new(Vec::new());
    let mut dumper = Dumper {
        regime,
        vmas,
        options,
        checker: Checker::new(regime, |violation: Violation| {
            let words = violation.words.len();
            let range = violation.index..violation.index + words;
            violations
                .borrow_mut()
                .push((violation.level, violation.table.0, range));
        }),
        violations: &violations,
        sink: Sink::new(out, format),
        summary: DumpSummary::default(),
        failed: None,
    };
    dumper.sink.begin()?;
    let (first, last) = (VirtualAddress(options.first), VirtualAddress(options.last));
    walk(memory, regime, first, last, &mut dumper);
    if let Some(error) = dumper.failed {
        return Err(error);
    }
    dumper.sink.end()?;
    Ok(dumper.summary)
}

struct Dumper<'a, F, W: Write> {
    regime: &'a Regime,
    vmas: &'a [Vma],
    options: &'a DumpOptions,
    checker: Checker<'a, F>,
    /// Broken groups of the tables that the walk is in: level, table, entries.
    violations: &'a RefCell<Vec<(Level, u64, Range<usize>)>>,
    sink: Sink<'a, W>,
    summary: DumpSummary,
    failed: Option<io::Error>,
}

impl<'m, F: FnMut(Violation), W: Write> Visitor<'m> for Dumper<'_, F, W> {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        if self.failed.is_some() {
            return Descend::Skip;
        }
        if self.options.findings {
            // Tables of this level and below were left behind.
            let above = |(level, ..): &(Level, u64, Range<usize>)| *level < table.level;
            self.violations.borrow_mut().retain(above);
            self.checker.table(table);
        }
        if self.options.tables && table.level != Level::L3 {
            for index in table.range.clone() {
                if table.words[index] & 3 == 3 {
                    self.row(table, index, None);
                }
            }
        }
        Descend::Into
    }

    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        if self.failed.is_some()
            || self
                .options
                .level
                .is_some_and(|l| l != table.level.number())
        {
            return;
        }
        let window = self.regime.contiguous_entries(table.level).unwrap_or(16);
        let mut at = range.start;
        while at < range.end {
            let start = at / window * window;
            let next = (start + window).min(table.words.len());
            let shown = at..next.min(range.end);
            if table.words[shown.clone()].iter().any(|&word| word != 0) {
                self.group(table, start..next, shown);
            }
            at = next;
        }
    }

    fn problem(&mut self, problem: &WalkProblem) {
        if self.summary.problems.len() < 32 {
            self.summary.problems.push(problem.to_string());
        }
    }
}

impl<F, W: Write> Dumper<'_, F, W> {
    fn group(&mut self, table: &Table<'_>, whole: Range<usize>, shown: Range<usize>) {
        if self.options.findings && !self.broken(table, &whole) {
            return;
        }
        let user = table.level == Level::L3 && self.regime.first.0 == 0;
        for index in shown {
            let word = table.words[index];
            let descriptor = Descriptor::new(word, table.level, self.regime);
            let contiguous = descriptor.kind().is_leaf() && Pte(word).valid_cont();
            if word != 0 && (contiguous || !self.options.contiguous) {
                let va = table.va_of(index, self.regime).0;
                let row = row_at(&self.options.judged, va).filter(|_| user);
                self.row(table, index, row.map(|row| row.state));
            }
        }
    }

    fn broken(&self, table: &Table<'_>, whole: &Range<usize>) -> bool {
        let violations = self.violations.borrow();
        let architecture = violations.iter().any(|(_, at, range)| {
            *at == table.address.0 && range.start < whole.end && whole.start < range.end
        });
        if architecture || !self.options.linux || self.regime.first.0 != 0 {
            return architecture;
        }
        let va = table.va_of(whole.start, self.regime).0;
        let next = self.vmas.partition_point(|vma| vma.end <= va);
        let vma = self.vmas.get(next).filter(|vma| vma.contains(va));
        breaks_by_itself(
            (self.regime, table.level),
            va,
            (table.address.0, whole.start),
            &table.words[whole.clone()],
            vma.map_or(Some(false), Vma::hugetlb),
        )
    }

    fn row(&mut self, table: &Table<'_>, index: usize, state: Option<BlockState>) {
        if self
            .options
            .level
            .is_some_and(|level| level != table.level.number())
        {
            return;
        }
        let row = Row::new(self.regime, table, index, self.vmas, state, self.options);
        self.summary.rows += 1;
        if let Err(error) = self.sink.row(&row) {
            self.failed.get_or_insert(error);
        }
    }
}
