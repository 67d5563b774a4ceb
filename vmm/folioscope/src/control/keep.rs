//! What is kept of a guest.

use std::path::{Path, PathBuf};

use crate::boot;
use crate::guest::Guest;
use crate::Error;

/// Makes a bundle of a guest that was lost by `error`, and names it in the error.
pub fn keep(guest: &mut Guest, out: &Path, error: Error) -> Error {
    let kept = boot::bundle_directory(out)
        .and_then(|directory| bundle(guest, &directory, &error.to_string()));
    boot::with_bundle(error, kept)
}

/// Writes a bundle of the guest as it is.
///
/// # Errors
/// Where a file cannot be written.
pub fn bundle(guest: &mut Guest, directory: &Path, why: &str) -> Result<PathBuf, Error> {
    let capture = guest.capture_all();
    boot::bundle(
        guest.link().machine.as_ref(),
        capture.as_ref().ok(),
        directory,
        why,
        guest.kernel(),
    )?;
    for name in ["channel.log", "console.log"] {
        let _ = std::fs::copy(guest.scratch().join(name), directory.join(name));
    }
    Ok(directory.to_path_buf())
}
