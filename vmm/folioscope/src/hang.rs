// SPDX-License-Identifier: GPL-2.0-only
//! A guest of ours without progress: judges all that can be proved of it.
//!
//! For a guest that hangs or has ended, that is the result of [`analysis::Hung`]. A process whose operation is past its
//! deadline may be on a slow machine. But its access makes no progress if the kernel's count of its faults keeps
//! growing, while its CPU has the same fault address at every stop.

use std::time::Duration;

use protocol::ProcessId;
use snapshot::Cpu;
use stage1::{lookup, Lookup, PhysMemory, PhysicalAddress, Regime, VirtualAddress};
use verdict::rules::STUCK;
use verdict::stops::FaultStops;
use verdict::{Finding, Hex, Process, Step};

use crate::guest::Guest;
use crate::Error;

/// Stops of the guest.
const STOPS: u32 = 24;
/// Time between two of them.
const BETWEEN: Duration = Duration::from_millis(15);

/// Judges a guest that hangs or has ended. The step has the proved part; the rest is not judged.
///
/// # Errors
/// If the machine cannot be stopped or read.
pub fn judge_rest(guest: &mut Guest) -> Result<Step, Error> {
    let mut step = analysis::step(&guest.unattended().settle()?, None)?;
    step.workload = "hang".into();
    step.step = "what is left".into();
    Ok(step)
}

/// Returns the kernel's count of a process's faults: `minflt` and `majflt` of `/proc/PID/stat`.
fn count(stat: &str) -> Option<u64> {
    // The name is in parentheses, and may have any character in it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(number(7)? + number(9)?)
}

/// Looks at a process whose operation is past its deadline. If it faults for ever on one address, returns a step with
/// that finding and with the architecture rules' findings on the process's tables.
///
/// # Errors
/// If the guest is lost meanwhile.
pub fn without_end(guest: &mut Guest, process: ProcessId) -> Result<Option<Step>, Error> {
    let Some((pid, name)) = guest.stuck(process)? else {
        return Ok(None);
    };
    let stat = format!("/proc/{pid}/stat");
    let before = faults_of(guest, &stat)?.unwrap_or(0);
    let mut seen = FaultStops::default();
    let mut table = None;
    let proved = guest.proved(process);
    for _ in 0..STOPS {
        std::thread::sleep(BETWEEN);
        let paused = guest.machine().pause()?;
        let cpus = paused.cpus.iter();
        for cpu in cpus.filter(|cpu| cpu.system.contextidr_el1 == u64::from(pid)) {
            let fault = seen.add(cpu.system.esr_el1, cpu.system.far_el1);
            // A checkpoint has proved its table; and in user mode it is its own for certain.
            let root = proved.or((cpu.el() == 0).then_some(*cpu));
            if let (Some(root), Some(address)) = (root, fault) {
                table = Some(group(&paused.memory, &root, address)).or(table);
            }
        }
        paused.resume()?;
    }
    let counted = faults_of(guest, &stat)?.unwrap_or(0).saturating_sub(before);
    let Some(address) = seen.without_end(counted) else {
        return Ok(None);
    };
    let mut step = judge_rest(guest)?;
    step.step = "a fault without end".into();
    let entry = table.unwrap_or_default();
    let message = format!(
        "{counted} faults at this one address within {} stops of the guest, and the access never got on; {}",
        seen.count(),
        entry.what
    );
    let finding = Finding {
        process: Some(Process { pid, name }),
        va: Hex(address),
        end: Hex(address),
        level: entry.level,
        table: Hex(entry.table),
        index: entry.index,
        words: entry.words.into_iter().map(Hex).collect(),
        ..Finding::new(&STUCK, message)
    };
    // Its own verdict, where its table was known.
    match step.processes.iter_mut().find(|it| it.process.pid == pid) {
        Some(verdict) => verdict.findings.insert(0, finding),
        None => {
            let kernel = step.kernel.get_or_insert_default();
            kernel.findings.insert(0, finding);
        }
    }
    Ok(Some(step))
}

fn faults_of(guest: &mut Guest, stat: &str) -> Result<Option<u64>, Error> {
    Ok(guest.read_file(stat)?.and_then(|text| count(&text)))
}

/// The group of entries that an address is in.
#[derive(Debug, Default)]
struct Group {
    level: i8,
    table: u64,
    index: usize,
    words: Vec<u64>,
    what: String,
}

fn group<M: PhysMemory + ?Sized>(memory: &M, cpu: &Cpu, address: u64) -> Group {
    let Ok(regime) = Regime::new(&cpu.system, stage1::Half::Lower) else {
        return Group::default();
    };
    let (entry, what) = match lookup(memory, &regime, VirtualAddress(address)) {
        Lookup::Mapped { entry, .. } => (entry, "its entry is valid"),
        Lookup::NotMapped { entry } => (entry, "its entry is not valid for the CPU"),
        Lookup::BeyondOutputSize { entry } => (entry, "its entry leads beyond the output size"),
        Lookup::OutsideRegime | Lookup::Problem(_) => return Group::default(),
    };
    let level = entry.descriptor.level;
    let window = regime.contiguous_entries(level).unwrap_or(1);
    let first = entry.index / window * window;
    let at = PhysicalAddress(entry.table.0 + first as u64 * 8);
    Group {
        level: level.number(),
        table: entry.table.0,
        index: first,
        words: memory
            .words(at, window)
            .map(<[u64]>::to_vec)
            .unwrap_or_default(),
        what: what.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_counted_behind_the_name() {
        let stat = "57 (a ) b) R 1 57 57 0 -1 4194304 12 0 3 0 5 6 0 0 20 0 1 0 99";
        assert_eq!(count(stat), Some(15));
        assert_eq!(count("57 (cut"), None);
        assert_eq!(count("57 (cut) R 1"), None);
    }
}
