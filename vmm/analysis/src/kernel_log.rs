// SPDX-License-Identifier: GPL-2.0-only
//! Findings of the kernel's log that a snapshot keeps.

use evidence::log::{Kept, LogReport};
use linux::console::ConsoleReport;
use snapshot::Notes;
use verdict::basis::Input;
use verdict::{kernel_report, KernelVerdict};

/// The reports that a snapshot keeps.
#[derive(Debug)]
pub struct Reported {
    /// The log as an input of the verdict.
    pub input: Input,
    kept: Kept,
}

impl Reported {
    pub fn of(notes: &Notes) -> Self {
        let (input, kept) = match Kept::of(notes) {
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
    pub fn tell(self, kernel: &mut Option<KernelVerdict>) {
        if kernel.is_none() && self.kept.reports.is_empty() {
            return;
        }
        let kernel = kernel.get_or_insert_default();
        for LogReport { at, lines } in self.kept.reports {
            let report = ConsoleReport { at, lines };
            kernel.findings.push(kernel_report(&report));
        }
        if self.kept.overwritten > 0 {
            kernel.notes.push(format!(
                "the kernel's log has lost its first {} records: what it reported in them is not known (V1)",
                self.kept.overwritten
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use evidence::log::{keep, not_read};
    use linux::counted::NotRead;
    use structures::printk::{Log, Record};

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
