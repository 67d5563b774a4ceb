// SPDX-License-Identifier: GPL-2.0-only
//! Writes bundles and cores of a guest.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use evidence::Capture;
use machine::private;
use report::text::TextOptions;

use super::parameters::Bundle;
use crate::boot;
use crate::guest::Guest;
use crate::Error;

/// Makes a bundle of a guest that was lost by `error`, and names it in the error.
pub fn keep(guest: &mut Guest, out: &Path, error: Error) -> Error {
    let capture = guest.capture_all().ok();
    // A machine that cannot be stopped has nothing to judge.
    let judged = capture.as_ref().and_then(|_| guest.judge_rest().ok());
    let kept = boot::bundle_directory(out).and_then(|directory| {
        let kept = write(guest, capture.as_ref(), &directory, &error.to_string())?;
        if let Some(step) = judged {
            let mut text = Vec::new();
            // There are no VAs here, so there is nothing to draw.
            let options = TextOptions {
                maps: false,
                ..TextOptions::default()
            };
            let _ = report::text::write_step(&mut text, &step, &options);
            let _ = private::write(&directory.join("verdict.txt"), text);
        }
        Ok(kept)
    });
    boot::with_bundle(error, kept)
}

/// Writes a bundle of the guest's present state and, if requested, of the last look at it, so that `explain` and `diff`
/// can explain the look's findings.
///
/// # Errors
/// If a file cannot be written.
pub fn bundle(guest: &mut Guest, asked: &Bundle) -> Result<PathBuf, Error> {
    let capture = guest.capture_all().ok();
    let kept = write(guest, capture.as_ref(), &asked.path, &asked.why)?;
    let (last, before) = match asked.looks {
        true => guest.last_looks(),
        false => (None, None),
    };
    for (look, name) in [(last, "look.core"), (before, "before.core")] {
        if let Some(look) = look {
            boot::save(&look.snapshot, &asked.path.join(name))?;
        }
    }
    Ok(kept)
}

fn write(
    guest: &Guest,
    capture: Option<&Capture>,
    directory: &Path,
    why: &str,
) -> Result<PathBuf, Error> {
    boot::bundle(
        guest.link().machine.as_ref(),
        capture,
        directory,
        why,
        guest.kernel(),
    )?;
    for name in ["channel.log", "console.log"] {
        let _ = copy(&guest.scratch().join(name), &directory.join(name));
    }
    Ok(directory.to_path_buf())
}

/// Copies a guest's log, for this user alone.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    io::copy(&mut File::open(from)?, &mut private::create(to)?).map(drop)
}
