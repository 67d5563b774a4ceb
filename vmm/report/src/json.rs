// SPDX-License-Identifier: GPL-2.0-only
//! The report as JSON; [`verdict::schema`] describes it.

use std::io::{self, Write};

use verdict::Report;

use crate::format::Format;

/// The format.
pub const FORMAT: Format = Format {
    name: "json",
    about: "Also write the report as JSON",
    has_pages: false,
    lists_failures: true,
    write: |out, report, _| write(out, report),
};

/// Writes a report, and a newline.
///
/// # Errors
/// As `out`.
pub fn write(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}
