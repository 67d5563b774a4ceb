//! A guest in which no process waits for us: in somebody else's QEMU, or one that hangs.
//!
//! Nobody tells of its processes. What is known: a CPU at EL0 has its process's own table in TTBR0_EL1, and a CPU at EL1
//! the kernel's in TTBR1_EL1. A CPU in the kernel has in TTBR0_EL1 whatever the kernel has put there, so that is not
//! looked at, unless CONTEXTIDR_EL1 names a process of ours ([`crate::Known`]). Where the kernel's own structures can be read, each
//! task's address space says where its first table is, whatever the CPUs do.

mod stops;

use snapshot::{Process as Captured, Snapshot};
use stage1::{Half, Regime};
use verdict::basis::Known as KnownOf;
use verdict::{Basis, KernelVerdict, NotJudged, Process, ProcessVerdict, Step};

use crate::cpus::kernel_half;
use crate::elsewhere::no_linux;
use crate::inside::is_whole;
use crate::one::One;
use crate::proof::{table_of, IN_KERNEL, IN_USER_MODE};
use crate::settle::{self, Judged};
use crate::sight::ONE_LOOK;
use crate::switches;
use crate::task_processes::why_not;
use crate::together::{judge_together, Together};
use crate::{
    basis, judge_kernel_half, log, other_core, Capture, Error, Gathered, Sight, Since, Subject,
};

pub use stops::Stops;

/// What needs more than tables and VMAs.
const NEED_MORE: &str = "L11, C1, C2 and what L6 says of written pages were not judged: they need what the process did, and no agent of the guest tells";

/// What was seen at one instant, judged.
#[derive(Debug)]
struct Look {
    capture: Capture,
    judged: Instant,
}

impl Judged for Look {
    fn capture(&self) -> &Capture {
        &self.capture
    }

    fn later(&self) -> bool {
        self.judged.later
    }

    fn uncounted(&self) -> bool {
        self.judged.uncounted
    }

    fn verdicts(&self) -> Vec<settle::Verdict<'_>> {
        let kernel = self.judged.kernel.iter();
        let kernel = kernel.map(|(verdict, root)| settle::Verdict::Kernel(verdict, *root));
        let processes = self.judged.processes.iter().map(settle::Verdict::Process);
        kernel.chain(processes).collect()
    }
}

/// Looks until every error is known to stay or gone. The snapshot is of the last look, and keeps what they came to.
///
/// # Errors
/// Where the guest cannot be looked at, or the process `pid` is not seen.
pub fn settle(guest: &mut dyn Stops, pid: Option<u32>) -> Result<Snapshot, Error> {
    let runs = guest.runs();
    let mut since = Since::default();
    let (last, settled) = settle::settle(runs, std::thread::sleep, |number| {
        let rested = since.seen(std::thread::sleep, || guest.cpus())?;
        let mut capture = match (pid, number) {
            (Some(_), 1) => guest.instant_of(pid)?,
            // The last look has to show a process that was named.
            (None, 1) | (Some(_), _) => guest.instant_at_work(pid)?,
            _ => guest.instant()?,
        };
        let processes = &mut capture.snapshot.notes.processes;
        processes.retain(|process| pid.is_none_or(|pid| process.pid == pid));
        capture.work.rested = rested;
        since = Since::new(&capture.snapshot.cpus, &capture.work);
        Ok::<_, Error>(Look {
            judged: instant(&capture.snapshot),
            capture,
        })
    })?;
    let mut snapshot = last.capture.snapshot;
    basis::keep_asked(&mut snapshot.notes, pid);
    if let Some(log) = guest.log(&snapshot) {
        log::keep(&mut snapshot.notes, log);
    }
    Sight::new(&settled, false).keep(&mut snapshot.notes);
    Ok(snapshot)
}

/// Whether a snapshot was taken of a guest in which no process waits for us.
#[must_use]
pub fn is_unattended(snapshot: &Snapshot) -> bool {
    let mut processes = snapshot.notes.processes.iter();
    match Sight::of(&snapshot.notes) {
        Some(sight) => !sight.checkpoint,
        None => is_whole(&snapshot.memory) && processes.all(|it| it.checkpoint.is_none()),
    }
}

/// What was judged of one instant, with all that looks wrong.
#[derive(Debug)]
struct Instant {
    processes: Vec<ProcessVerdict>,
    /// The kernel half, and its first table; or why it was not judged.
    kernel: Result<(KernelVerdict, u64), String>,
    /// Processes that could not be judged, and why, a sentence each.
    lost: Vec<String>,
    later: bool,
    uncounted: bool,
}

/// The kernel half and each process, as far as they can be judged.
fn instant(snapshot: &Snapshot) -> Instant {
    let root = kernel_half(&snapshot.cpus).map_or(0, |upper| upper.root.0);
    let kernel = match judge_kernel_half(snapshot) {
        Ok(verdict) if shows_something(&verdict) => Ok((verdict, root)),
        Ok(_) => Err("the kernel half was not judged: TTBR1_EL1 led to an empty table, as it does for a moment while the kernel sets up its own; look again".into()),
        Err(error) => Err(why_no_kernel_half(snapshot).unwrap_or(error.to_string())),
    };
    let gathered = Gathered::of(snapshot);
    let (mut lost, mut subjects) = (Vec::new(), Vec::new());
    for process in &snapshot.notes.processes {
        match Subject::of(snapshot, process) {
            Ok(subject) => subjects.push(subject),
            Err(error) => lost.push(not_judged(process, &error.to_string())),
        }
    }
    let all: Vec<One<'_>> = subjects.iter().map(one).collect();
    let Together {
        mut verdicts,
        later,
        uncounted,
    } = judge_together(snapshot, &gathered, true, &all);
    // The kernel has an empty table in TTBR0_EL1 while it needs none.
    let mut subjects = subjects.iter();
    verdicts.retain(|verdict| {
        let process = subjects.next().map(|subject| subject.process);
        let Some(process) = process.filter(|it| it.extra.contains_key(IN_KERNEL)) else {
            return true;
        };
        let shows = shows_any(verdict);
        if !shows {
            let why = "its CPU was in the kernel and had an empty table in TTBR0_EL1";
            lost.push(not_judged(process, why));
        }
        shows
    });
    for verdict in &mut verdicts {
        if !verdict.vmas.is_empty() {
            verdict.notes.push(NEED_MORE.into());
        }
    }
    Instant {
        processes: verdicts,
        kernel,
        lost,
        later,
        uncounted,
    }
}

fn not_judged(process: &Captured, why: &str) -> String {
    format!("process {} {}: {why}", process.pid, process.name)
}

/// While the kernel changes its own first table it has an empty one in TTBR1_EL1.
fn shows_something(verdict: &KernelVerdict) -> bool {
    !verdict.mapped.is_empty() || !verdict.findings.is_empty()
}

/// Whether any entry is there.
fn shows_any(verdict: &ProcessVerdict) -> bool {
    let entries = &verdict.entries;
    entries.pages > 0
        || entries.blocks.values().any(|count| *count > 0)
        || !verdict.findings.is_empty()
}

/// A process that nobody holds, to be judged.
pub(crate) fn one<'s>(subject: &'s Subject<'_>) -> One<'s> {
    let process = subject.process;
    let vmas = match subject.vmas.as_slice() {
        [] => Err(why_not(process)),
        vmas => Ok(vmas.to_vec()),
    };
    One {
        process: Process {
            pid: process.pid,
            name: process.name.clone(),
        },
        regime: subject.regime,
        vmas,
        orders: None,
        expectations: &[],
        release: subject.release,
        contpte: subject.contpte,
        getters: None,
    }
}

/// The verdict on a snapshot, as far as several looks bear it out.
///
/// # Errors
/// Where it holds no process `pid`.
pub fn step(snapshot: &Snapshot, pid: Option<u32>) -> Result<Step, Error> {
    let kept = Sight::of(&snapshot.notes);
    let one_look = kept.is_none();
    let sight = kept.unwrap_or_default();
    if let Some(pid) = pid {
        let mut processes = snapshot.notes.processes.iter();
        if !processes.any(|process| process.pid == pid) {
            let listed = snapshot.notes.processes.iter();
            let listed: Vec<_> = listed
                .map(|it| format!("{} ({})", it.pid, it.name))
                .collect();
            return Err(Error::Input(match listed.as_slice() {
                [] => format!("the snapshot holds no process {pid}, nor any other"),
                _ => format!(
                    "the snapshot holds no process {pid}; it has {}",
                    listed.join(", ")
                ),
            }));
        }
    }
    // It is told once, of the step.
    let told = sight.reasons();
    let untold = |reason: &NotJudged| !told.contains(reason);
    let mut judged = instant(snapshot);
    let asked = |process: u32| pid.is_none_or(|pid| process == pid);
    for verdict in &mut judged.processes {
        sight.hold_process(verdict);
        verdict.not_judged.retain(untold);
        verdict.notes.insert(0, counted(verdict));
        verdict.notes.extend(one_look.then(|| ONE_LOOK.into()));
    }
    judged.processes.retain(|it| asked(it.process.pid));
    if let (Some(pid), [verdict]) = (pid, judged.processes.as_mut_slice()) {
        let remark = why_none_is_contiguous(snapshot, pid, verdict);
        verdict.notes.extend(remark);
    }
    if let Ok((kernel, root)) = &mut judged.kernel {
        sight.hold_kernel(kernel, *root);
        kernel.not_judged.retain(untold);
        kernel.notes.push(not_seen(snapshot));
        let how = other_core::how(&snapshot.notes);
        kernel.notes.extend(how.map(str::to_owned));
    }
    let reported = log::Reported::of(&snapshot.notes);
    let known = KnownOf {
        console: reported.input.clone(),
        no_kernel_half: judged.kernel.as_ref().err().cloned(),
        lacks: judged.lost,
        ..basis::known(snapshot, pid.or(basis::asked(&snapshot.notes)))
    };
    let mut kernel = judged.kernel.ok().map(|(verdict, _)| verdict);
    let basis = Basis::new(known, &judged.processes, kernel.as_ref());
    reported.tell(&mut kernel);
    Ok(Step {
        workload: "check".into(),
        step: "without an agent".into(),
        basis: Some(basis),
        processes: judged.processes,
        kernel,
        not_judged: told,
        ..Step::default()
    })
}

/// What the CPUs' registers say against it.
fn why_no_kernel_half(snapshot: &Snapshot) -> Option<String> {
    if let Some(why) = no_linux(&snapshot.cpus) {
        return Some(format!("the kernel half was not judged: {why}"));
    }
    let mut cpus = snapshot.cpus.iter();
    cpus.find_map(|cpu| {
        let why = Regime::new(&cpu.system, Half::Upper).err()?;
        let index = cpu.index;
        Some(format!(
            "the kernel half was not judged: by CPU {index} {why}"
        ))
    })
}

/// The remark on the switches of folio sizes, where they are why no block of a process is contiguous.
fn why_none_is_contiguous(
    snapshot: &Snapshot,
    pid: u32,
    verdict: &ProcessVerdict,
) -> Option<String> {
    let mut processes = snapshot.notes.processes.iter();
    let process = processes.find(|process| process.pid == pid)?;
    let subject = Subject::of(snapshot, process).ok()?;
    let sizes = Gathered::of(snapshot).ok()?.anon_sizes;
    switches::remark(sizes, subject.contpte, &subject.vmas, verdict)
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

/// The CPUs whose user half says nothing.
fn not_seen(snapshot: &Snapshot) -> String {
    let processes = snapshot.notes.processes.iter();
    let seen = processes
        .clone()
        .filter(|process| process.extra.contains_key(IN_USER_MODE))
        .count();
    let user = snapshot.cpus.iter().filter(|cpu| cpu.el() == 0).count();
    let kernel = snapshot.cpus.len() - user;
    let by_task = processes.filter(|it| table_of(it).is_some()).count();
    let others = match by_task {
        0 => String::new(),
        count => format!(", and {count} by their tasks"),
    };
    format!(
        "user halves: {seen} judged, of {user} CPU(s) in user mode{others}; {kernel} CPU(s) were in the kernel, where TTBR0_EL1 may be anybody's"
    )
}
