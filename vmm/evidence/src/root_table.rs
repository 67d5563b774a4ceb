// SPDX-License-Identifier: GPL-2.0-only
//! By what it is known where a process's first table is: a CPU at EL0 has it, or one in the kernel that names a process which is
//! known, or its task's address space tells.

use std::collections::BTreeSet;

use snapshot::{Cpu, Process as Captured, Snapshot};
use stage1::{Half, PhysicalAddress, Regime};
use untrusted::Text;

use crate::elsewhere::AT_EL1;

/// The mark of a process whose table is known because a CPU was at EL0 with it.
pub const IN_USER_MODE: &str = "in_user_mode";

/// The mark of a process whose table is known because a CPU in the kernel had it, for a process that is known.
pub const IN_KERNEL: &str = "in_kernel";

/// The mark of a process whose table is known because its task's address space has it: the table's physical address.
const BY_ITS_TASK: &str = "first_table";

/// A user process that the guest is known to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownProcess {
    /// Its pid.
    pub pid: u32,
    /// Its name.
    pub name: Text,
    /// The physical address of its first table, where that was seen before. It stays for as long as the process lives.
    pub root: Option<u64>,
}

/// The processes that CPUs are in user mode with, each once, and of those that are `known` any that a CPU is in the
/// kernel for.
#[must_use]
pub fn processes(cpus: &[Cpu], known: &[KnownProcess]) -> Vec<Captured> {
    let mut roots = BTreeSet::new();
    let mut processes = Vec::new();
    for cpu in cpus {
        let Ok(regime) = Regime::new(&cpu.system, Half::Lower) else {
            continue;
        };
        // 0: the kernel does not say (CONFIG_PID_IN_CONTEXTIDR).
        let pid = u32::try_from(cpu.system.contextidr_el1).unwrap_or(0);
        let mut known = known.iter().filter(|it| it.pid == pid && pid != 0);
        let known = known.find(|it| it.root.is_none_or(|root| root == regime.root.0));
        let mark = match (cpu.el(), known) {
            (0, _) => IN_USER_MODE,
            (1, Some(_)) => IN_KERNEL,
            _ => continue,
        };
        if !roots.insert(regime.root.0) {
            continue;
        }
        let place = format!("on CPU {}", cpu.index);
        processes.push(Captured {
            pid,
            name: known.map_or(place.into(), |it| it.name.clone()),
            cpu: Some(cpu.index),
            extra: [(mark.to_owned(), true.into())].into(),
            ..Captured::default()
        });
    }
    processes
}

/// The CPU that had this process's table.
#[must_use]
pub fn root_of<'s>(snapshot: &'s Snapshot, process: &Captured) -> Option<&'s Cpu> {
    let has = |mark| process.extra.contains_key(mark);
    let level = match (has(IN_USER_MODE), has(IN_KERNEL) || has(AT_EL1)) {
        (true, _) => 0,
        (_, true) => 1,
        _ => return None,
    };
    let mut cpus = snapshot.cpus.iter();
    cpus.find(|cpu| Some(cpu.index) == process.cpu && cpu.el() == level)
}

/// A process that no CPU runs, with its first table.
#[must_use]
pub fn by_its_task(pid: u32, name: &Text, table: PhysicalAddress) -> Captured {
    Captured {
        pid,
        name: name.clone(),
        extra: [(BY_ITS_TASK.to_owned(), table.0.into())].into(),
        ..Captured::default()
    }
}

/// The first table of a process, where its task's address space has told.
#[must_use]
pub fn table_of(process: &Captured) -> Option<PhysicalAddress> {
    let table = process.extra.get(BY_ITS_TASK)?.as_u64()?;
    Some(PhysicalAddress(table))
}
