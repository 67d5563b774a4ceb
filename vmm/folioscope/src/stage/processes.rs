//! The processes of a workload, and what they do with their memory.

use protocol::{Advice, Backing, Operation, Outcome, Placement, ProcessId};

use super::{Area, Stage, StageResult};
use crate::guest::unexpected;
use crate::Error;

impl Stage<'_> {
    /// A process of this workload.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn spawn(&mut self) -> Result<ProcessId, Error> {
        self.spawn_as("tour")
    }

    /// The same, by a name of its own.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn spawn_as(&mut self, name: &str) -> Result<ProcessId, Error> {
        let process = self.guest.spawn(name)?.process;
        self.processes.push((process, vec![]));
        Ok(process)
    }

    /// A child of `parent`, which has its areas.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn fork(&mut self, parent: ProcessId) -> Result<ProcessId, Error> {
        match self.op(
            parent,
            Operation::Fork {
                name: "child".into(),
            },
        )? {
            Outcome::Spawned(spawned) => {
                let areas = self.areas(parent).to_vec();
                self.processes.push((spawned.process, areas));
                Ok(spawned.process)
            }
            other => Err(unexpected("fork", &other)),
        }
    }

    /// An area, by one of the operations that map.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn map(&mut self, process: ProcessId, op: Operation) -> Result<u64, Error> {
        match self.op(process, op)? {
            Outcome::Mapped { address, length } => {
                if let Some((_, areas)) = self.processes.iter_mut().find(|(id, _)| *id == process) {
                    areas.push(Area { address, length });
                }
                Ok(address)
            }
            other => Err(unexpected("mmap", &other)),
        }
    }

    /// An operation in a process. Advice about huge pages is left out where the kernel has none.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn op(&mut self, process: ProcessId, op: Operation) -> Result<Outcome, Error> {
        match op {
            Operation::Madvise {
                address,
                length,
                advice: advice @ (Advice::Hugepage | Advice::Nohugepage),
            } => self.guest.hint(process, address, length, advice),
            op => self.guest.op(process, op),
        }
    }

    /// The same, where the answer may be no: whether it was done.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn try_op(&mut self, process: ProcessId, op: Operation) -> Result<bool, Error> {
        match self.op(process, op) {
            Ok(_) => Ok(true),
            Err(Error::Guest { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// An address at which so many bytes are free, aligned to what a level-2 descriptor maps or as it is said.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn free_place(
        &mut self,
        process: ProcessId,
        length: u64,
        align: Option<u64>,
    ) -> Result<u64, Error> {
        let place = Placement::Isolated {
            align,
            offset: 0,
            gap: None,
        };
        let map = Operation::Mmap {
            length,
            backing: Backing::Anonymous,
            prot: vec![],
            flags: vec![],
            place,
        };
        match self.op(process, map)? {
            Outcome::Mapped { address, .. } => {
                self.op(process, Operation::Munmap { address, length })?;
                Ok(address)
            }
            other => Err(unexpected("mmap", &other)),
        }
    }

    /// `mremap(2)` of the area at `from`, which is then where the answer says.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn remap(&mut self, process: ProcessId, from: u64, op: Operation) -> StageResult {
        match self.op(process, op)? {
            Outcome::Mapped { address, length } => {
                let areas = self.processes.iter_mut().filter(|(id, _)| *id == process);
                for area in areas.flat_map(|(_, areas)| areas) {
                    if area.address == from {
                        *area = Area { address, length };
                    }
                }
                Ok(())
            }
            other => Err(unexpected("mremap", &other)),
        }
    }
}
