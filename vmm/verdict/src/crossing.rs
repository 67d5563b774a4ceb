// SPDX-License-Identifier: GPL-2.0-only
//! The table of `folioscope cross`: states of memory by operations.

use schemars::JsonSchema;
use serde::Serialize;

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Crossing {
    /// The states: a column each.
    pub states: Vec<CrossedState>,
    /// A row for each operation in each process.
    pub rows: Vec<CrossingRow>,
}

/// One state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CrossedState {
    /// Its name.
    pub name: String,
    /// A few words.
    pub title: String,
}

/// The cells of one operation in one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CrossingRow {
    /// The operation's name, or several with `+` between.
    pub operation: String,
    /// Which process acts.
    pub acting: Acting,
    /// A cell for each state.
    pub cells: Vec<CrossingCell>,
    /// Errors that lie in no cell's area: counters of all memory, the process's own memory.
    pub elsewhere: usize,
    /// Pages of a secondary MMU, if the kernel has one for tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notified: Option<Notified>,
}

/// Pages of a secondary MMU, and the MMU notifiers that invalidate them (C8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Notified {
    /// Pages that were copied before the operation.
    pub copied: u64,
    /// Pages of those that a notifier invalidated.
    pub invalidated: u64,
    /// Pages that the process lost and no notifier invalidated.
    pub missed: u64,
}

/// Which process does the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Acting {
    /// The only one that has the memory.
    Alone,
    /// A parent, whose child waits.
    Parent,
    /// A child, whose parent waits.
    Child,
}

impl Acting {
    /// The ending of a cell's name.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Alone => "",
            Self::Parent => "@parent",
            Self::Child => "@child",
        }
    }
}

/// Result of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum CrossingCell {
    /// Judged, and nothing wrong.
    Green,
    /// Errors lie in its area.
    Red {
        /// How many.
        errors: usize,
    },
    /// Played, and not judged.
    NotJudged {
        /// The reason.
        reason: String,
    },
    /// The pair makes no sense.
    LeftOut {
        /// The reason.
        reason: String,
    },
}

/// How many cells ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellCounts {
    /// Judged, and nothing wrong.
    pub green: usize,
    /// With errors.
    pub red: usize,
    /// Played, and not judged.
    pub not_judged: usize,
    /// Left out by a rule.
    pub left_out: usize,
}

impl CrossingRow {
    /// The operation's name with the process that acts.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}{}", self.operation, self.acting.suffix())
    }

    /// Counts an error in a cell, or outside of all.
    pub fn found(&mut self, cell: Option<usize>) {
        let Some(at) = cell else {
            self.elsewhere += 1;
            return;
        };
        let errors = match self.cells[at] {
            CrossingCell::Red { errors } => errors + 1,
            _ => 1,
        };
        self.cells[at] = CrossingCell::Red { errors };
    }
}

impl Crossing {
    /// Counts all cells.
    #[must_use]
    pub fn counts(&self) -> CellCounts {
        let mut counts = CellCounts::default();
        for cell in self.rows.iter().flat_map(|row| &row.cells) {
            *match cell {
                CrossingCell::Green => &mut counts.green,
                CrossingCell::Red { .. } => &mut counts.red,
                CrossingCell::NotJudged { .. } => &mut counts.not_judged,
                CrossingCell::LeftOut { .. } => &mut counts.left_out,
            } += 1;
        }
        counts
    }

    /// Returns the sums over all rows, if any row has a secondary MMU.
    #[must_use]
    pub fn notified(&self) -> Option<Notified> {
        let rows = self.rows.iter().filter_map(|row| row.notified);
        rows.reduce(|all, row| Notified {
            copied: all.copied + row.copied,
            invalidated: all.invalidated + row.invalidated,
            missed: all.missed + row.missed,
        })
    }

    /// Returns the reason why no cell at all was judged, if so: a table without one says nothing of the kernel.
    #[must_use]
    pub fn nothing_played(&self) -> Option<String> {
        let counts = self.counts();
        if counts.green + counts.red > 0 {
            return None;
        }
        let mut cells = self.rows.iter().flat_map(|row| &row.cells);
        let reason = cells.find_map(|cell| match cell {
            CrossingCell::LeftOut { reason } | CrossingCell::NotJudged { reason } => Some(reason),
            _ => None,
        });
        Some(match reason {
            Some(why) => format!("no cell of the crossing was judged: {why}"),
            None => "no cell of the crossing was judged".to_owned(),
        })
    }

    /// The cells that were not judged, by the reason: its text, and their names.
    #[must_use]
    pub fn not_judged(&self) -> Vec<(&str, Vec<String>)> {
        let mut told: Vec<(&str, Vec<String>)> = Vec::new();
        for row in &self.rows {
            for (state, cell) in self.states.iter().zip(&row.cells) {
                let CrossingCell::NotJudged { reason } = cell else {
                    continue;
                };
                let name = format!("{}-{}", state.name, row.name());
                match told.iter_mut().find(|(why, _)| why == reason) {
                    Some((_, names)) => names.push(name),
                    None => told.push((reason, vec![name])),
                }
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_counted_and_named() {
        let state = |name: &str| CrossedState {
            name: name.into(),
            ..CrossedState::default()
        };
        let reason = || "EINVAL".to_owned();
        let mut table = Crossing {
            states: vec![state("folded"), state("swapped")],
            rows: vec![CrossingRow {
                operation: "move".into(),
                acting: Acting::Child,
                cells: vec![
                    CrossingCell::Green,
                    CrossingCell::NotJudged { reason: reason() },
                ],
                elsewhere: 0,
                notified: None,
            }],
        };
        assert_eq!(table.nothing_played(), None);
        let found = table.not_judged();
        assert_eq!(found, [("EINVAL", vec!["swapped-move@child".to_owned()])]);
        for cell in [Some(0), None, Some(0)] {
            table.rows[0].found(cell);
        }
        assert_eq!(table.rows[0].cells[0], CrossingCell::Red { errors: 2 });
        assert_eq!(table.rows[0].elsewhere, 1);
        let counts = table.counts();
        assert_eq!((counts.red, counts.not_judged, counts.green), (1, 1, 0));
        assert_eq!(table.nothing_played(), None);
        table.rows[0].cells[0] = CrossingCell::LeftOut { reason: reason() };
        let nothing = "no cell of the crossing was judged: EINVAL";
        assert_eq!(table.nothing_played().as_deref(), Some(nothing));
    }
}
