// SPDX-License-Identifier: GPL-2.0-only
//! One process of a snapshot, with all that the judge needs of it.

use linux::order::OrderRecords;
use linux::release::Release;
use snapshot::{Process, Snapshot};
use stage1::{Half, Regime, VirtualAddress};

use crate::cpus::{kernel_half, lower_with};
use crate::elsewhere::no_linux;
use crate::root_table::{root_of, table_of};
use crate::{read_orders, Error, Facts};

/// Everything that the judge needs of one process in a snapshot.
#[derive(Debug)]
pub struct Subject<'s> {
    /// The snapshot's own entry for it.
    pub process: &'s Process,
    /// The lower half, from the CPU that the checkpoint proves to run it.
    pub regime: Regime,
    /// Its VMAs.
    pub vmas: Vec<linux::vma::Vma>,
    /// The order records, or why there are none.
    pub orders: Result<OrderRecords, String>,
    /// True if the kernel is known to keep order records.
    pub has_records: bool,
    /// True if the kernel folds at all; `None` if that is not known.
    pub contpte: Option<bool>,
    /// The kernel's release.
    pub release: Option<Release>,
}

impl<'s> Subject<'s> {
    /// Finds a process in a snapshot: by pid, or the only one, or the only one that a CPU runs.
    ///
    /// # Errors
    /// Where there is none such, or no CPU is proved to run it.
    pub fn find(snapshot: &'s Snapshot, pid: Option<u32>) -> Result<Self, Error> {
        let listed = || {
            snapshot
                .notes
                .processes
                .iter()
                .map(|process| format!("{} ({})", process.pid, process.name))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let on_a_cpu = |process: &&Process| table_of(process).is_none();
        let all = &snapshot.notes.processes;
        let running: Vec<&Process> = all.iter().filter(on_a_cpu).collect();
        let process = match (pid, all.as_slice()) {
            (None, [only]) => only,
            (None, [_, ..]) if running.len() == 1 => running[0],
            (None, []) => {
                return Err(Error::Input(
                    "the snapshot holds no process; take it at a checkpoint".into(),
                ))
            }
            (None, _) => {
                return Err(Error::Input(format!(
                    "the snapshot holds several processes ({}); choose one with --pid",
                    listed()
                )))
            }
            (Some(pid), all) => all
                .iter()
                .find(|process| process.pid == pid)
                .ok_or_else(|| {
                    Error::Input(format!(
                        "the snapshot holds no process {pid}; it has {}",
                        listed()
                    ))
                })?,
        };
        Self::of(snapshot, process)
    }

    /// The same for one of the snapshot's processes.
    ///
    /// # Errors
    /// Where no CPU is proved to run it.
    pub fn of(snapshot: &'s Snapshot, process: &'s Process) -> Result<Self, Error> {
        let by_its_task = table_of(process);
        let by_its_task = by_its_task.and_then(|table| lower_with(&snapshot.cpus, table));
        let cpu = snapshot
            .root_of(process)
            .or_else(|| root_of(snapshot, process));
        let by_a_cpu = cpu.map(|cpu| Regime::new(&cpu.system, Half::Lower));
        let mut regime = by_its_task.map(Ok).or(by_a_cpu).ok_or_else(|| {
            Error::Input(format!(
                "no CPU is proved to run process {} (EL0, inside the wait loop, with the nonce), so its tables are not judged; save the snapshot at a checkpoint",
                process.pid
            ))
        })??;
        // Any CPU may have run the process: what one of them updates by itself, no entry can be blamed for.
        for other in &snapshot.cpus {
            if let Ok(other) = Regime::new(&other.system, Half::Lower) {
                regime.ha |= other.ha;
                regime.hd |= other.hd;
            }
        }
        let vmas = parse_vmas(&process.maps)?;
        let facts = Facts::of(snapshot);
        let orders = match (facts.rings(), kernel_half(&snapshot.cpus)) {
            (Some(rings), Some(upper)) => read_orders(&snapshot.memory, &upper, rings, &snapshot.cpus).map_err(|error| error.to_string()),
            (None, Some(_)) => Err("the kernel's symbols hold no order record (an unpatched kernel, or no vmlinux)".into()),
            (_, None) if no_linux(&snapshot.cpus).is_some() => Err("no Linux was found at EL1".into()),
            (_, None) => Err("no CPU was in the kernel when the snapshot was taken, and TTBR1_EL1 may be the trampoline's".into()),
        };
        Ok(Self {
            process,
            regime,
            vmas,
            orders,
            has_records: facts.has_rings(),
            contpte: facts.contpte,
            release: Release::parse(&snapshot.notes.kernel_release),
        })
    }

    /// The lowest and highest VA of the process's half.
    #[must_use]
    pub fn bounds(&self) -> (VirtualAddress, VirtualAddress) {
        (self.regime.first, self.regime.last)
    }
}

/// VMAs from either file: `smaps` has a `VmFlags:` line in each block; `maps` has none.
///
/// # Errors
/// Where a line is not the kernel's.
pub fn parse_vmas(text: &str) -> Result<Vec<linux::vma::Vma>, Error> {
    let parse = if text.contains("\nVmFlags:") {
        linux::vma::parse_smaps
    } else {
        linux::vma::parse_maps
    };
    Ok(parse(text)?)
}
