//! Starting a workload process.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use protocol::{Failure, ProcessId};

use crate::{sys, workload, WORKLOAD};

/// Configuration of a new workload process.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The agent's number of it.
    pub process: ProcessId,
    /// Its slot.
    pub slot: usize,
    /// The CPU that it is pinned to.
    pub cpu: u32,
    /// Its name.
    pub name: &'a str,
    /// Keeps address space randomization.
    pub randomize: bool,
}

/// Executes this program once more, as a workload. It reports through its pipe.
pub fn spawn(directory: &Path, start: Start<'_>) -> Result<i32, Failure> {
    let directory = directory.to_string_lossy();
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(WORKLOAD)
        .args(workload::arguments(
            &directory,
            start.process,
            start.slot,
            start.cpu,
            start.name,
        ))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let randomize = start.randomize;
    let set = move || {
        let _ = rustix::process::setpriority_process(None, 0);
        // SAFETY: it takes no memory. Personality 0xffffffff only reads.
        unsafe {
            if !randomize {
                let now = libc::personality(0xffff_ffff) as libc::c_ulong;
                libc::personality(now | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            }
        }
        Ok(())
    };
    // SAFETY: the agent has one thread, so that the closure may do what any code may.
    unsafe { command.pre_exec(set) };
    let child = command
        .spawn()
        .map_err(|e| sys::io_failure(&e, "exec of a workload process"))?;
    Ok(child.id() as i32)
}

/// Returns a CPU for a new process: not the agent's if there is another, and the least used.
pub fn choose_cpu(cpus: &[u32], agent_cpu: u32, used: impl Fn(u32) -> usize) -> u32 {
    let best = cpus
        .iter()
        .min_by_key(|&&cpu| (cpu == agent_cpu, used(cpu), cpu));
    *best.expect("a machine has a CPU")
}

/// Returns the CPU for a process that waits in user mode: one on which no process waits yet, not the agent's, and the
/// process's own, in this order of importance. `waiting` returns the number of processes that wait on a CPU.
pub fn choose_waiting_cpu(
    cpus: &[u32],
    agent_cpu: u32,
    own: u32,
    waiting: impl Fn(u32) -> usize,
) -> u32 {
    let best = cpus
        .iter()
        .min_by_key(|&&cpu| (waiting(cpu), cpu == agent_cpu, cpu != own, cpu));
    *best.expect("a machine has a CPU")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_cpu_comes_last() {
        assert_eq!(choose_cpu(&[0], 0, |_| 5), 0);
        assert_eq!(choose_cpu(&[0, 1], 0, |cpu| cpu as usize * 9), 1);
        assert_eq!(choose_cpu(&[0, 1, 2], 0, |cpu| usize::from(cpu == 1)), 2);
    }

    #[test]
    fn one_waits_per_cpu_as_long_as_there_are_enough() {
        let none = |_| 0;
        assert_eq!(choose_waiting_cpu(&[0, 1], 0, 1, none), 1);
        assert_eq!(choose_waiting_cpu(&[0, 1, 2], 0, 2, none), 2);
        assert_eq!(choose_waiting_cpu(&[0, 1], 0, 0, none), 1);
        assert_eq!(choose_waiting_cpu(&[0, 1], 0, 1, |cpu| cpu as usize), 0);
        assert_eq!(choose_waiting_cpu(&[0], 0, 0, |_| 3), 0);
    }
}
