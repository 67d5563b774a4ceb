// SPDX-License-Identifier: GPL-2.0-only
//! A format that a report is written in.

use std::io::{self, Write};

use verdict::Report;

use crate::html::Pages;

/// A format of reports.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Its name, which is the name of its option.
    pub name: &'static str,
    /// Help text of the option.
    pub about: &'static str,
    /// True if it shows the raw words of each checkpoint, so that these are gathered.
    pub has_pages: bool,
    /// True if it lists the files that could not be written, so that it is written after all others.
    pub lists_failures: bool,
    /// Writes a report.
    pub write: fn(&mut dyn Write, &Report, &Pages) -> io::Result<()>,
}
