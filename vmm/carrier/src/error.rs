// SPDX-License-Identifier: GPL-2.0-only
//! Errors of a carrier or of a program in it.

use std::path::PathBuf;
use std::time::Duration;

use untrusted::escaped;

/// An error of a carrier. `Display` is shown to the user unchanged.
#[derive(Debug, thiserror::Error)]
pub enum CarrierError {
    /// QEMU is not installed.
    #[error("{} was not found: install Debian's qemu-system-arm, version 10 or later (on Debian 12: from bookworm-backports)", .0.display())]
    NoQemu(PathBuf),
    /// The file in QEMU's place is not a program that can be started.
    #[error("expected QEMU (qemu-system-aarch64) at {} and found {found}; name another one with --qemu", .program.display())]
    UnfitQemu {
        /// The file.
        program: PathBuf,
        /// A noun phrase for the file.
        found: String,
    },
    /// A file that the carrier boots is not there.
    #[error("expected {what} at {} and found no file there; build it with: vmm/setup/build.sh --carrier 4k", .path.display())]
    Missing {
        /// The missing thing.
        what: &'static str,
        /// Its expected path.
        path: PathBuf,
    },
    /// A path that cannot be the same inside and outside.
    #[error("expected the absolute path of a directory, in UTF-8, to be writable in the carrier and found {}", .0.display())]
    Path(PathBuf),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted operation.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// It did not become ready, or ended later. The text has the reason.
    #[error("the carrier is lost: {}", escaped(.0))]
    Lost(String),
    /// It sent no message.
    #[error("expected the carrier to be ready within {} s and heard nothing from it; its console is in {}", .waited.as_secs(), .console.display())]
    Silent {
        /// The time waited.
        waited: Duration,
        /// The console's log.
        console: PathBuf,
    },
    /// The other side is of another build.
    #[error("expected version {expected} of the carrier's protocol and found {found}; build both sides from the same source: vmm/setup/build.sh --carrier 4k")]
    Version {
        /// Our version.
        expected: u32,
        /// Theirs.
        found: u32,
    },
    /// The program did not start.
    #[error("{0}")]
    NotStarted(String),
    /// More than a command line may have.
    #[error("expected at most {most} bytes of arguments and environment and found {found}; run it with fewer")]
    TooLong {
        /// The limit, in bytes.
        most: usize,
        /// The number of bytes that exist.
        found: usize,
    },
}

impl CarrierError {
    /// Converts an I/O error for `map_err`, with the attempt that failed.
    pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
