// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel says of a process's memory, inside: kept with the process, and held to its tables.

use linux::getters::Getters;
use serde_json::Value;
use snapshot::{Memory, Process};
use verdict::rules::without::without;
use verdict::rules::Need;
use verdict::{judge_getters, NotJudged, NotKnown, ProcessInput, ProcessVerdict};

use crate::gathered::Gathered;
use crate::one::One;
use crate::pages::Read;

/// The notes' key, of the process.
const GETTERS: &str = "getters";

/// What was kept with a process.
pub(crate) fn kept(process: &Process) -> Option<&Value> {
    process.extra.get(GETTERS)
}

/// Keeps with a process what the kernel says of its memory, or why it was not read; `None` where nobody asked.
pub fn keep_getters(process: &mut Process, getters: Option<&Result<Getters, String>>) {
    match getters.map(serde_json::to_value) {
        Some(Ok(value)) => process.extra.insert(GETTERS.into(), value),
        _ => process.extra.remove(GETTERS),
    };
}

/// Holds what was kept with a process to its tables, after all other rules.
pub(crate) fn judge(
    memory: &Memory,
    one: &One<'_>,
    (gathered, folios): (
        &Result<Gathered, NotKnown>,
        &Result<Read<'_, Memory>, NotKnown>,
    ),
    verdict: &mut ProcessVerdict,
) {
    let Some(kept) = one.getters else {
        return;
    };
    let kept: Result<Result<Getters, String>, _> = serde_json::from_value(kept.clone());
    let getters = match kept
        .map_err(|error| error.to_string())
        .and_then(|kept| kept)
    {
        Ok(getters) => getters,
        Err(why) => {
            let said = without(&[Need::Getters]).sentence();
            let reason = format!("{said}: what the kernel says of memory was not read: {why}");
            verdict.not_judged.push(NotJudged { reason });
            return;
        }
    };
    let input = ProcessInput {
        orders: None,
        expectations: &[],
        ..one.input(gathered, folios)
    };
    let sizes = gathered.as_ref().ok().and_then(Gathered::sizes);
    judge_getters(memory, &input, (&getters, sizes), verdict);
}
