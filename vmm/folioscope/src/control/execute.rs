// SPDX-License-Identifier: GPL-2.0-only
//! The methods that look at a process, play, and save.

use std::fs::File;
use std::time::Duration;

use analysis::{Look, Wait};
use evidence::{Extent, ReadAgain};
use machine::Paused;
use protocol::{Command, ProcessId};
use stage1::{PhysMemory, PhysicalAddress};
use verdict::Hex;

use super::parameters::{
    Judge, JudgeKernel, LookAt, RawPoke, Save, SaveFull, Snapshot, Structures, Tour, Words,
};
use super::results::{Full, Kept, KernelHalf, LookAnswer, MachineAnswer, TourAnswer, WordsAnswer};
use crate::boot;
use crate::guest::{Guest, Poke};
use crate::look::{look, look_again, look_held, look_held_again};
use crate::rows;
use crate::stage::Stage;
use crate::tour::WORKLOADS;
use crate::{whole, Error};

fn extent(getters: bool) -> Extent {
    Extent {
        getters,
        ..Extent::default()
    }
}

pub(super) fn look_at(guest: &mut Guest, at: &LookAt) -> Result<LookAnswer, Error> {
    let process = match (at.process, at.pid) {
        (Some(process), None) => process,
        (None, Some(pid)) => match workloads(guest, Some(pid))?.found[..] {
            [workload] => workload,
            _ => return look_at_any(guest, at, pid),
        },
        _ => {
            return Err(Error::Input(
                "expected either process or pid, to say what to look at".into(),
            ))
        }
    };
    let (expectations, extent) = (&at.expectations, extent(at.getters));
    let seen = match (at.again, guest.is_held(process)) {
        (true, true) => look_held_again(guest, process, expectations)?,
        (true, false) => look_again(guest, process, expectations)?,
        (false, true) => look_held(guest, process, expectations, extent, &[])?,
        (false, false) => look(guest, process, expectations, extent)?,
    };
    Ok(kept(guest, seen))
}

/// Looks at a process that is no workload.
fn look_at_any(guest: &mut Guest, at: &LookAt, pid: i32) -> Result<LookAnswer, Error> {
    if at.getters || !at.expectations.is_empty() {
        return Err(Error::Input(format!(
            "process {pid} is none of the agent's workloads, so neither expectations nor getters can be judged of it; leave them out"
        )));
    }
    let pid = pid_of(Some(pid))?;
    let capture = guest.look_at_any(pid)?;
    let mut step = analysis::step(&capture.snapshot, pid)?;
    let Some(mut verdict) = step.processes.pop() else {
        let reasons: Vec<String> = step.reasons().into_iter().map(|it| it.reason).collect();
        return Err(Error::Input(reasons.join("; ")));
    };
    verdict.not_judged.append(&mut step.not_judged);
    let again = at.again.then(|| {
        ReadAgain::none("a process that is no workload is read whole, with the kernel's structures")
    });
    let judged = (verdict, step.basis.unwrap_or_default());
    let (answer, capture) = LookAnswer::of_any(judged, capture, again.as_ref());
    let number = Some(guest.keep_look(capture));
    Ok(LookAnswer { number, ..answer })
}

/// Returns the answer, with a number by which it may be compared.
fn kept(guest: &mut Guest, seen: Look) -> LookAnswer {
    let (mut answer, capture) = LookAnswer::of(seen, &guest.driven());
    answer.number = Some(guest.keep_look(capture));
    answer
}

pub(super) fn judge(guest: &mut Guest, at: &Judge) -> Result<LookAnswer, Error> {
    let pokes: Vec<Poke> = at.pokes.iter().map(Poke::from).collect();
    let mut seen = if at.again && pokes.is_empty() {
        look_held_again(guest, at.process, &at.expectations)?
    } else {
        look_held(
            guest,
            at.process,
            &at.expectations,
            extent(at.getters),
            &pokes,
        )?
    };
    if at.again && !pokes.is_empty() {
        seen.read_again = Some(ReadAgain::none(
            "words were written from outside (pokes), which no machine records",
        ));
    }
    Ok(kept(guest, seen))
}

pub(super) fn play(guest: &mut Guest, tour: Tour) -> Result<TourAnswer, Error> {
    let workload = WORKLOADS
        .iter()
        .find(|workload| workload.name == tour.name)
        .ok_or_else(|| Error::Input(format!("there is no workload {:?} in the tour", tour.name)))?;
    let policy = tour.policy.as_deref().unwrap_or("variable");
    let played = Stage::new(guest, policy)?
        .spoiling(tour.spoil)
        .play(workload.run);
    TourAnswer::of(played, &guest.driven())
}

/// Writes words that stay: all of them, or none if one has no place.
pub(super) fn poke(guest: &mut Guest, pokes: &[RawPoke]) -> Result<(), Error> {
    guest.forget_copy();
    let mut paused = guest.machine().pause()?;
    let written = write_all(&mut paused, pokes);
    paused.resume()?;
    written
}

fn write_all(paused: &mut Paused<'_>, pokes: &[RawPoke]) -> Result<(), Error> {
    let pokes: Vec<Poke> = pokes.iter().map(Poke::from).collect();
    for poke in &pokes {
        if paused.memory.words(poke.address, 1).is_none() {
            return Err(poke.refused());
        }
    }
    for poke in &pokes {
        paused.write(poke.address, &poke.word.to_le_bytes())?;
    }
    Ok(())
}

/// The most words of one answer: some 5 MiB of text.
const MOST_WORDS: usize = 1 << 18;

pub(super) fn words(guest: &mut Guest, p: &Words) -> Result<WordsAnswer, Error> {
    if p.count > MOST_WORDS {
        return Err(Error::Input(format!(
            "expected at most {MOST_WORDS} words in one request and found {}; ask for them in several",
            p.count
        )));
    }
    let paused = guest.machine().pause()?;
    let words = paused
        .memory
        .words(PhysicalAddress(p.address.0), p.count)
        .map(|words| words.iter().copied().map(Hex).collect());
    paused.resume()?;
    let words = words.ok_or_else(|| {
        Error::Input(format!(
            "expected the address of guest RAM, a multiple of 8, with {} words of RAM from there on and found {:#x}",
            p.count, p.address.0
        ))
    })?;
    Ok(WordsAnswer { words })
}

/// Looks until a CPU shows the kernel half. The kernel's tables are judged entry by entry, by as many looks as that takes.
const KERNEL_LOOKS: Wait = Wait {
    stops: 16,
    between: Duration::from_millis(20),
};

pub(super) fn kernel_half(guest: &mut Guest, p: &JudgeKernel) -> Result<KernelHalf, Error> {
    let pokes: Vec<Poke> = p.pokes.iter().map(Poke::from).collect();
    let shown = KERNEL_LOOKS.until(
        guest,
        |_| true,
        |guest| {
            let mut seen = look_held(guest, p.process, &[], Extent::KERNEL, &pokes)?;
            match seen.judged.kernel.take() {
                // Without a verdict another CPU than that of the process which waits was on its way to EL0, or at it.
                Some(verdict) => Ok(verdict.map(|verdict| (seen, verdict))),
                None => Err(Error::Input("the kernel half was not captured".into())),
            }
        },
    )?;
    let (seen, verdict) = shown.map_err(Error::Input)?;
    let snapshot = &seen.capture.snapshot;
    let upper = evidence::kernel_half(&snapshot.cpus).ok_or_else(|| {
        Error::Input(
            "no CPU shows the kernel's own half: all are at EL0 with KPTI's trampoline".into(),
        )
    })?;
    Ok(KernelHalf {
        first: upper.first.0,
        entries: rows::rows(&snapshot.memory, &upper),
        verdict,
    })
}

/// Returns the workload processes: those with this pid, or all.
fn workloads(guest: &mut Guest, pid: Option<i32>) -> Result<Workloads, Error> {
    let outcome = guest.command(Command::Processes {}, guest.deadline())?;
    let protocol::Outcome::Processes { processes } = outcome else {
        return Err(crate::guest::unexpected("processes", &outcome));
    };
    let found = processes.iter();
    let found = found.filter(|info| pid.is_none_or(|pid| info.pid == pid));
    Ok(Workloads {
        found: found.map(|info| info.process).collect(),
        listed: processes
            .iter()
            .map(|info| format!("{} ({})", info.pid, info.name))
            .collect(),
    })
}

struct Workloads {
    found: Vec<ProcessId>,
    /// All of them, for an error.
    listed: Vec<String>,
}

impl Workloads {
    fn refused(&self) -> Error {
        Error::Input(format!(
            "expected one workload process to look at and found {}; choose one of {} with --pid",
            self.found.len(),
            self.listed.join(", ")
        ))
    }
}

/// Takes a process, by its pid or the only workload, into a file: both halves and the records. A workload is taken through a
/// checkpoint; any other is known by its task.
pub(super) fn snapshot(guest: &mut Guest, p: &Snapshot) -> Result<Kept, Error> {
    let workloads = workloads(guest, p.pid)?;
    let mut capture = match workloads.found[..] {
        [only] if guest.is_held(only) => look_held(guest, only, &[], Extent::KERNEL, &[])?.capture,
        [only] => look(guest, only, &[], Extent::KERNEL)?.capture,
        [_, _, ..] => return Err(workloads.refused()),
        [] => guest.look_at_any(pid_of(p.pid)?)?,
    };
    guest.keep_log(&mut capture)?;
    boot::save(&capture.snapshot, &p.path)?;
    guest.keep_look(capture);
    Ok(Kept {
        path: p.path.clone(),
    })
}

/// Returns a pid that the kernel may give.
fn pid_of(pid: Option<i32>) -> Result<Option<u32>, Error> {
    let pid = pid.map(u32::try_from).transpose();
    pid.map_err(|_| Error::Input("expected a pid, and found a number below 0".into()))
}

/// Saves all of the guest, with a workload at a checkpoint, by its pid or the only one, if there is one.
pub(super) fn save_full(
    guest: &mut Guest,
    p: SaveFull,
    given: Option<File>,
) -> Result<Full, Error> {
    let file = match (p.in_place, given) {
        (true, None) => {
            return Err(Error::Input(
                "expected an open file along with the request (SCM_RIGHTS), as it says in_place, and found none; leave in_place out to have the file made at its path".into(),
            ))
        }
        (true, file) => file,
        (false, _) => None,
    };
    let workloads = workloads(guest, p.pid)?;
    let process = match workloads.found[..] {
        [only] => Some(only),
        _ => None,
    };
    if let (None, Some(pid)) = (process, pid_of(p.pid)?) {
        if let Some(why) = guest.why_not(pid) {
            return Err(Error::Input(why));
        }
    }
    let waits = process.filter(|process| !guest.is_held(*process));
    if let Some(process) = waits {
        guest.hold(process)?;
    }
    let mut full = Full {
        path: p.path,
        ram_bytes: 0,
        cpus: 0,
        pid: None,
        without_vmcoreinfo: None,
    };
    let written = guest.whole(process, |whole| {
        let ranges = whole.ram.ranges();
        full.ram_bytes = ranges.iter().map(|range| range.bytes).sum();
        full.cpus = whole.cpus.len();
        full.pid = whole.notes.processes.first().map(|process| process.pid);
        match &file {
            Some(file) => whole::save_in_place(whole, &full.path, file),
            None => whole::save(whole, &full.path, &mut |_| ()),
        }
    });
    if let (Some(process), false) = (waits, written.as_ref().is_err_and(Error::lost)) {
        guest.release(process)?;
    }
    full.without_vmcoreinfo = written?;
    Ok(full)
}

/// The most pages of one request.
const MOST_PAGES: usize = 1 << 20;

pub(super) fn structures(guest: &mut Guest, p: Structures) -> Result<Kept, Error> {
    if p.pfns.len() > MOST_PAGES {
        return Err(Error::Input(format!(
            "expected at most {MOST_PAGES} page frames in one request and found {}; ask for them in several",
            p.pfns.len()
        )));
    }
    let snapshot = guest.structures(p.pid, &p.pfns, p.kernel)?;
    boot::save(&snapshot, &p.path)?;
    Ok(Kept { path: p.path })
}

pub(super) fn save(guest: &mut Guest, p: Save) -> Result<Kept, Error> {
    let capture = guest.capture(
        p.process,
        Extent {
            kernel: p.kernel,
            ..Extent::default()
        },
        &[],
    )?;
    boot::save(&capture.snapshot, &p.path)?;
    Ok(Kept { path: p.path })
}

pub(super) fn machine(guest: &mut Guest) -> MachineAnswer {
    let ready_after_s = guest.ready_after().as_secs_f64();
    let machine = guest.machine();
    MachineAnswer {
        kind: machine.kind().to_owned(),
        command_line: machine.command_line(),
        status: format!("{:?}", machine.status()),
        console: machine.console().tail(),
        ready_after_s,
    }
}
