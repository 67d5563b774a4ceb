// SPDX-License-Identifier: GPL-2.0-only
//! Rules on what tables do not show: contents, operations that do not end, and the kernel's reports.

mod c3;
mod c4;
mod c5;
mod c6;
mod c7;
mod f1;
mod v1;

use super::rule::Rule;

pub(super) static RULES: &[&Rule] = &[
    &c3::RULE,
    &c4::RULE,
    &c5::RULE,
    &c6::RULE,
    &c7::RULE,
    &f1::RULE,
    &v1::RULE,
];

pub use c3::contents_differ;
pub use c4::pages_left;
pub use c7::charges_left;
pub use f1::RULE as STUCK;
pub use v1::kernel_report;
