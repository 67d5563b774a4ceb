// SPDX-License-Identifier: GPL-2.0-only
//! The process of a guest on KVM, confined to the files that its command line names.
//!
//! A guest may run any kernel, and its devices run in this process. A guest that exploits a fault there should gain
//! nothing else. See `docs/security.md`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::options::GuestOptions;
use crate::paths::leads_to_stdout;
use crate::Error;

/// Directories in which this process may write, if its host's kernel restricts it.
static WRITES: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Confines this process to the needs of a guest on KVM with these options, and to the places of `outputs`, which are
/// files that it writes at its end. It must be called before there are other threads.
///
/// # Errors
/// If the host's kernel cannot do it, or a directory of `--writable` is not there.
pub fn confine(guest: &GuestOptions, outputs: &[&Path]) -> Result<(), Error> {
    // A directory that cannot be made here is reported by the code that needs it.
    let _ = std::fs::create_dir_all(&guest.out);
    let mut write = vec![guest.out.clone()];
    for directory in &guest.writable {
        if !directory.is_dir() {
            return Err(Error::Input(format!(
                "expected a directory at {}, for --writable, and found none there; make it first",
                directory.display()
            )));
        }
        write.push(directory.clone());
    }
    // Standard output uses the descriptor that is open already.
    let named = outputs.iter().filter(|path| !leads_to_stdout(path));
    write.extend(named.map(|path| place(path)));
    // A missing file is reported by the code that reads it.
    let kernel = guest.kernel_path().ok();
    let vmlinux = kernel
        .as_deref()
        .and_then(|kernel| guest.vmlinux_path(kernel).ok().flatten());
    let read = [kernel, vmlinux, guest.initrd_path().ok()];
    let read = read.into_iter().flatten().collect();
    let reach = kvm::Reach { read, write };
    if kvm::confine(&reach).map_err(machine::MachineError::from)? {
        let _ = WRITES.set(reach.write);
    }
    Ok(())
}

/// Returns the path that must be writable for an output. It is the directory, as the file is written beside its place
/// and renamed when it is whole; or the path itself, if it is a device or a pipe.
fn place(output: &Path) -> PathBuf {
    let output = std::fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
    if std::fs::metadata(&output).is_ok_and(|about| !about.is_file()) {
        return output;
    }
    match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Adds what to do if this process may not write at a place that a client has named.
#[must_use]
pub fn explained(error: Error) -> Error {
    let Some(writes) = WRITES.get() else {
        return error;
    };
    match error {
        Error::Io { what, error } if error.kind() == io::ErrorKind::PermissionDenied => {
            let places: Vec<String> = writes
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Error::Input(format!(
                "could not {what}: {error}; the process of a guest on KVM writes only below {}: name a file there, or start it with --writable DIRECTORY",
                places.join(" and ")
            ))
        }
        other => other,
    }
}
