// SPDX-License-Identifier: GPL-2.0-only
//! The page as a format of reports.

use super::write;
use crate::format::Format;

/// The format.
pub const FORMAT: Format = Format {
    name: "html",
    about: "Also write it as one HTML page: the verdict, and a picture of each checkpoint to flip through",
    has_pages: true,
    lists_failures: false,
    write,
};
