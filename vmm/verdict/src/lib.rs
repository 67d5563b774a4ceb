// SPDX-License-Identifier: GPL-2.0-only
//! Rules about Linux page tables on arm64, and what is said of them.
//!
//! The way of the data: a regime, guest memory and a process's VMAs go into [`judge()`], which
//! gives a [`ProcessVerdict`]: findings, and every naturally aligned block of the process with
//! what became of it. [`judge_sharing`] looks across processes, [`judge_kernel`] at the upper half.
//! A [`Report`] gathers verdicts by workload and step; the writers ([`text`], [`map`], [`junit`],
//! [`ktap`], JSON) only print it. [`dump`] streams single entries.
//!
//! Which rule asserts what, and what is deliberately not asserted, is written with the rule, in [`rules`].

mod all_mapped;
pub mod basis;
mod blocks;
mod cause;
mod check;
pub mod crossing;
mod entries;
mod finding;
mod findings;
mod folios;
mod group;
mod hex;
mod input;
mod judge;
mod kernel;
mod kernel_layout;
mod mapped;
mod mapping;
mod marks;
mod orders;
mod page_tables;
mod placement;
mod ranges;
mod report;
mod seen;
pub mod sequence;
mod tally;
mod violations;

pub mod rules;
pub mod stops;

pub use all_mapped::AllMapped;
pub use basis::{AddressSpace, Basis};
pub use blocks::{accessible, Absent, BlockRow, BlockState, Reason};
pub use finding::{Finding, Lack, NotJudged, Place, Severity};
pub use hex::Hex;
pub use input::ProcessInput;
pub use judge::{judge, judge_plainly};
pub use kernel::{judge_kernel, size_name, KernelVerdict};
pub use kernel_layout::{KernelLayout, LinearBit, Region};
pub use linux::expectation::{Expectation, Expected};
pub use linux::process::Process;
pub use linux::structures::{Folios, NotKnown, Structures};
pub use linux::unmapped::{MayBe, Unmapped};
pub use report::{schema, Kernel, Machine, Outcome, Report, Step, Totals, SCHEMA_VERSION};
pub use rules::contents_differ;
pub use rules::counted::judge_caches;
pub use rules::counted::judge_counted;
pub use rules::kernel_report;
pub use rules::mapping::l8_sharing::judge_sharing;
pub use rules::pages::{judge_counts, Everyone};
pub use rules::procfs::l17::judge_getters;
pub use rules::rule::RuleId;
pub use rules::{charges_left, not_invalidated, pages_left};
pub use tally::{row_at, EntryCounts, ProcessVerdict, VmaVerdict};

#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(test)]
mod tests;
