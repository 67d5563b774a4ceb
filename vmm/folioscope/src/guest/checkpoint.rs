// SPDX-License-Identifier: GPL-2.0-only
//! The checkpoint: a process waits in user mode, the machine is stopped, one instant is copied.

use std::time::Duration;

use analysis::cpus_at_a_stop;
use evidence::{
    kernel_half, Capture, CaptureRequest, Companion, Extent, Facts, Gathered, Since, Work,
};
use machine::{MachineError, Paused, Status};
use protocol::{Command, Outcome, ProcessId};
use snapshot::{Checkpoint, Cpu, Memory, Notes, Process, Snapshot};
use stage1::PhysMemory;
use verdict::NotKnown;

use super::whole::{known, own_symbols, Found};
use super::{unexpected, Guest, Poke};
use crate::Error;

/// The registers that hold the nonce and the pid at a checkpoint.
const NONCE_REGISTER: u8 = 19;
pub(super) const PID_REGISTER: usize = 20;
/// Maximum number of stops if an interrupt had taken the CPU out of the wait loop.
const ATTEMPTS: u32 = 400;
/// Number of these that also wait for a CPU that shows the kernel's tables.
const FOR_THE_KERNEL: u32 = 40;

/// The reason if the kernel's structures were never found.
pub(super) const NOT_SHOWN: &str = "no CPU showed the kernel's tables when the guest was stopped";

/// A copy of memory, and the kernel structures that were read.
pub(super) type Copied = (Memory, Result<Gathered, NotKnown>);

impl Guest {
    /// Lets a process wait in user mode at its known instruction.
    ///
    /// # Errors
    /// As [`Guest::command`].
    pub fn hold(&mut self, process: ProcessId) -> Result<(), Error> {
        let nonce = self.next_nonce;
        self.next_nonce = nonce.wrapping_add(1);
        let outcome = self.command(
            Command::Checkpoint {
                process,
                nonce,
                smaps: true,
            },
            self.deadline,
        )?;
        let Outcome::Checkpoint(checkpoint) = outcome else {
            return Err(unexpected("checkpoint", &outcome));
        };
        let held = Process {
            pid: u32::try_from(checkpoint.pid).unwrap_or_default(),
            name: self.names.get(&process).cloned().unwrap_or_default().into(),
            cpu: None,
            checkpoint: Some(Checkpoint {
                pc_first: checkpoint.pc_start,
                pc_end: checkpoint.pc_end,
                register: NONCE_REGISTER,
                nonce,
            }),
            maps: checkpoint.smaps.unwrap_or(checkpoint.maps),
            ..Process::default()
        };
        self.held.insert(process, held);
        Ok(())
    }

    /// Returns the processes whose root table is known.
    #[must_use]
    pub fn known(&self) -> Vec<ProcessId> {
        self.roots.keys().copied().collect()
    }

    /// Ends the wait.
    ///
    /// # Errors
    /// As [`Guest::command`].
    pub fn release(&mut self, process: ProcessId) -> Result<(), Error> {
        self.held.remove(&process);
        self.command(Command::Release { process }, self.deadline)
            .map(drop)
    }

    /// Returns the processes that wait at a checkpoint.
    pub fn held(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.held.iter().map(|(id, process)| (*id, process))
    }

    /// Returns whether a process waits at a checkpoint.
    #[must_use]
    pub fn is_held(&self, process: ProcessId) -> bool {
        self.held.contains_key(&process)
    }

    /// Returns the CPUs that were idle at some time since a look; see [`Since::seen`].
    ///
    /// # Errors
    /// If the guest is lost.
    pub fn rested(&mut self, since: &Since) -> Result<Vec<bool>, Error> {
        let machine = self.link.machine.as_mut();
        Ok(since.seen(std::thread::sleep, || cpus_at_a_stop(machine))?)
    }

    /// Stops the guest while `process` waits at its checkpoint, copies the memory that will be needed of that instant,
    /// and resumes the guest. `pokes` are in guest memory only during the stop.
    ///
    /// # Errors
    /// If no CPU is seen in the wait loop, if its registers contradict the agent, or if the guest is lost.
    pub fn capture(
        &mut self,
        process: ProcessId,
        extent: Extent,
        pokes: &[Poke],
    ) -> Result<Capture, Error> {
        self.capture_with(process, &[], extent, pokes)
    }

    /// Captures also the tables of other processes that are idle meanwhile: those of `others` whose root table is known
    /// from a checkpoint of their own.
    ///
    /// # Errors
    /// As [`Guest::capture`].
    pub fn capture_with(
        &mut self,
        process: ProcessId,
        others: &[ProcessId],
        extent: Extent,
        pokes: &[Poke],
    ) -> Result<Capture, Error> {
        if !pokes.is_empty() {
            self.forget_copy();
        }
        self.read_getters(process, extent.getters)?;
        self.stop_and_copy(process, others, extent, |paused, seen, _| {
            let mut before = Vec::with_capacity(pokes.len());
            for poke in pokes {
                let word = paused.memory.words(poke.address, 1).map(|words| words[0]);
                before.push(word.ok_or_else(|| poke.refused())?);
            }
            for poke in pokes {
                paused.write(poke.address, &poke.word.to_le_bytes())?;
            }
            let (pages, gathered) =
                evidence::pages_seen(&paused.memory, &paused.cpus, seen, extent);
            let copy = evidence::copy(&paused.memory, &pages);
            for (poke, word) in pokes.iter().zip(before).rev() {
                paused.write(poke.address, &word.to_le_bytes())?;
            }
            Ok((copy?, gathered))
        })
    }

    /// Stops the guest at an instant at which `process` is proved to wait, lets `copy` make its copy of memory, and
    /// resumes the guest. `copy` receives the notes for a snapshot of that instant.
    pub(super) fn stop_and_copy(
        &mut self,
        process: ProcessId,
        others: &[ProcessId],
        extent: Extent,
        copy: impl FnOnce(&mut Paused<'_>, &CaptureRequest<'_>, &Notes) -> Result<Copied, Error>,
    ) -> Result<Capture, Error> {
        let Some(held) = self.held.get(&process).cloned() else {
            return Err(Error::Input(format!(
                "{process} does not wait at a checkpoint; hold it first"
            )));
        };
        let checkpoint = held
            .checkpoint
            .ok_or_else(|| Error::Input(format!("{process} has no checkpoint")))?;
        let companions = self.companions(process, others)?;
        let mut notes = self.notes(Vec::new());
        for attempt in 0..ATTEMPTS {
            let contpte = self.contpte();
            let mut paused = self.link.machine.pause_at(checkpoint.nonce)?;
            let held_by = paused.cpus.iter().find(|cpu| checkpoint.holds(cpu));
            // With KPTI a CPU in user mode does not show the kernel's tables; another one is in the kernel at most times.
            let hidden = attempt < FOR_THE_KERNEL
                && paused.cpus.len() > 1
                && kernel_half(&paused.cpus).is_none();
            let Some(root) = held_by.filter(|_| !hidden).copied() else {
                paused.resume()?;
                std::thread::sleep(Duration::from_micros(100 * u64::from(attempt.min(50))));
                continue;
            };
            agrees(&root, &held)?;
            // While no CPU shows the kernel it is looked for again.
            if self.inside.is_none() {
                self.inside = Found::look(&paused.memory, &paused.cpus);
            }
            let own = own_symbols(&self.inside);
            let facts = Facts::new(self.kernel.symbols.as_ref().or(own), &paused.cpus);
            let facts = Facts {
                contpte,
                ..facts.with(known(&self.inside))
            };
            let seen = CaptureRequest {
                root: &root,
                companions: &companions,
                facts,
                structures: match &self.inside {
                    Some(Ok(found)) => Ok(&found.inside),
                    Some(Err(why)) => Err(why),
                    None => Err(NOT_SHOWN),
                },
            };
            let ran_ns = paused.ran_ns();
            let work = Work::of(&paused.memory, &paused.cpus, ran_ns);
            facts.keep(&mut notes);
            notes.processes.push(Process {
                cpu: Some(root.index),
                ..held
            });
            let memory = copy(&mut paused, &seen, &notes);
            let cpus = paused.cpus.clone();
            let stopped = paused.resume()?;
            let (memory, gathered) = memory?;
            Gathered::keep(&gathered, &mut notes);
            self.roots.insert(process, root);
            return Ok(Capture {
                companions,
                work,
                extent,
                snapshot: Snapshot {
                    cpus,
                    memory,
                    notes,
                },
                stopped,
            });
        }
        // A panic leaves the CPUs at any place: then the console has the reason.
        if matches!(self.link.machine.status(), Status::Panicked) {
            let console = self.link.machine.console().tail();
            return Err(MachineError::Panicked { console }.into());
        }
        Err(Error::GuestLost {
            what: format!("{process} was to wait in user mode, and in {ATTEMPTS} looks no CPU was seen in its loop; without that no table is known to be its own"),
        })
    }

    /// Adds the kernel's own data on a waiting process to the next capture, or none.
    fn read_getters(&mut self, process: ProcessId, wanted: bool) -> Result<(), Error> {
        let said = match wanted.then(|| self.command(Command::Getters { process }, self.deadline)) {
            None => None,
            Some(Ok(Outcome::Getters(said))) => Some(Ok(*said)),
            Some(Ok(other)) => return Err(unexpected("getters", &other)),
            // A kernel that does not have these files.
            Some(Err(error @ Error::Guest { .. })) => Some(Err(error.to_string())),
            Some(Err(error)) => return Err(error),
        };
        if let Some(held) = self.held.get_mut(&process) {
            evidence::keep_getters(held, said.as_ref());
        }
        Ok(())
    }

    /// Returns what is to be known of `others` before the guest is stopped.
    fn companions(
        &mut self,
        process: ProcessId,
        others: &[ProcessId],
    ) -> Result<Vec<Companion>, Error> {
        let mut companions = Vec::new();
        for &other in others {
            let Some(cpu) = self.roots.get(&other).copied() else {
                continue;
            };
            if other == process {
                continue;
            }
            let command = Command::Maps {
                process: other,
                smaps: true,
            };
            let outcome = match self.command(command, self.deadline) {
                // It has ended meanwhile.
                Err(Error::Guest { .. }) => {
                    self.roots.remove(&other);
                    continue;
                }
                other => other?,
            };
            let Outcome::Maps { maps, smaps } = outcome else {
                return Err(unexpected("maps", &outcome));
            };
            companions.push(Companion {
                name: self.names.get(&other).cloned().unwrap_or_default().into(),
                pid: pid_of(&cpu),
                maps: smaps.unwrap_or(maps),
                cpu,
            });
        }
        Ok(companions)
    }
}

/// Returns the pid of the process that waits on a CPU.
pub(super) fn pid_of(cpu: &Cpu) -> u32 {
    u32::try_from(cpu.general.x[PID_REGISTER]).unwrap_or_default()
}

/// Checks that the CPU in the wait loop is that of the process by all its registers.
fn agrees(cpu: &Cpu, process: &Process) -> Result<(), Error> {
    let pid = u64::from(process.pid);
    // 0: the kernel lacks CONFIG_PID_IN_CONTEXTIDR.
    let contextidr = cpu.system.contextidr_el1;
    let in_register = cpu.general.x[PID_REGISTER];
    if in_register != pid || (contextidr != 0 && contextidr != pid) {
        return Err(Error::GuestLost {
            what: format!(
                "CPU {} waits with the nonce of process {pid}, but x{PID_REGISTER} is {in_register} and CONTEXTIDR_EL1 {contextidr}; its tables are not judged",
                cpu.index
            ),
        });
    }
    Ok(())
}
