// SPDX-License-Identifier: GPL-2.0-only
//! Lets allocations fail at a workload's request.

use protocol::ProcessId;

use super::{Stage, StageResult};
use crate::guest::Guest;

pub(super) const FAIL: &str = "/sys/kernel/debug/fail_page_alloc";

impl Stage<'_> {
    /// Lets every page allocation of the process of at least `order` fail.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn fail_allocations(&mut self, process: ProcessId, order: u32) -> StageResult {
        self.injected = true;
        fail_allocations(self.guest, process, order)
    }

    /// Lets its allocations succeed again.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn allow_allocations(&mut self, process: ProcessId) -> StageResult {
        allow_allocations(self.guest, process)
    }
}

/// Lets every page allocation of `process` of at least `order` fail (`mm/fail_page_alloc.c`).
///
/// # Errors
/// As every request to the guest.
pub fn fail_allocations(guest: &mut Guest, process: ProcessId, order: u32) -> StageResult {
    let order = order.to_string();
    // Anonymous memory is allocated with __GFP_HIGHMEM and, if it may wait, __GFP_DIRECT_RECLAIM: by default both are
    // spared.
    let knobs = [
        ("task-filter", "Y"),
        ("ignore-gfp-wait", "N"),
        ("ignore-gfp-highmem", "N"),
        ("min-order", &order),
        ("interval", "1"),
        ("space", "0"),
        ("verbose", "0"),
        ("times", "-1"),
        ("probability", "100"),
    ];
    for (knob, text) in knobs {
        guest.write_file(&format!("{FAIL}/{knob}"), text, None)?;
    }
    guest.write_file("/proc/{pid}/make-it-fail", "1", Some(process))
}

/// Lets its allocations succeed again.
///
/// # Errors
/// As every request to the guest.
pub fn allow_allocations(guest: &mut Guest, process: ProcessId) -> StageResult {
    guest.write_file(&format!("{FAIL}/probability"), "0", None)?;
    guest.write_file("/proc/{pid}/make-it-fail", "0", Some(process))
}
