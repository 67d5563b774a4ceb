// SPDX-License-Identifier: GPL-2.0-only
//! Stops a machine to see what its CPUs are at.

use evidence::Work;
use machine::{Machine, MachineError};
use snapshot::Cpu;

/// Stops a guest, notes what its CPUs are at, and resumes it.
///
/// # Errors
/// If the machine cannot be stopped or read.
pub fn cpus_at_a_stop(machine: &mut dyn Machine) -> Result<(Vec<Cpu>, Work), MachineError> {
    let mut paused = machine.pause()?;
    let ran_ns = paused.ran_ns();
    let work = Work::of(&paused.memory, &paused.cpus, ran_ns);
    let cpus = paused.cpus.clone();
    paused.resume()?;
    Ok((cpus, work))
}
