// SPDX-License-Identifier: GPL-2.0-only
//! Rules on what tables do not show: contents, operations that do not end, and the kernel's reports.

mod c3;
mod c4;
mod c5;
mod c6;
mod c7;
mod c8;
mod f1;
mod v1;

use std::ops::Range;

use super::rule::Rule;
use crate::{Finding, Hex, Process};

pub(super) static RULES: &[&Rule] = &[
    &c3::RULE,
    &c4::RULE,
    &c5::RULE,
    &c6::RULE,
    &c7::RULE,
    &c8::RULE,
    &f1::RULE,
    &v1::RULE,
];

pub use c3::contents_differ;
pub use c4::pages_left;
pub use c7::charges_left;
pub use c8::not_invalidated;
pub use f1::RULE as STUCK;
pub use v1::kernel_report;

/// An error in a range of a process's memory that no table shows.
fn of_range(rule: &'static Rule, process: &Process, range: Range<u64>, message: String) -> Finding {
    Finding {
        process: Some(process.clone()),
        va: Hex(range.start),
        end: Hex(range.end),
        level: 3,
        ..Finding::new(rule, message)
    }
}
