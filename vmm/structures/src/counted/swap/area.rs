// SPDX-License-Identifier: GPL-2.0-only
//! One swap area: how its slots are told.

use linux::counted::Slots;

/// 64 GiB of 4K pages: what is larger is not read, as the guest stands still meanwhile.
pub(super) const MOST_SLOTS: u64 = 1 << 24;

/// Name of what is read, for errors.
pub(super) const WHAT: &str = "a swap area";

/// The slots of one area that are counted, in runs, and where the first of them is.
pub(super) type Area = (Vec<Slots>, u64);

/// Adds a slot behind those that are in the runs already.
pub(super) fn add(runs: &mut Vec<Slots>, slot: u64, count: Option<u8>) {
    match runs.last_mut() {
        Some(run) if run.first + run.slots == slot && run.count == count => run.slots += 1,
        _ => runs.push(Slots {
            first: slot,
            slots: 1,
            count,
        }),
    }
}
