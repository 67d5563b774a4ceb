//! What the guest's kernel reports on its console to be wrong, since it was last asked.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use machine::{log, Console};
use verdict::voice::{Scanner, Spoken};
use verdict::{Basis, KernelVerdict, Step};

use crate::Error;

/// How long the rest of a report may take that has begun.
const REST: Duration = Duration::from_millis(500);
/// Between two looks at it.
const TICK: Duration = Duration::from_millis(10);

/// Hears a guest's console for the kernel's reports. All of it: what came before is read from the log, and what comes is heard
/// as it does, since neither the console nor its log keeps all.
#[derive(Debug)]
pub struct Voice {
    scanner: Arc<Mutex<Scanner>>,
    missed: Option<String>,
}

impl Voice {
    /// Of the guest with this console, whose logs are in this directory.
    ///
    /// # Errors
    /// Where there is no log of its console.
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

    /// Why not all that the console has shown was heard, if so.
    #[must_use]
    pub fn missed(&self) -> Option<&str> {
        self.missed.as_deref()
    }

    /// The reports that came since this was last asked. For one that has just begun its end is waited for.
    pub fn news(&mut self, console: &Console) -> Vec<Spoken> {
        let end = Instant::now() + REST;
        loop {
            // What has been printed so far has been heard then.
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

/// Where the kernel's console hides warnings, by `quiet` or `loglevel=`: what that means for what is heard. `levels` is what is in
/// `/proc/sys/kernel/printk`, whose first number is the console's level: only what is below it is shown.
#[must_use]
pub fn hides_warnings(levels: &str) -> Option<String> {
    /// `KERN_WARNING` (include/linux/kern_levels.h).
    const WARNING: u32 = 4;
    let level: u32 = levels.split_whitespace().next()?.parse().ok()?;
    (level <= WARNING).then(|| format!("a WARNING of the kernel (V1) was not judged: its console shows nothing of that level (console_loglevel {level}, by quiet or loglevel=)"))
}

/// Reports as a step of a run, where there are any.
#[must_use]
pub fn step(workload: &str, spoken: &[Spoken]) -> Option<Step> {
    if spoken.is_empty() {
        return None;
    }
    let mut kernel = KernelVerdict::default();
    kernel.findings = spoken.iter().map(Spoken::finding).collect();
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
