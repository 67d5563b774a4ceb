// SPDX-License-Identifier: GPL-2.0-only
//! The rules on made-up tables: a good one passes, one that is broken in just one way is caught by
//! just that rule, and nothing on the "never assert" list is an error.

mod basis;
mod caches;
mod console;
mod counted;
mod findings;
mod folios;
mod getters;
mod hugetlb;
mod kernel_half;
mod legal;
mod page_tables;
mod reports;
mod runs;
mod states;

pub(crate) use crate::testing::guest;
