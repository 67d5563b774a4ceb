//! What the kernel says of a process's memory, inside: kept with the process, and held to its tables.

use linux::getters::Getters;
use snapshot::{Memory, Process};
use verdict::{judge_getters, NotJudged, NotKnown, ProcessInput, ProcessVerdict};

use crate::gathered::{structures, Gathered};
use crate::pages::Read;
use crate::Subject;

/// The notes' key, of the process.
const GETTERS: &str = "getters";

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
    subject: &Subject<'_>,
    gathered: &Result<Gathered, NotKnown>,
    folios: &Result<Read<'_, Memory>, NotKnown>,
    verdict: &mut ProcessVerdict,
) {
    let Some(kept) = subject.process.extra.get(GETTERS) else {
        return;
    };
    let kept: Result<Result<Getters, String>, _> = serde_json::from_value(kept.clone());
    let getters = match kept
        .map_err(|error| error.to_string())
        .and_then(|kept| kept)
    {
        Ok(getters) => getters,
        Err(why) => {
            let reason =
                format!("L17 was not judged: what the kernel says of memory was not read: {why}");
            verdict.not_judged.push(NotJudged { reason });
            return;
        }
    };
    let process = verdict.process.clone();
    let input = ProcessInput {
        process: &process,
        regime: &subject.regime,
        vmas: &subject.vmas,
        orders: None,
        expectations: &[],
        release: subject.release,
        contpte: subject.contpte,
        structures: structures(gathered, folios, &subject.regime),
    };
    let sizes = gathered.as_ref().ok().and_then(Gathered::sizes);
    judge_getters(memory, &input, (&getters, sizes), verdict);
}
