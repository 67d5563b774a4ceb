// SPDX-License-Identifier: GPL-2.0-only
//! All formats that a report is written in. The command makes its options from them.

use crate::format::Format;

/// All formats, in the order of their options.
pub static FORMATS: &[Format] = &[
    crate::json::FORMAT,
    crate::junit::FORMAT,
    crate::ktap::FORMAT,
    crate::html::FORMAT,
];
