// SPDX-License-Identifier: GPL-2.0-only
//! A core of all RAM: its processes and the kernel's structures are read from it, whatever program saved it.

use linux::structures::NotKnown;
use snapshot::{Process, Snapshot};
use structures::View;

use crate::cpus::{kernel_half, lower_half, NO_LOWER_HALF};
use crate::elsewhere::{at_el1, no_linux};
use crate::inside::{is_whole, Inside};
use crate::other_core;
use crate::release::{self, NotRecognised};
use crate::root_table::processes;
use crate::task_processes;
use crate::{guest_notes, log, Facts, Gathered, Subject};

/// Adds to a snapshot of all RAM what one that was taken of a live guest keeps: all processes with their VMAs, and the
/// kernel's structures, or why they are not known. Of a process at a checkpoint its agent's word stays. Nothing changes in
/// any other snapshot.
pub fn complete(snapshot: &mut Snapshot) {
    if !is_whole(&snapshot.memory) || Gathered::is_kept(&snapshot.notes) {
        return;
    }
    let found = gather(snapshot);
    if let Err(why) = &found {
        guest_notes::keep_no_spaces(&mut snapshot.notes, &why.why);
        log::keep_none(&mut snapshot.notes, &why.why);
    }
    Gathered::keep(&found, &mut snapshot.notes);
}

fn gather(snapshot: &mut Snapshot) -> Result<Gathered, NotKnown> {
    let (memory, cpus) = (&snapshot.memory, &snapshot.cpus);
    let inside = match Inside::find(memory, cpus) {
        Ok(inside) => inside,
        Err(why) => {
            without_structures(snapshot);
            return Err(why.to_string().into());
        }
    };
    let lower = lower_half(cpus).ok_or(NO_LOWER_HALF)?;
    let notes = &mut snapshot.notes;
    if notes.kernel_release.is_empty() {
        if let Ok(found) = inside.release(memory, cpus) {
            guest_notes::keep_recognised(notes, &found.by.to_string());
            notes.kernel_release = found.release;
        }
    }
    if !Facts::are_kept(notes) {
        let facts = Facts::new(Some(&inside.kernel.symbols), cpus);
        facts.with(Some(&inside)).keep(notes);
    }
    log::keep(notes, log::read(&inside, memory));
    let mut attended = std::mem::take(&mut notes.processes);
    attended.retain(|process| process.checkpoint.is_some());
    // Beside one at a checkpoint all are known by their tasks, also those that a CPU is in user mode with.
    // Of a core whose registers were worked out no CPU's TTBR0_EL1 is known.
    let mut others = match attended.is_empty() && other_core::how(notes).is_none() {
        true => processes(cpus, &[]),
        false => Vec::new(),
    };
    let spaces = task_processes::complete(&inside.kernel, inside.view(memory), cpus, &mut others);
    guest_notes::keep_spaces(notes, spaces);
    let is_other = |other: &Process| attended.iter().all(|process| process.pid != other.pid);
    others.retain(is_other);
    attended.append(&mut others);
    snapshot.notes.processes = attended;
    let subjects = snapshot.notes.processes.iter();
    let subjects = subjects.filter_map(|process| Subject::of(snapshot, process).ok());
    let tables: Vec<u64> = subjects.map(|subject| subject.regime.root.0).collect();
    Gathered::gather(&inside, memory, cpus, (&lower, &tables))
}

/// Finds the release of a kernel that has neither symbols nor types in its memory; or, where no Linux runs, the tables of
/// EL1.
fn without_structures(snapshot: &mut Snapshot) {
    let (memory, cpus) = (&snapshot.memory, &snapshot.cpus);
    let upper = kernel_half(cpus);
    let found = upper.as_ref().map(|upper| {
        let view = View { memory, upper };
        release::find(view, cpus, None)
    });
    let nowhere = matches!(found, Some(Err(NotRecognised::Nowhere { .. })));
    let tables = match nowhere || no_linux(cpus).is_some() {
        true => at_el1(memory, cpus),
        false => Vec::new(),
    };
    let notes = &mut snapshot.notes;
    if notes.processes.is_empty() {
        notes.processes = tables;
    }
    if let (true, Some(Ok(found))) = (notes.kernel_release.is_empty(), found) {
        guest_notes::keep_recognised(notes, &found.by.to_string());
        notes.kernel_release = found.release;
    }
}
