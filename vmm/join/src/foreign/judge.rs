//! The verdict on a guest without an agent: the rules that tables alone can break.

use snapshot::{Process as Captured, Snapshot};
use stage1::{Half, Regime};
use verdict::{
    judge, Finding, KernelVerdict, NotJudged, Process, ProcessInput, ProcessVerdict, RuleId,
    Severity, Step,
};

use super::known;
use super::settle::Sight;
use super::IN_USER_MODE;
use crate::{judge_kernel_half, kernel_half, Error, Subject};

/// What needs more than the tables.
const NEED_VMAS: &str = "L1, L3, L4, L5, L6, L8, L11, C1 and C2 were not judged: they need the process's VMAs or what it did, and there is no agent in this guest to give them";
/// What needs more than tables and VMAs.
const NEED_MORE: &str = "L11, C1, C2 and what L6 says of written pages were not judged: they need what the process did, and there is no agent in this guest to tell";

/// One of the judged.
#[derive(Debug)]
pub enum Verdict {
    /// The kernel half, and its first table.
    Kernel(KernelVerdict, u64),
    /// A process.
    Process(ProcessVerdict),
}

impl Verdict {
    /// Whose tables.
    pub fn owner(&self) -> (Option<u32>, u64) {
        match self {
            Self::Kernel(_, root) => (None, *root),
            Self::Process(verdict) => (Some(verdict.process.pid), verdict.root.0),
        }
    }

    /// What was found.
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Kernel(verdict, _) => &verdict.findings,
            Self::Process(verdict) => &verdict.findings,
        }
    }
}

/// Whether a snapshot was taken of a guest without an agent.
#[must_use]
pub fn is_foreign(snapshot: &Snapshot) -> bool {
    Sight::of(&snapshot.notes).is_some()
}

/// The kernel half and each process, as far as they can be judged, with all that looks wrong.
pub fn verdicts(snapshot: &Snapshot) -> Vec<Verdict> {
    let kernel = judge_kernel_half(snapshot).ok().filter(shows_something);
    let root = kernel_half(&snapshot.cpus).map_or(0, |upper| upper.root.0);
    let processes = snapshot.notes.processes.iter();
    let processes = processes.filter_map(|process| process_of(snapshot, process).ok());
    let kernel = kernel.map(|verdict| Verdict::Kernel(verdict, root));
    kernel
        .into_iter()
        .chain(processes.map(Verdict::Process))
        .collect()
}

/// While the kernel changes its own first table it has an empty one in TTBR1_EL1.
fn shows_something(verdict: &KernelVerdict) -> bool {
    !verdict.mapped.is_empty() || !verdict.findings.is_empty()
}

fn process_of(snapshot: &Snapshot, process: &Captured) -> Result<ProcessVerdict, Error> {
    let subject = Subject::of(snapshot, process)?;
    let input = ProcessInput {
        process: &Process {
            pid: process.pid,
            name: process.name.clone(),
        },
        regime: &subject.regime,
        vmas: &subject.vmas,
        orders: None,
        expectations: &[],
        // Linux's rules on user memory begin with the VMAs.
        release: subject.release.filter(|_| !subject.vmas.is_empty()),
        contpte: subject.contpte,
    };
    let mut verdict = judge(&snapshot.memory, &input);
    if subject.vmas.is_empty() {
        let why = known::why_not(process);
        let why = why.map_or(String::new(), |why| format!(" ({why})"));
        verdict.notes = vec![format!("{NEED_VMAS}{why}")];
    } else {
        verdict.notes.push(NEED_MORE.into());
    }
    Ok(verdict)
}

/// The verdict on a snapshot, as far as several looks bear it out.
///
/// # Errors
/// Where it holds no process `pid`.
pub fn step(snapshot: &Snapshot, pid: Option<u32>) -> Result<Step, Error> {
    let sight = Sight::of(&snapshot.notes).unwrap_or_default();
    if let Some(pid) = pid {
        let mut processes = snapshot.notes.processes.iter();
        if !processes.any(|process| process.pid == pid) {
            return Err(Error::Input(format!(
                "the snapshot holds no process {pid}: it was not in user mode then"
            )));
        }
    }
    let mut step = Step {
        workload: "check".into(),
        step: "without an agent".into(),
        ..Step::default()
    };
    let reasons = sight.unconfirmed.iter().cloned();
    step.not_judged = reasons.map(|reason| NotJudged { reason }).collect();
    for verdict in verdicts(snapshot) {
        let owner = verdict.owner().1;
        let sure = |finding: &Finding| {
            finding.severity != Severity::Error
                || sight
                    .confirmed
                    .contains(&(owner, finding.rule, finding.va.0))
        };
        match verdict {
            Verdict::Kernel(mut verdict, _) => {
                verdict.findings.retain(sure);
                more(&mut verdict.dropped, &mut verdict.notes);
                verdict.notes.push(not_seen(snapshot));
                step.kernel = Some(verdict);
            }
            Verdict::Process(mut verdict) if pid.is_none_or(|pid| verdict.process.pid == pid) => {
                verdict.findings.retain(sure);
                more(&mut verdict.dropped, &mut verdict.notes);
                verdict.notes.insert(0, counted(&verdict));
                step.processes.push(verdict);
            }
            Verdict::Process(_) => (),
        }
    }
    if step.kernel.is_none() {
        let reason = match judge_kernel_half(snapshot) {
            Err(error) => why_no_kernel_half(snapshot).unwrap_or(error.to_string()),
            Ok(_) => "the kernel half was not judged: TTBR1_EL1 led to an empty table, as it does for a moment while the kernel sets up its own; look again".into(),
        };
        step.not_judged.push(NotJudged { reason });
    }
    for process in &snapshot.notes.processes {
        if let Err(error) = process_of(snapshot, process) {
            let reason = format!("process {} {}: {error}", process.pid, process.name);
            step.not_judged.push(NotJudged { reason });
        }
    }
    Ok(step)
}

/// What the CPUs' registers say against it.
fn why_no_kernel_half(snapshot: &Snapshot) -> Option<String> {
    let mut cpus = snapshot.cpus.iter();
    cpus.find_map(|cpu| {
        let why = Regime::new(&cpu.system, Half::Upper).err()?;
        let index = cpu.index;
        Some(format!(
            "the kernel half was not judged: by CPU {index} {why}"
        ))
    })
}

/// What was looked at, in place of a map.
fn counted(verdict: &ProcessVerdict) -> String {
    let entries = &verdict.entries;
    let sum = |blocks: &std::collections::BTreeMap<i8, u64>| blocks.values().sum::<u64>();
    format!(
        "process {} {}: {} pages of {} KiB, {} of them contiguous, and {} blocks, {} of them contiguous",
        verdict.process.pid,
        verdict.process.name,
        entries.pages,
        verdict.page_size / 1024,
        entries.contiguous_pages,
        sum(&entries.blocks),
        sum(&entries.contiguous_blocks)
    )
}

/// Findings beyond a rule's first hundred were not compared from look to look, so they do not count.
fn more(dropped: &mut std::collections::BTreeMap<RuleId, u64>, notes: &mut Vec<String>) {
    for (rule, count) in std::mem::take(dropped) {
        notes.push(format!(
            "{count} more places look wrong by {rule} and were not looked at again"
        ));
    }
}

/// The CPUs whose user half says nothing.
fn not_seen(snapshot: &Snapshot) -> String {
    let processes = snapshot.notes.processes.iter();
    let seen = processes
        .filter(|process| process.extra.contains_key(IN_USER_MODE))
        .count();
    let user = snapshot.cpus.iter().filter(|cpu| cpu.el() == 0).count();
    let kernel = snapshot.cpus.len() - user;
    format!(
        "user halves: {seen} judged, of {user} CPU(s) in user mode; {kernel} CPU(s) were in the kernel, where TTBR0_EL1 may be anybody's"
    )
}
