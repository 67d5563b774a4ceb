//! The process of a guest on KVM, confined to the files that its command line names.
//!
//! A guest is anybody's kernel, and its devices run in this process: a guest that found a fault there should find nothing else.
//! See `docs/security.md`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::options::GuestOptions;
use crate::paths::leads_to_stdout;
use crate::Error;

/// Where this process may write, if its host's kernel holds it to that.
static WRITES: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Confines this process to what a guest on KVM with these options takes, and to the places of `outputs`, which are files that
/// it writes at its end. To be called before there are other threads.
///
/// # Errors
/// Where the host's kernel cannot do it, or a directory of `--writable` is not there.
pub fn confine(guest: &GuestOptions, outputs: &[&Path]) -> Result<(), Error> {
    // What cannot be made here is reported by who needs it.
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
    // What goes to standard output goes by the descriptor that is there.
    let named = outputs.iter().filter(|path| !leads_to_stdout(path));
    write.extend(named.map(|path| place(path)));
    // A file that is not there is reported by who reads it.
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

/// What has to be written for an output: its directory, as it is written beside its place and put there when it is whole; or
/// itself, where it is a device or a pipe.
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

/// The same error, and what to do where this process may not write at a place that a client has named.
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
