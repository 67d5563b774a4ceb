// SPDX-License-Identifier: GPL-2.0-only
//! Converts a judge's findings into findings of a report: the one place that does so.

use recorder::{casemate, Judge, Stored};
use verdict::sequence::{Did, Folio, Instruction, Moment, Sequence};
use verdict::{Basis, Finding, Hex, KernelVerdict, NotJudged, RuleId, Step};

use super::end::End;
use super::first::{first_of_each, not_judged, overtaken};
use super::names::Names;

/// Returns the first finding of each cause, with the number of all of them.
pub(super) fn findings(judge: &Judge, names: &Names<'_>) -> Vec<Finding> {
    first_of_each(judge)
        .map(|found| finding(judge, found, names))
        .collect()
}

/// Returns the findings, and how many could not be kept.
pub(super) fn verdict(judge: &Judge, names: &Names<'_>) -> KernelVerdict {
    let mut kernel = KernelVerdict::default();
    kernel.findings = findings(judge, names);
    let listed: u64 = kernel.findings.iter().map(|finding| finding.places).sum();
    let beyond = judge.findings().total.saturating_sub(listed);
    if beyond > 0 {
        kernel.not_judged.push(NotJudged {
            reason: format!("{beyond} findings of causes that were too many to be kept"),
        });
    }
    kernel
}

/// Returns a recording as a step of a run.
#[must_use]
pub fn step(judge: &Judge, end: &End, names: &Names<'_>) -> Step {
    let mut kernel = verdict(judge, names);
    let reasons = not_judged(judge, end);
    let reasons = reasons.into_iter().map(|reason| NotJudged { reason });
    kernel.not_judged.splice(0..0, reasons);
    kernel.notes.extend(overtaken(judge));
    Step {
        workload: "record".into(),
        step: "sequences".into(),
        kernel: Some(kernel),
        basis: Some(Basis::of_recording()),
        ..Step::default()
    }
}

/// Returns a folio, as a report has it.
#[must_use]
pub fn folio_of(folio: recorder::Folio) -> Folio {
    Folio {
        first: Hex(folio.first),
        order: folio.order,
        kind: folio.kind.name().into(),
    }
}

fn finding(judge: &Judge, found: &recorder::Finding, names: &Names<'_>) -> Finding {
    let instruction = |by: Stored| Instruction {
        cpu: by.cpu,
        place: names.of_pc(by.pc),
        event: by.event,
        callers: names.callers(judge, &by),
    };
    let made = instruction(found.made);
    let (block, before, words, first) = match &found.block {
        Some(block) => (
            Some(Hex(block.va)),
            block.before.iter().copied().map(Hex).collect(),
            block.after.iter().copied().map(Hex).collect(),
            block.va,
        ),
        None => (None, Vec::new(), vec![Hex(found.new)], found.va),
    };
    let scene = &found.scene;
    let start = scene.table + scene.index as u64 * 8;
    let va = |entry: u64| {
        let offset = entry.checked_sub(start)?;
        (offset < words.len() as u64 * 8).then(|| Hex(first.wrapping_add(offset / 8 * scene.bytes)))
    };
    let life = scene.life.iter().map(|moment| {
        let by = &moment.by;
        let did = match moment.did {
            recorder::Did::Store { entry, old, new } => Did::Store {
                va: va(entry),
                old: Hex(old),
                new: Hex(new),
            },
            recorder::Did::Tlbi {
                opcode, operand, ..
            } => Did::Tlbi {
                operation: casemate::tlbi(opcode),
                operand: Hex(operand),
            },
            recorder::Did::Dsb { domain, types } => Did::Dsb {
                option: casemate::option(domain, types).into(),
            },
        };
        Moment {
            event: by.event,
            cpu: by.cpu,
            place: names.of_pc(by.pc),
            within: names.within(judge, by),
            did,
        }
    });
    let sequence = Sequence {
        reference: found.rule.reference().into(),
        old: Hex(found.old),
        new: Hex(found.new),
        old_frame: scene.frames[0].map(Hex),
        new_frame: scene.frames[1].map(Hex),
        old_folio: scene.folios[0].map(folio_of),
        new_folio: scene.folios[1].map(folio_of),
        block,
        before,
        broken: found.broken.map(instruction),
        tlbi: found.tlbi.map(instruction),
        life: life.collect(),
        made: made.clone(),
    };
    Finding {
        sequence: Some(Box::new(sequence)),
        process: names
            .process(&found.made, found.root)
            .filter(|_| found.va >> 63 == 0),
        va: Hex(found.va),
        end: Hex(found.va.wrapping_add(scene.bytes)),
        level: found.level.number(),
        table: Hex(scene.table),
        index: scene.index,
        words,
        places: judge.findings().count(found),
        ..Finding::new(
            RuleId::from(found.rule),
            format!("{}; by {}", found.sentence, made.place),
        )
    }
}
