// SPDX-License-Identifier: GPL-2.0-only
//! Judges one process of an instant.

use evidence::{Gathered, PageReader, ProcessEvidence};
use linux::getters::Getters;
use snapshot::Memory;
use verdict::rules::without::without;
use verdict::rules::Need;
use verdict::{judge, judge_getters, Lack, NotJudged, NotKnown, ProcessInput, ProcessVerdict};

use crate::counting::structures;

/// Returns the input of the rules.
fn input<'i>(
    one: &'i ProcessEvidence<'_>,
    gathered: &'i Result<Gathered, NotKnown>,
    folios: &'i Result<PageReader<'_, Memory>, NotKnown>,
) -> ProcessInput<'i> {
    let vmas = one.vmas.as_deref().unwrap_or_default();
    ProcessInput {
        process: &one.process,
        regime: &one.regime,
        vmas,
        orders: one.orders.as_ref(),
        expectations: one.expectations,
        release: one.release.filter(|_| one.vmas.is_ok()),
        contpte: one.contpte,
        structures: structures(gathered, folios, &one.regime),
    }
}

/// Judges a process by all rules on its tables.
pub(crate) fn judge_tables(
    one: &ProcessEvidence<'_>,
    memory: &Memory,
    gathered: &Result<Gathered, NotKnown>,
    folios: &Result<PageReader<'_, Memory>, NotKnown>,
) -> ProcessVerdict {
    let mut verdict = judge(memory, &input(one, gathered, folios));
    // What is counted of all memory needs no VMAs.
    verdict.set_release(one.release);
    if let Err((why, _)) = &one.vmas {
        verdict.notes.clear();
        let of = "of processes whose VMAs are not known";
        verdict.lacks.push(Lack::without(&[Need::Vmas], of, why));
    }
    verdict
}

/// Compares saved procfs values with the page tables, after all other rules.
pub(crate) fn judge_procfs(
    memory: &Memory,
    one: &ProcessEvidence<'_>,
    (gathered, folios): (
        &Result<Gathered, NotKnown>,
        &Result<PageReader<'_, Memory>, NotKnown>,
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
        ..input(one, gathered, folios)
    };
    let sizes = gathered.as_ref().ok().and_then(Gathered::sizes);
    judge_getters(memory, &input, (&getters, sizes), verdict);
}
