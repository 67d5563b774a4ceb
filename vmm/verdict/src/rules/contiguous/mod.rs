// SPDX-License-Identifier: GPL-2.0-only
//! Contiguous groups: which there may be, which there must be, and what their members have in common.

mod c1;
mod c2;
mod information;
mod l1;
mod l3;
mod l4;
mod l5;
mod l6;

use super::rule::Rule;

pub(super) static RULES: &[&Rule] = &[
    &l6::RULE,
    &l4::RULE,
    &l1::RULE,
    &l3::RULE,
    &l5::RULE,
    &c1::RULE,
    &c2::RULE,
    &information::ELIGIBLE,
    &information::NOT_JUDGED,
];

pub(crate) use information::eligible;
