// SPDX-License-Identifier: GPL-2.0-only
//! Collects the kernel's error reports from the guest's console since the last call.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linux::console::{ConsoleReport, Scanner};
use machine::{log, Console};
use verdict::{Basis, KernelVerdict, Step};

use crate::Error;

/// Maximum wait for the rest of a report that has begun.
const REST: Duration = Duration::from_millis(500);
/// Time between two checks.
const TICK: Duration = Duration::from_millis(10);

/// Collects the kernel's reports from all of a guest's console. Earlier output is read from the log, and later output
/// as it arrives, since neither the console nor its log keeps everything.
#[derive(Debug)]
pub struct ConsoleReports {
    scanner: Arc<Mutex<Scanner>>,
    missed: Option<String>,
}

impl ConsoleReports {
    /// Creates it for the guest with this console, whose logs are in this directory.
    ///
    /// # Errors
    /// If there is no log of its console.
    pub fn new(scratch: &Path, console: &Console) -> Result<Self, Error> {
        let path = scratch.join("console.log");
        let log = File::open(&path).map_err(Error::io(format!("read {}", path.display())))?;
        let scanner = Arc::new(Mutex::new(Scanner::default()));
        let mut missed = None;
        console.listen(|before| {
            let mut bytes = Vec::new();
            let length = if before > log::WHOLE {
                log::FIRST
            } else {
                before
            };
            let read = (&log).take(length).read_to_end(&mut bytes);
            if read.is_err() || bytes.len() as u64 != before {
                missed = Some(format!("of the {before} bytes that the console had shown before the agent was ready, its log has the first {}", bytes.len()));
            }
            lock(&scanner).feed(&bytes);
            let theirs = Arc::clone(&scanner);
            Box::new(move |bytes| lock(&theirs).feed(bytes))
        });
        Ok(Self { scanner, missed })
    }

    /// Returns the reason why not all of the console was read, if so.
    #[must_use]
    pub fn why_incomplete(&self) -> Option<&str> {
        self.missed.as_deref()
    }

    /// Returns the reports since the last call. It waits for the end of one that has just begun.
    pub fn new_reports(&mut self, console: &Console) -> Vec<ConsoleReport> {
        let end = Instant::now() + REST;
        loop {
            // All that was printed so far has been read then.
            let _ = console.since(u64::MAX);
            let mut scanner = lock(&self.scanner);
            if !scanner.is_open() || Instant::now() >= end {
                return scanner.finish();
            }
            drop(scanner);
            std::thread::sleep(TICK);
        }
    }
}

fn lock(scanner: &Mutex<Scanner>) -> MutexGuard<'_, Scanner> {
    // A panic elsewhere leaves at worst a report that is cut short.
    scanner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the consequence for the reports if the kernel's console hides warnings, by `quiet` or `loglevel=`. `levels`
/// is the contents of `/proc/sys/kernel/printk`, whose first number is the console's level: only messages below it are
/// shown.
#[must_use]
pub fn hides_warnings(levels: &str) -> Option<String> {
    /// `KERN_WARNING` (include/linux/kern_levels.h).
    const WARNING: u32 = 4;
    let level: u32 = levels.split_whitespace().next()?.parse().ok()?;
    (level <= WARNING).then(|| format!("a WARNING of the kernel (V1) was not judged: its console shows nothing of that level (console_loglevel {level}, by quiet or loglevel=)"))
}

/// Returns reports as a step of a run, if there are any.
#[must_use]
pub fn step(workload: &str, spoken: &[ConsoleReport]) -> Option<Step> {
    if spoken.is_empty() {
        return None;
    }
    let mut kernel = KernelVerdict::default();
    kernel.findings = spoken.iter().map(verdict::kernel_report).collect();
    Some(Step {
        workload: workload.into(),
        step: "console".into(),
        kernel: Some(kernel),
        basis: Some(Basis::of_console()),
        ..Step::default()
    })
}

#[cfg(test)]
mod tests {
    use super::hides_warnings;

    #[test]
    fn a_quiet_console_is_named() {
        // As by default, with loglevel=5, and with quiet.
        assert_eq!(hides_warnings("7\t4\t1\t7\n"), None);
        assert_eq!(hides_warnings("5\t4\t1\t7\n"), None);
        let said = hides_warnings("4\t4\t1\t7\n").unwrap();
        assert!(said.contains("console_loglevel 4"), "{said}");
        assert_eq!(hides_warnings(""), None);
    }
}
