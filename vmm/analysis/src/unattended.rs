// SPDX-License-Identifier: GPL-2.0-only
//! Confirms errors in a guest without a process at a checkpoint: in an external QEMU, or one that hangs.
//!
//! No agent reports its processes. What is known: a CPU at EL0 has its process's own table in TTBR0_EL1, and a CPU at EL1
//! the kernel's in TTBR1_EL1. A CPU in the kernel has in TTBR0_EL1 whatever the kernel has put there, so that is not
//! looked at, unless CONTEXTIDR_EL1 names a process of ours ([`evidence::KnownProcess`]). Where the kernel's own structures can be read, each
//! task's address space says where its first table is, whatever the CPUs do.

mod stops;

use snapshot::Snapshot;
use verdict::ProcessVerdict;

use evidence::{
    guest_notes, log,
    root_table::{table_of, IN_USER_MODE},
    Since,
};

use crate::confirm;
use crate::{Error, Look, Sight};

pub use crate::confirmation::is_unattended;
pub use stops::Stops;

/// Looks until every error is known to stay or gone. The snapshot is of the last look, and keeps what they came to.
///
/// # Errors
/// Where the guest cannot be looked at, or the process `pid` is not seen.
pub fn settle(guest: &mut dyn Stops, pid: Option<u32>) -> Result<Snapshot, Error> {
    let runs = guest.runs();
    let mut since = Since::default();
    let (last, settled) = confirm::settle(runs, std::thread::sleep, |number| {
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
        Ok::<_, Error>(Look::of_guest(capture))
    })?;
    let mut snapshot = last.capture.snapshot;
    guest_notes::keep_asked(&mut snapshot.notes, pid);
    if let Some(log) = guest.log(&snapshot) {
        log::keep(&mut snapshot.notes, log);
    }
    Sight::new(&settled, false).keep(&mut snapshot.notes);
    Ok(snapshot)
}

/// Returns the counts of a process, in place of a map.
pub(crate) fn counted(verdict: &ProcessVerdict) -> String {
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
pub(crate) fn not_seen(snapshot: &Snapshot) -> String {
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
