//! Gathers data on a process while it waits in user mode.

use protocol::{Checkpoint, Failure, Outcome, Spawned};

use crate::files;

/// A checkpoint that a process has announced.
#[derive(Debug, Clone)]
pub struct Announced {
    /// The process.
    pub process: Spawned,
    /// The host's value.
    pub nonce: u64,
    /// The CPU on which it waits.
    pub cpu: u32,
    /// True if the host wants smaps.
    pub smaps: bool,
}

/// Reads the process's files in procfs. Runs in a helper.
pub fn gather(announced: &Announced) -> Result<Outcome, Failure> {
    let pid = announced.process.pid;
    let unclean = |failure: Failure| Failure::Checkpoint {
        why: failure.to_string(),
    };
    let (maps, smaps) = files::maps(pid, announced.smaps).map_err(unclean)?;
    let stat = files::text(&format!("/proc/{pid}/stat")).map_err(unclean)?;
    let status = files::text(&format!("/proc/{pid}/status")).map_err(unclean)?;
    let state = state(&status).to_owned();
    if !state.starts_with('R') {
        return Err(Failure::Checkpoint {
            why: format!("process {pid} should run in user mode, but its state is \"{state}\""),
        });
    }
    Ok(Outcome::Checkpoint(Box::new(Checkpoint {
        process: announced.process.process,
        pid,
        nonce: announced.nonce,
        pc_start: announced.process.pc_start,
        pc_end: announced.process.pc_end,
        cpu: announced.cpu,
        last_cpu: last_cpu(&stat),
        state,
        maps,
        smaps,
    })))
}

/// Returns `State` of `/proc/PID/status`.
fn state(status: &str) -> &str {
    status
        .lines()
        .find_map(|line| line.strip_prefix("State:"))
        .map_or("", str::trim)
}

/// Returns field 39 of `/proc/PID/stat`. The second field is a name in parentheses that may hold any characters.
fn last_cpu(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_procfs() {
        assert_eq!(
            state("Name:\tx\nState:\tR (running)\nTgid:\t1\n"),
            "R (running)"
        );
        assert_eq!(state("Name:\tx\n"), "");
        let fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        let stat = format!("7 (a) (b c) {}\n", fields.join(" "));
        assert_eq!(last_cpu(&stat), Some(39));
        assert_eq!(last_cpu("7 (x) R 1"), None);
    }
}
