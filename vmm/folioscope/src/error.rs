// SPDX-License-Identifier: GPL-2.0-only
//! Errors of the command, and the exit status for them.

use std::io;

use untrusted::escaped;

/// No finding of severity error.
pub const EXIT_OK: u8 = 0;
/// Errors were found.
pub const EXIT_ERRORS: u8 = 1;
/// Exit status if the verdict is missing: bad input, a lost guest, a time-out.
pub const EXIT_NOT_JUDGED: u8 = 2;

/// An error, which ends the command with status 2. `Display` is shown to the user unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user's input makes no sense; the text has what to do.
    #[error("{0}")]
    Input(String),
    /// The kernel image cannot be used.
    #[error(transparent)]
    Image(#[from] linux::image::ImageError),
    /// The vmlinux cannot be used.
    #[error(transparent)]
    Symbols(#[from] linux::symbols::SymbolsError),
    /// The guest's list of VMAs makes no sense.
    #[error("the guest gave a process's maps that cannot be read: {0}")]
    Maps(#[from] linux::vma::MapsError),
    /// The registers describe no translation regime that can be judged.
    #[error("the page tables cannot be judged: {0}")]
    Regime(#[from] stage1::RegimeError),
    /// The machine could not be started, stopped or read.
    #[error(transparent)]
    Machine(#[from] machine::MachineError),
    /// The carrier, or a program in it.
    #[error(transparent)]
    Carrier(#[from] carrier::CarrierError),
    /// A saved snapshot cannot be used.
    #[error(transparent)]
    Core(#[from] snapshot::CoreError),
    /// The guest has ended, hangs, or does not follow the protocol. Its state is in the bundle.
    #[error("{what}")]
    GuestLost {
        /// One sentence: what was expected, what was found, what to do.
        what: String,
    },
    /// The guest answered with an error.
    #[error("the guest could not do {request}: {}", escaped(&.failure.to_string()))]
    Guest {
        /// The request.
        request: String,
        /// Its answer.
        failure: protocol::Failure,
    },
    /// A file or a socket.
    #[error("could not {what}: {error}")]
    Io {
        /// The attempt, with the path.
        what: String,
        /// The system's error.
        error: io::Error,
    },
}

impl From<analysis::Error> for Error {
    fn from(error: analysis::Error) -> Self {
        match error {
            analysis::Error::Input(what) => Self::Input(what),
            analysis::Error::Symbols(error) => Self::Symbols(error),
            analysis::Error::Machine(error) => Self::Machine(error),
            analysis::Error::Maps(error) => Self::Maps(error),
            analysis::Error::Regime(error) => Self::Regime(error),
        }
    }
}

impl From<evidence::Error> for Error {
    fn from(error: evidence::Error) -> Self {
        analysis::Error::from(error).into()
    }
}

impl Error {
    /// Converts an I/O error for `map_err`, with the attempt that failed.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }

    /// Returns whether the guest missed a deadline, and is alive.
    #[must_use]
    pub fn is_late(&self) -> bool {
        let Self::Guest { failure, .. } = self else {
            return false;
        };
        matches!(failure, protocol::Failure::Deadline { .. })
    }

    /// Returns whether the guest cannot be used any more.
    #[must_use]
    pub fn lost(&self) -> bool {
        match self {
            Self::GuestLost { .. } => true,
            Self::Machine(error) => error.is_lost(),
            _ => false,
        }
    }
}
