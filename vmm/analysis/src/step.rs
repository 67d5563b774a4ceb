// SPDX-License-Identifier: GPL-2.0-only
//! The verdict on a snapshot. Errors count if several looks confirmed them.

use snapshot::Snapshot;
use verdict::basis::Context;
use verdict::{NotJudged, ProcessVerdict, Step};

use evidence::{guest_notes, other_core, Evidence};

use crate::confirmation::{is_unattended, ONE_LOOK};
use crate::context::context;
use crate::judge::{judge, Judged};
use crate::kernel_log::Reported;
use crate::unattended::{counted, not_seen};
use crate::{switches, Error, Sight};

/// Judges a snapshot: its processes, or the one with this pid, and the kernel half.
///
/// # Errors
/// If there is no such process, or no CPU is proved to run one that is at a checkpoint.
pub fn step(snapshot: &Snapshot, pid: Option<u32>) -> Result<Step, Error> {
    let evidence = evidence(snapshot, pid)?;
    let mut judged = judge(&evidence);
    let kept = Sight::of(&snapshot.notes);
    let one_look = kept.is_none();
    let sight = kept.unwrap_or_default();
    let gone = sight.hold(&mut judged);
    for verdict in &mut judged.processes {
        verdict.notes.extend(one_look.then(|| ONE_LOOK.into()));
    }
    let not_judged = match evidence.waiting {
        Some(_) => gone,
        None => without_an_agent(&evidence, &mut judged, &sight, pid),
    };
    let reported = Reported::of(&snapshot.notes);
    let asked = pid.or(guest_notes::asked(&snapshot.notes));
    let basis = judged.basis(Context {
        console: reported.input.clone(),
        ..context(&evidence, asked)
    });
    let Judged {
        processes, kernel, ..
    } = judged;
    let mut kernel = kernel.and_then(Result::ok);
    reported.tell(&mut kernel);
    Ok(Step {
        workload: "check".into(),
        step: match (&evidence.waiting, processes.as_slice()) {
            (None, _) => "without an agent".into(),
            (Some(_), [only]) => format!("pid {}", only.process.pid),
            (Some(_), all) => format!("{} processes", all.len()),
        },
        basis: Some(basis),
        processes,
        kernel,
        not_judged,
        ..Step::default()
    })
}

/// Builds the evidence, whatever the snapshot was taken from.
fn evidence(snapshot: &Snapshot, pid: Option<u32>) -> Result<Evidence<'_>, Error> {
    if is_unattended(snapshot) {
        has_process(snapshot, pid)?;
        return Ok(Evidence::of_guest(snapshot));
    }
    let waiting = Evidence::of_waiting(snapshot, pid, &[])?;
    let mut evidence = match pid {
        Some(_) => waiting,
        None => waiting.with_tasks()?,
    };
    evidence.kernel_half = true;
    Ok(evidence)
}

/// # Errors
/// If the snapshot does not have the process.
fn has_process(snapshot: &Snapshot, pid: Option<u32>) -> Result<(), Error> {
    let Some(pid) = pid else { return Ok(()) };
    let listed = || snapshot.notes.processes.iter();
    if listed().any(|process| process.pid == pid) {
        return Ok(());
    }
    let listed: Vec<_> = listed()
        .map(|it| format!("{} ({})", it.pid, it.name))
        .collect();
    Err(Error::Input(match listed.as_slice() {
        [] => format!("the snapshot holds no process {pid}, nor any other"),
        _ => format!(
            "the snapshot holds no process {pid}; it has {}",
            listed.join(", ")
        ),
    }))
}

/// Without an agent: keeps the process that was asked for and notes what was judged. Returns the unconfirmed errors, which
/// the step lists once.
fn without_an_agent(
    evidence: &Evidence<'_>,
    judged: &mut Judged,
    sight: &Sight,
    pid: Option<u32>,
) -> Vec<NotJudged> {
    let told = sight.reasons();
    let untold = |reason: &NotJudged| !told.contains(reason);
    for verdict in &mut judged.processes {
        verdict.not_judged.retain(untold);
        verdict.notes.insert(0, counted(verdict));
    }
    if let Some(pid) = pid {
        judged.processes.retain(|it| it.process.pid == pid);
        if let [verdict] = judged.processes.as_mut_slice() {
            let remark = why_none_is_contiguous(evidence, verdict);
            verdict.notes.extend(remark);
        }
    }
    if let Some(Ok(kernel)) = &mut judged.kernel {
        kernel.not_judged.retain(untold);
        kernel.notes.push(not_seen(evidence.snapshot));
        let how = other_core::how(&evidence.snapshot.notes);
        kernel.notes.extend(how.map(str::to_owned));
    }
    told
}

/// Returns a remark if the folio size switches are why no block of the process is contiguous.
fn why_none_is_contiguous(evidence: &Evidence<'_>, verdict: &ProcessVerdict) -> Option<String> {
    let mut processes = evidence.processes.iter();
    let one = processes.find(|one| one.process.pid == verdict.process.pid)?;
    let sizes = evidence.gathered.as_ref().ok()?.structure().ok();
    let vmas = one.vmas.as_deref().unwrap_or_default();
    switches::remark(sizes, one.contpte, vmas, verdict)
}
