// SPDX-License-Identifier: GPL-2.0-only
//! Fault reports of the kernel's log in memory, as a snapshot keeps them.

use std::fmt::Write as _;

use linux::console::{ConsoleReport, Scanner};
use linux::counted::NotRead;
use serde::{Deserialize, Serialize};
use snapshot::Notes;
use stage1::PhysMemory;
use structures::printk::{Layout, Log};
use structures::StructureError;
use untrusted::Text;

use crate::inside::Inside;

/// The notes' key of what a log came to.
const LOG: &str = "log";

/// The reports of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The reports.
    pub reports: Vec<LogReport>,
    /// Records before the oldest one, which have been overwritten.
    pub overwritten: u64,
    /// The reason if the kernel was built without a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_built: Option<String>,
}

/// One report of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReport {
    /// Microseconds after boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// Its lines.
    pub lines: Vec<Text>,
}

/// Reads the log.
pub fn read<M: PhysMemory + ?Sized>(inside: &Inside, memory: &M) -> Result<Log, NotRead> {
    let layout = Layout::new(&inside.kernel);
    let log = layout.and_then(|layout| layout.read(inside.view(memory)));
    log.map_err(|error| NotRead {
        why: error.to_string(),
        later: error.may_pass(),
        not_built: matches!(error, StructureError::NotBuilt(_)),
    })
}

/// Keeps what a log reports, or why it could not be read.
pub fn keep(notes: &mut Notes, log: Result<Log, NotRead>) {
    let kept = match log {
        Ok(log) => Ok(reports(&log)),
        Err(not_read) if not_read.not_built => Ok(Kept {
            not_built: Some(not_read.why),
            ..Kept::default()
        }),
        Err(not_read) => Err(not_read.why),
    };
    let value = serde_json::to_value(kept).unwrap_or_default();
    notes.extra.insert(LOG.into(), value);
}

/// Keeps with a snapshot of a live guest what its kernel's log reports.
pub fn keep_log<M: PhysMemory + ?Sized>(notes: &mut Notes, inside: &Inside, memory: &M) {
    keep(notes, read(inside, memory));
}

impl Kept {
    /// Reads from a snapshot's notes what a log came to, or why it could not be read; `None` if nothing was kept.
    #[must_use]
    pub fn of(notes: &Notes) -> Option<Result<Self, String>> {
        let kept = notes.extra.get(LOG)?;
        serde_json::from_value(kept.clone()).ok()
    }
}

/// Keeps why no log could be read, where nothing was kept of it.
pub fn keep_none(notes: &mut Notes, why: &str) {
    if !notes.extra.contains_key(LOG) {
        keep(notes, Err(not_read(why)));
    }
}

/// Returns the reason that no log was read, as [`NotRead`].
pub fn not_read(why: &str) -> NotRead {
    NotRead {
        why: why.into(),
        later: false,
        not_built: false,
    }
}

/// The reports, found as on a console.
fn reports(log: &Log) -> Kept {
    let mut scanner = Scanner::default();
    let mut shown = String::new();
    for record in &log.records {
        let micros = record.at_ns / 1000;
        for line in String::from_utf8_lossy(&record.text).lines() {
            shown.clear();
            let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
            let _ = writeln!(shown, "[{seconds:5}.{micros:06}] {line}");
            scanner.feed(shown.as_bytes());
        }
    }
    let report = |spoken: ConsoleReport| LogReport {
        at: spoken.at,
        lines: spoken.lines,
    };
    Kept {
        reports: scanner.finish().into_iter().map(report).collect(),
        overwritten: log.overwritten,
        not_built: None,
    }
}
