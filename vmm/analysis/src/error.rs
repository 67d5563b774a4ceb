// SPDX-License-Identifier: GPL-2.0-only
//! Errors of judging and of looking at a guest.

/// An error of judging or of looking at a guest. `Display` is shown to the user unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input makes no sense, or does not show what was asked for; the text says what to do.
    #[error("{0}")]
    Input(String),
    /// The vmlinux cannot be used.
    #[error(transparent)]
    Symbols(#[from] linux::symbols::SymbolsError),
    /// The guest's list of VMAs makes no sense.
    #[error("the guest gave a process's maps that cannot be read: {0}")]
    Maps(#[from] linux::vma::MapsError),
    /// The machine could not be stopped or read.
    #[error(transparent)]
    Machine(#[from] machine::MachineError),
    /// The registers describe no translation regime that can be judged.
    #[error("the page tables cannot be judged: {0}")]
    Regime(#[from] stage1::RegimeError),
}

impl From<evidence::Error> for Error {
    fn from(error: evidence::Error) -> Self {
        match error {
            evidence::Error::Input(what) => Self::Input(what),
            evidence::Error::Symbols(error) => Self::Symbols(error),
            evidence::Error::Maps(error) => Self::Maps(error),
            evidence::Error::Regime(error) => Self::Regime(error),
        }
    }
}
