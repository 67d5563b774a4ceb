//! Why the command could not do what was asked, and the exit status that says so.

use std::io;

use untrusted::escaped;

/// No finding of severity error.
pub const EXIT_OK: u8 = 0;
/// Errors were found.
pub const EXIT_ERRORS: u8 = 1;
/// It could not be judged: bad input, a lost guest, a time-out.
pub const EXIT_NOT_JUDGED: u8 = 2;

/// Each ends the command with status 2; the text is the whole of what the user is told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the user gave makes no sense; the text says what to do.
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
    /// The guest is gone, hung, or does not speak the protocol. What there was of it is in the bundle.
    #[error("{what}")]
    GuestLost {
        /// One sentence: what was expected, what was found, what to do.
        what: String,
    },
    /// The guest lives, and says no.
    #[error("the guest could not do {request}: {}", escaped(&.failure.to_string()))]
    Guest {
        /// What was asked.
        request: String,
        /// Its answer.
        failure: protocol::Failure,
    },
    /// A file or a socket.
    #[error("could not {what}: {error}")]
    Io {
        /// The attempt, with the path.
        what: String,
        /// What the system said.
        error: io::Error,
    },
}

impl From<join::Error> for Error {
    fn from(error: join::Error) -> Self {
        match error {
            join::Error::Input(what) => Self::Input(what),
            join::Error::Symbols(error) => Self::Symbols(error),
            join::Error::Machine(error) => Self::Machine(error),
            join::Error::Maps(error) => Self::Maps(error),
            join::Error::Regime(error) => Self::Regime(error),
        }
    }
}

impl Error {
    /// For `map_err`: an I/O error with the attempt that failed.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }

    /// Whether the guest did not do in time what was asked, and lives.
    #[must_use]
    pub fn is_late(&self) -> bool {
        let Self::Guest { failure, .. } = self else {
            return false;
        };
        matches!(failure, protocol::Failure::Deadline { .. })
    }

    /// Whether the guest is no longer to be used.
    #[must_use]
    pub fn lost(&self) -> bool {
        match self {
            Self::GuestLost { .. } => true,
            Self::Machine(error) => error.is_lost(),
            _ => false,
        }
    }
}
