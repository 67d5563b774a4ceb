// SPDX-License-Identifier: GPL-2.0-only
//! Values of a process's procfs files, read inside the guest and kept with the process.

use linux::getters::Getters;
use serde_json::Value;
use snapshot::Process;

/// The notes' key, of the process.
const GETTERS: &str = "getters";

/// Returns the values kept with a process.
pub fn kept(process: &Process) -> Option<&Value> {
    process.extra.get(GETTERS)
}

/// Keeps the values with a process, or the reason that they were not read; `None` if they were not asked for.
pub fn keep_getters(process: &mut Process, getters: Option<&Result<Getters, String>>) {
    match getters.map(serde_json::to_value) {
        Some(Ok(value)) => process.extra.insert(GETTERS.into(), value),
        _ => process.extra.remove(GETTERS),
    };
}
