// SPDX-License-Identifier: GPL-2.0-only
//! All of a guest's RAM in a file.

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use evidence::inside::Whole;
use snapshot::write_whole_core;

use crate::replace::replace_private;
use crate::Error;

/// Time between two progress messages.
const INTERVAL: Duration = Duration::from_millis(500);

/// Writes all RAM of a stopped guest to `path`, which is whole then, or unchanged.
///
/// # Errors
/// If guest memory cannot be read, or the file not be written.
pub fn save(whole: &Whole<'_>, path: &Path, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let attempt = || format!("write the snapshot {}", path.display());
    let failed = |error| Error::io(attempt())(error);
    replace_private(path, failed, |file| write(whole, file, progress))
}

/// Writes it into a file that a client has opened, and renames into its place.
///
/// # Errors
/// As [`save`].
pub fn save_in_place(whole: &Whole<'_>, path: &Path, file: &File) -> Result<(), Error> {
    let about = file.metadata();
    // A pipe would be waited for, and the guest with it.
    if !about
        .map_err(Error::io(format!("ask for {}", path.display())))?
        .is_file()
    {
        return Err(Error::Input(format!(
            "{} is no file that a core could be written to",
            path.display()
        )));
    }
    write(whole, file, &mut |_| ())
}

fn write(whole: &Whole<'_>, file: &File, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let Whole {
        cpus,
        ram,
        notes,
        vmcoreinfo,
    } = whole;
    Ok(write_whole_core(
        file,
        cpus,
        *ram,
        notes,
        *vmcoreinfo,
        progress,
    )?)
}

/// Shows the progress of a long write on a terminal, in one line.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    next: Instant,
}

impl Progress {
    /// Returns nothing is shown before a while has passed.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shown: false,
            next: Instant::now() + INTERVAL,
        }
    }

    /// Records the number of bytes of RAM that are done, holes included.
    pub fn at(&mut self, bytes: u64) {
        if Instant::now() >= self.next && std::io::stderr().is_terminal() {
            self.next += INTERVAL;
            self.shown = true;
            let _ = write!(std::io::stderr(), "\r{} MiB of guest memory", bytes >> 20);
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = writeln!(std::io::stderr());
        }
    }
}
