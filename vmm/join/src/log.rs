// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's log in its own memory: what the kernel reports there to be wrong with itself, as a snapshot keeps it.

use std::fmt::Write as _;

use linux::counted::NotRead;
use serde::{Deserialize, Serialize};
use snapshot::Notes;
use stage1::PhysMemory;
use structures::printk::{Layout, Log};
use structures::StructureError;
use untrusted::Text;
use verdict::basis::Input;
use verdict::voice::{Scanner, Spoken};
use verdict::KernelVerdict;

use crate::inside::Inside;

/// The notes' key of what a log came to.
const LOG: &str = "log";

/// The reports of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    reports: Vec<Report>,
    /// Records before the oldest one, which have been overwritten.
    overwritten: u64,
    /// Why there is no log to be read, where the kernel was built without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_built: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Report {
    /// Microseconds after boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    lines: Vec<Text>,
}

/// Reads the log.
pub(crate) fn read<M: PhysMemory + ?Sized>(inside: &Inside, memory: &M) -> Result<Log, NotRead> {
    let layout = Layout::new(&inside.kernel);
    let log = layout.and_then(|layout| layout.read(inside.view(memory)));
    log.map_err(|error| NotRead {
        why: error.to_string(),
        later: error.may_pass(),
        not_built: matches!(error, StructureError::NotBuilt(_)),
    })
}

/// Keeps what a log reports, or why it could not be read.
pub(crate) fn keep(notes: &mut Notes, log: Result<Log, NotRead>) {
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

/// Keeps why no log could be read, where nothing was kept of it.
pub(crate) fn keep_none(notes: &mut Notes, why: &str) {
    if !notes.extra.contains_key(LOG) {
        keep(notes, Err(not_read(why)));
    }
}

/// Why no log was read, of which nothing else is known.
pub(crate) fn not_read(why: &str) -> NotRead {
    NotRead {
        why: why.into(),
        later: false,
        not_built: false,
    }
}

/// The reports that a snapshot keeps.
#[derive(Debug)]
pub(crate) struct Reported {
    /// Whether the log was there to be read.
    pub input: Input,
    kept: Kept,
}

impl Reported {
    pub(crate) fn of(notes: &Notes) -> Self {
        let kept = notes.extra.get(LOG);
        let kept: Option<Result<Kept, String>> =
            kept.and_then(|kept| serde_json::from_value(kept.clone()).ok());
        let (input, kept) = match kept {
            Some(Ok(kept)) => match &kept.not_built {
                Some(why) => (Input::NotBuilt(why.clone().into()), kept),
                None => (Input::Given, kept),
            },
            Some(Err(why)) => (Input::Absent(why.into()), Kept::default()),
            None => (Input::NotAsked, Kept::default()),
        };
        Self { input, kept }
    }

    /// Adds them to the verdict on the kernel half, or to an empty one where there are reports and no such verdict.
    pub(crate) fn tell(self, kernel: &mut Option<KernelVerdict>) {
        if kernel.is_none() && self.kept.reports.is_empty() {
            return;
        }
        let kernel = kernel.get_or_insert_default();
        for Report { at, lines } in self.kept.reports {
            kernel.findings.push(Spoken { at, lines }.finding());
        }
        if self.kept.overwritten > 0 {
            kernel.notes.push(format!(
                "the kernel's log has lost its first {} records: what it reported in them is not known (V1)",
                self.kept.overwritten
            ));
        }
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
    let report = |spoken: Spoken| Report {
        at: spoken.at,
        lines: spoken.lines,
    };
    Kept {
        reports: scanner.finish().into_iter().map(report).collect(),
        overwritten: log.overwritten,
        not_built: None,
    }
}

#[cfg(test)]
mod tests {
    use structures::printk::Record;

    use super::*;

    fn log(texts: &[&str]) -> Log {
        let record = |(n, text): (usize, &&str)| Record {
            at_ns: 1_000_000_000 + n as u64 * 1000,
            text: text.as_bytes().to_vec(),
        };
        Log {
            records: texts.iter().enumerate().map(record).collect(),
            overwritten: 0,
        }
    }

    fn told(log: Result<Log, NotRead>, kernel: &mut Option<KernelVerdict>) -> Input {
        let mut notes = Notes::default();
        keep(&mut notes, log);
        let reported = Reported::of(&notes);
        let input = reported.input.clone();
        reported.tell(kernel);
        input
    }

    #[test]
    fn a_panic_is_an_error_of_the_kernel() {
        let panic = "Kernel panic - not syncing: sysrq triggered crash";
        let texts = [
            "Booting Linux",
            "sysrq: Trigger a crash",
            panic,
            "CPU: 1 PID: 50",
        ];
        let mut kernel = None;
        assert_eq!(told(Ok(log(&texts)), &mut kernel), Input::Given);
        let kernel = kernel.unwrap();
        assert_eq!(kernel.errors(), 1);
        let message = &kernel.findings[0].message;
        assert!(
            message.starts_with(&format!("the kernel reports: {panic}")),
            "{message}"
        );
    }

    #[test]
    fn what_is_no_report() {
        let mut kernel = None;
        // A line of several is each of them.
        let texts = [
            "Booting Linux\nMemory: 1G",
            "warning: no WARNING: of the kernel",
        ];
        assert_eq!(told(Ok(log(&texts)), &mut kernel), Input::Given);
        assert!(kernel.is_none());
        let input = told(Err(not_read("it has none")), &mut kernel);
        assert_eq!(input, Input::Absent("it has none".into()));
        // Nothing is lacking of a kernel that cannot report anything.
        let not_built = NotRead {
            not_built: true,
            ..not_read("it was built without one")
        };
        let input = told(Err(not_built), &mut kernel);
        assert_eq!(input, Input::NotBuilt("it was built without one".into()));
        assert!(kernel.is_none());
        assert_eq!(Reported::of(&Notes::default()).input, Input::NotAsked);
    }

    #[test]
    fn what_is_lost_is_noted() {
        let mut kernel = Some(KernelVerdict::default());
        let lost = Log {
            overwritten: 9,
            ..log(&["Booting Linux"])
        };
        assert_eq!(told(Ok(lost), &mut kernel), Input::Given);
        assert!(kernel.unwrap().notes[0].contains("its first 9 records"));
    }
}
