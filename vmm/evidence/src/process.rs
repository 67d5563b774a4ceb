// SPDX-License-Identifier: GPL-2.0-only
//! One process of an instant, with everything that was read of it.

use linux::expectation::Expectation;
use linux::order::OrderRecords;
use linux::process::Process;
use linux::release::Release;
use linux::vma::Vma;
use serde_json::Value;
use stage1::Regime;

/// One process that is to be judged.
#[derive(Debug)]
pub struct ProcessEvidence<'a> {
    /// Pid and name.
    pub process: Process,
    /// The lower half with the process's root table.
    pub regime: Regime,
    /// Its VMAs; or why they are not known, and whether another instant may show them. Linux's rules on user memory begin
    /// with them.
    pub vmas: Result<Vec<Vma>, (String, bool)>,
    /// The order records, if the kernel keeps them.
    pub orders: Option<OrderRecords>,
    /// Expectations of the workload's driver.
    pub expectations: &'a [Expectation],
    /// The kernel's release.
    pub release: Option<Release>,
    /// True if the kernel folds at all; `None` if that is not known.
    pub contpte: Option<bool>,
    /// Values of its procfs files.
    pub getters: Option<&'a Value>,
    /// True if it is at a checkpoint, so that its operations are known.
    pub held: bool,
    /// True if a CPU in the kernel gives its root table, which may then be an empty one.
    pub may_be_empty: bool,
}
