// SPDX-License-Identifier: GPL-2.0-only
//! Why something could not be judged.

/// The text is the whole of what the user is told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was given makes no sense, or does not show what was asked for; the text says what to do.
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
