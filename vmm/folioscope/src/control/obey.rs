//! One request, done.

use std::time::Duration;

use join::{Extent, ReadAgain};
use protocol::Command;
use stage1::{PhysMemory, PhysicalAddress};
use verdict::Hex;

use super::answer::{
    Done, Empty, Kept, KernelHalf, LookAnswer, MachineAnswer, TourAnswer, WordsAnswer,
};
use super::keep::bundle;
use super::request::{Call, Judge, JudgeKernel, LookAt, RawPoke, Save, Snapshot, Tour, Words};
use super::translate::translate;
use crate::boot;
use crate::guest::{Guest, Poke};
use crate::look::{look, look_again, look_held, look_held_again, look_whole};
use crate::rows;
use crate::stage::{allow_allocations, fail_allocations, Stage};
use crate::tour::WORKLOADS;
use crate::Error;

/// Does what a client asks.
pub(super) fn obey(guest: &mut Guest, call: Call, deadline: Duration) -> Result<Done, Error> {
    const NOTHING: Done = Done::Nothing(Empty {});
    match call {
        Call::Command(passed) => guest.command(passed.command, deadline).map(Done::Agent),
        Call::Look(at) => look_at(guest, &at),
        Call::Judge(at) => judge(guest, &at),
        Call::Hold(of) => guest.hold(of.process).map(|()| NOTHING),
        Call::Release(of) => guest.release(of.process).map(|()| NOTHING),
        Call::FailAllocations(p) => fail_allocations(guest, p.process, p.order).map(|()| NOTHING),
        Call::AllowAllocations(of) => allow_allocations(guest, of.process).map(|()| NOTHING),
        Call::Tour(tour) => play(guest, tour).map(Done::Tour),
        Call::Translate(p) => translate(guest, &p).map(Done::Pairs),
        Call::Poke(p) => poke(guest, &p.pokes).map(|()| NOTHING),
        Call::Words(p) => words(guest, &p).map(Done::Words),
        Call::KernelHalf(p) => kernel_half(guest, &p).map(Done::KernelHalf),
        Call::Snapshot(p) => snapshot(guest, &p).map(Done::Kept),
        Call::Save(p) => save(guest, p).map(Done::Kept),
        Call::Bundle(p) => {
            let path = bundle(guest, &p.path, &p.why)?;
            Ok(Done::Kept(Kept { path }))
        }
        Call::Machine(_) => Ok(Done::Machine(machine(guest))),
        // Whoever serves the connection ends it, and adds the kernel's reports to every answer.
        Call::Quit(_) | Call::Voice(_) => Ok(NOTHING),
    }
}

fn look_at(guest: &mut Guest, at: &LookAt) -> Result<Done, Error> {
    let seen = if at.again {
        look_again(guest, at.process, &at.expectations)?
    } else {
        look(guest, at.process, &at.expectations)?
    };
    Ok(Done::Look(Box::new(LookAnswer::of(seen))))
}

fn judge(guest: &mut Guest, at: &Judge) -> Result<Done, Error> {
    let pokes: Vec<Poke> = at.pokes.iter().map(Poke::from).collect();
    let mut seen = if at.again && pokes.is_empty() {
        look_held_again(guest, at.process, &at.expectations)?
    } else {
        look_held(
            guest,
            at.process,
            &at.expectations,
            Extent::default(),
            &pokes,
        )?
    };
    if at.again && !pokes.is_empty() {
        seen.read_again = Some(ReadAgain::none(
            "words were written from outside (pokes), which no machine records",
        ));
    }
    Ok(Done::Look(Box::new(LookAnswer::of(seen))))
}

fn play(guest: &mut Guest, tour: Tour) -> Result<TourAnswer, Error> {
    let workload = WORKLOADS
        .iter()
        .find(|workload| workload.name == tour.name)
        .ok_or_else(|| Error::Input(format!("there is no workload {:?} in the tour", tour.name)))?;
    let policy = tour.policy.as_deref().unwrap_or("variable");
    let played = Stage::new(guest, policy)?
        .spoiling(tour.spoil)
        .play(workload.run);
    TourAnswer::of(played)
}

fn poke(guest: &mut Guest, pokes: &[RawPoke]) -> Result<(), Error> {
    guest.forget_copy();
    let mut paused = guest.machine().pause()?;
    for poke in pokes.iter().map(Poke::from) {
        paused.write(poke.address, &poke.word.to_le_bytes())?;
    }
    paused.resume()?;
    Ok(())
}

fn words(guest: &mut Guest, p: &Words) -> Result<WordsAnswer, Error> {
    let paused = guest.machine().pause()?;
    let words = paused
        .memory
        .words(PhysicalAddress(p.address.0), p.count)
        .map(|words| words.iter().copied().map(Hex).collect());
    paused.resume()?;
    let words = words.ok_or_else(|| {
        Error::Input(format!(
            "{} words from {:#x} on are not all guest RAM",
            p.count, p.address.0
        ))
    })?;
    Ok(WordsAnswer { words })
}

/// The kernel's tables, entry by entry, judged by as many looks as that takes.
fn kernel_half(guest: &mut Guest, p: &JudgeKernel) -> Result<KernelHalf, Error> {
    let pokes: Vec<Poke> = p.pokes.iter().map(Poke::from).collect();
    let mut seen = look_held(guest, p.process, &[], Extent { kernel: true }, &pokes)?;
    let kernel = seen.kernel.take();
    let kernel = kernel.unwrap_or_else(|| Err("the kernel half was not captured".into()));
    let verdict = kernel.map_err(Error::Input)?;
    let snapshot = &seen.capture.snapshot;
    let upper = join::kernel_half(&snapshot.cpus).ok_or_else(|| {
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

/// Takes a process, by its pid or the only one, through a checkpoint into a file: both halves and the records.
fn snapshot(guest: &mut Guest, p: &Snapshot) -> Result<Kept, Error> {
    let outcome = guest.command(Command::Processes {}, guest.deadline())?;
    let protocol::Outcome::Processes { processes } = outcome else {
        return Err(crate::guest::unexpected("processes", &outcome));
    };
    let found: Vec<_> = processes
        .iter()
        .filter(|info| p.pid.is_none_or(|pid| info.pid == pid))
        .collect();
    let [only] = found.as_slice() else {
        let listed: Vec<String> = processes
            .iter()
            .map(|info| format!("{} ({})", info.pid, info.name))
            .collect();
        return Err(Error::Input(format!(
            "expected one workload process to look at and found {}; choose one of {} with --pid",
            found.len(),
            listed.join(", ")
        )));
    };
    let seen = look_whole(guest, only.process, &[], Extent { kernel: true })?;
    boot::save(&seen.capture.snapshot, &p.path)?;
    Ok(Kept {
        path: p.path.clone(),
    })
}

fn save(guest: &mut Guest, p: Save) -> Result<Kept, Error> {
    let capture = guest.capture(p.process, Extent { kernel: p.kernel }, &[])?;
    boot::save(&capture.snapshot, &p.path)?;
    Ok(Kept { path: p.path })
}

fn machine(guest: &mut Guest) -> MachineAnswer {
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
