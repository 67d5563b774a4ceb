// SPDX-License-Identifier: GPL-2.0-only
//! Standard output that may fail: its reader has closed it, or the disk is full.

use std::fmt;
use std::io::{self, IsTerminal as _, StdoutLock, Write as _};

use untrusted::{filtered, Filter};

use crate::Error;

/// The operation that fails if standard output cannot be written.
pub(crate) const STDOUT: &str = "write to standard output";

/// `println!` that returns an error and does not panic.
macro_rules! say {
    ($($text:tt)*) => {
        crate::commands::output::line(format_args!($($text)*))?
    };
}
pub(super) use say;

pub(super) fn line(text: fmt::Arguments<'_>) -> Result<(), Error> {
    let text = text.to_string();
    writeln!(io::stdout(), "{}", filtered(&text)).map_err(Error::io(STDOUT))
}

/// Returns standard output for all that is printed. It passes no control sequences except for our own colours.
pub(crate) fn stdout() -> Filter<StdoutLock<'static>> {
    Filter::new(io::stdout().lock(), has_colours())
}

/// Returns whether standard output is a terminal that wants colours.
pub(crate) fn has_colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Prints an error on standard error.
pub(crate) fn complain(what: &dyn fmt::Display) {
    let what = what.to_string();
    let _ = writeln!(io::stderr(), "folioscope: {}", filtered(&what));
}

pub(super) fn bytes(text: &[u8]) -> Result<(), Error> {
    io::stdout().write_all(text).map_err(Error::io(STDOUT))
}

/// Returns whether `| head` has read enough, which is nothing to complain of.
pub(super) fn is_closed_pipe(error: &Error) -> bool {
    matches!(error, Error::Io { what, error } if what == STDOUT && error.kind() == io::ErrorKind::BrokenPipe)
}
