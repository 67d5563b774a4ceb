//! A machine that is stopped, and so can be read.

use std::fmt::Debug;
use std::ops::Deref;
use std::time::{Duration, Instant};

use snapshot::{Memory, Notes, RangeSet, Snapshot};
use stage1::{PhysicalAddress, VirtualAddress};

use crate::MachineError;

/// What a paused machine can still be asked.
pub trait Stopped: Debug {
    /// Lets the guest go on.
    fn resume(&mut self) -> Result<(), MachineError>;

    /// The machine's own translation of `va` on CPU `cpu`, for tests of ours: `None` where it has
    /// none. Not every machine has one.
    fn translate(
        &mut self,
        cpu: usize,
        va: VirtualAddress,
    ) -> Result<Option<PhysicalAddress>, MachineError>;

    /// The pages that the guest and its devices have written to since the record began or was last
    /// read, whichever is later; `None` where none is kept (see [`crate::Machine::log_writes`]).
    fn written(&mut self) -> Result<Option<RangeSet>, MachineError> {
        Ok(None)
    }

    /// How long each CPU's thread has run so far, in nanoseconds of processor time; 0, or nothing at all, where that
    /// cannot be told.
    fn ran_ns(&mut self) -> Vec<u64> {
        Vec::new()
    }
}

/// A machine all of whose CPUs and devices are stopped. It is a [`Snapshot`] whose memory is the
/// guest's own, read in place; the guest goes on when this is resumed or dropped.
#[derive(Debug)]
pub struct Paused<'m> {
    /// Never given away nor replaced: its memory may be read only until the guest goes on.
    snapshot: Snapshot,
    machine: &'m mut dyn Stopped,
    since: Instant,
    stopping: Duration,
    resumed: bool,
}

impl<'m> Paused<'m> {
    /// A machine that was told to stop at `since` and stood still after `stopping`, with what was
    /// read of it.
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

    /// From our demand to stop until the machine has said that it stands still; what follows is
    /// the reading of its registers.
    pub fn stopping(&self) -> Duration {
        self.stopping
    }

    /// Lets the guest go on; gives how long it stood still at most: from our demand to stop until
    /// the machine has said that it goes on.
    pub fn resume(mut self) -> Result<Duration, MachineError> {
        self.go_on()?;
        Ok(self.since.elapsed())
    }

    /// Writes to guest memory: how a test corrupts a table from outside.
    pub fn write(&mut self, address: PhysicalAddress, data: &[u8]) -> Result<(), MachineError> {
        Ok(self.snapshot.memory.write(address, data)?)
    }

    /// The notes, to be filled in before the snapshot is saved.
    pub fn notes_mut(&mut self) -> &mut Notes {
        &mut self.snapshot.notes
    }

    /// The machine's own translation of `va` on CPU `cpu`; see [`Stopped::translate`].
    pub fn translate(
        &mut self,
        cpu: usize,
        va: VirtualAddress,
    ) -> Result<Option<PhysicalAddress>, MachineError> {
        self.machine.translate(cpu, va)
    }

    /// The pages that were written to; see [`Stopped::written`]. What [`Paused::write`] wrote is not
    /// among them.
    pub fn written(&mut self) -> Result<Option<RangeSet>, MachineError> {
        self.machine.written()
    }

    /// How long each CPU's thread has run so far; see [`Stopped::ran_ns`].
    pub fn ran_ns(&mut self) -> Vec<u64> {
        self.machine.ran_ns()
    }

    fn go_on(&mut self) -> Result<(), MachineError> {
        self.resumed = true;
        // The live regions end before the guest can write to what they cover.
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
            // Nobody is left to hear of an error; the next call on the machine will meet it.
            let _ = self.go_on();
        }
    }
}
