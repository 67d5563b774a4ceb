// SPDX-License-Identifier: GPL-2.0-only
//! A machine that is stopped, and so can be read.

use std::fmt::Debug;
use std::ops::Deref;
use std::time::{Duration, Instant};

use snapshot::{Memory, Notes, RangeSet, Snapshot};
use stage1::{PhysicalAddress, VirtualAddress};

use crate::MachineError;

/// Operations on a paused machine.
pub trait Stopped: Debug {
    /// Resumes the guest.
    fn resume(&mut self) -> Result<(), MachineError>;

    /// Returns the machine's own translation of `va` on CPU `cpu`, for our tests; `None` if there is none. Not every
    /// machine has this function.
    fn translate(
        &mut self,
        cpu: usize,
        va: VirtualAddress,
    ) -> Result<Option<PhysicalAddress>, MachineError>;

    /// Returns the pages that the guest and its devices have written since the record began or was last read, whichever
    /// is later. Returns `None` if there is no record (see [`crate::Machine::log_writes`]).
    fn written(&mut self) -> Result<Option<RangeSet>, MachineError> {
        Ok(None)
    }

    /// Returns how long each CPU's thread has run so far, in nanoseconds of processor time. A time is 0, or the result
    /// is empty, if it is unknown.
    fn ran_ns(&mut self) -> Vec<u64> {
        Vec::new()
    }
}

/// A machine all of whose CPUs and devices are stopped. It is a [`Snapshot`] whose memory is the guest's own, read in
/// place. The guest runs on when this is resumed or dropped.
#[derive(Debug)]
pub struct Paused<'m> {
    /// Never moved out or replaced: its memory may be read only until the guest runs on.
    snapshot: Snapshot,
    machine: &'m mut dyn Stopped,
    since: Instant,
    stopping: Duration,
    resumed: bool,
}

impl<'m> Paused<'m> {
    /// Creates the state of a machine that was asked to stop at `since` and was stopped after `stopping`, with the data
    /// read from it.
    pub fn new(
        snapshot: Snapshot,
        machine: &'m mut dyn Stopped,
        since: Instant,
        stopping: Duration,
    ) -> Self {
        Self {
            snapshot,
            machine,
            since,
            stopping,
            resumed: false,
        }
    }

    /// Returns the time from our request to stop until the machine reported that it was stopped. The registers are read
    /// after that.
    pub fn stopping(&self) -> Duration {
        self.stopping
    }

    /// Resumes the guest. Returns the upper bound of its stop: from our request to stop until the machine reported that
    /// it runs on.
    pub fn resume(mut self) -> Result<Duration, MachineError> {
        self.go_on()?;
        Ok(self.since.elapsed())
    }

    /// Writes to guest memory: how a test corrupts a table from outside.
    pub fn write(&mut self, address: PhysicalAddress, data: &[u8]) -> Result<(), MachineError> {
        Ok(self.snapshot.memory.write(address, data)?)
    }

    /// Returns the notes, to be filled in before the snapshot is saved.
    pub fn notes_mut(&mut self) -> &mut Notes {
        &mut self.snapshot.notes
    }

    /// Returns the machine's own translation of `va` on CPU `cpu`; see [`Stopped::translate`].
    pub fn translate(
        &mut self,
        cpu: usize,
        va: VirtualAddress,
    ) -> Result<Option<PhysicalAddress>, MachineError> {
        self.machine.translate(cpu, va)
    }

    /// Returns the pages that were written to, without those that [`Paused::write`] wrote; see [`Stopped::written`].
    pub fn written(&mut self) -> Result<Option<RangeSet>, MachineError> {
        self.machine.written()
    }

    /// Returns how long each CPU's thread has run so far; see [`Stopped::ran_ns`].
    pub fn ran_ns(&mut self) -> Vec<u64> {
        self.machine.ran_ns()
    }

    fn go_on(&mut self) -> Result<(), MachineError> {
        self.resumed = true;
        // The live regions end before the guest can write to their memory.
        self.snapshot.memory =
            Memory::new(Vec::new(), Vec::new()).expect("no regions cannot be wrong");
        self.machine.resume()
    }
}

impl Deref for Paused<'_> {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if !self.resumed {
            // Drop cannot return an error; the next call on the machine reports it.
            let _ = self.go_on();
        }
    }
}
