//! Standard output that may fail: nobody reads it any more, or the disk is full.

use std::fmt;
use std::io::{self, Write as _};

use crate::Error;

/// What fails where standard output cannot be written.
pub(crate) const STDOUT: &str = "write to standard output";

/// `println!` that returns an error and does not panic.
macro_rules! say {
    ($($text:tt)*) => {
        crate::commands::output::line(format_args!($($text)*))?
    };
}
pub(super) use say;

pub(super) fn line(text: fmt::Arguments<'_>) -> Result<(), Error> {
    writeln!(io::stdout(), "{text}").map_err(Error::io(STDOUT))
}

pub(super) fn bytes(text: &[u8]) -> Result<(), Error> {
    io::stdout().write_all(text).map_err(Error::io(STDOUT))
}

/// Whether `| head` has read enough, which is nothing to complain of.
pub(super) fn nobody_reads(error: &Error) -> bool {
    matches!(error, Error::Io { what, error } if what == STDOUT && error.kind() == io::ErrorKind::BrokenPipe)
}
