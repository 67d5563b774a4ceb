// SPDX-License-Identifier: GPL-2.0-only
//! The processes of a workload, and the operations on their memory.

use protocol::{Advice, Backing, Failure, Operation, Outcome, Placement, ProcessId};

use super::{Area, Stage, StageResult};
use crate::guest::unexpected;
use crate::Error;

impl Stage<'_> {
    /// Returns a process of this workload.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn spawn(&mut self) -> Result<ProcessId, Error> {
        self.spawn_as("tour")
    }

    /// Starts a process with a name of its own.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn spawn_as(&mut self, name: &str) -> Result<ProcessId, Error> {
        let spawned = self.guest.spawn(name)?;
        let process = spawned.process;
        self.pids.push((process, spawned.pid));
        self.processes.push((process, vec![]));
        Ok(process)
    }

    /// Returns a child of `parent`, which has its areas.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn fork(&mut self, parent: ProcessId) -> Result<ProcessId, Error> {
        match self.op(
            parent,
            Operation::Fork {
                name: "child".into(),
            },
        )? {
            Outcome::Spawned(spawned) => {
                let areas = self.areas(parent).to_vec();
                self.pids.push((spawned.process, spawned.pid));
                self.processes.push((spawned.process, areas));
                Ok(spawned.process)
            }
            other => Err(unexpected("fork", &other)),
        }
    }

    /// Returns the kernel's number of a process.
    pub fn pid(&self, process: ProcessId) -> i32 {
        let known = self.pids.iter().find(|(id, _)| *id == process);
        known.map_or(0, |(_, pid)| *pid)
    }

    /// Puts a process into a cgroup, where there is that cgroup.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn join(&mut self, process: ProcessId, cgroup: &str) -> StageResult {
        let path = format!("{cgroup}/cgroup.procs");
        match self.exists(&path)? {
            true => self.set(&path, &self.pid(process).to_string()),
            false => Ok(()),
        }
    }

    /// Has the kernel reclaim what it can of a memory cgroup.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn reclaim(&mut self, cgroup: &str) -> StageResult {
        match self.set(&format!("{cgroup}/memory.reclaim"), "1G") {
            // Less than that was there.
            Err(Error::Guest { failure, .. }) if failure.errno() == Some("EAGAIN") => Ok(()),
            outcome => outcome,
        }
    }

    /// Limits a memory cgroup to so many bytes above what it has charged until the end, or takes its limit away.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn limit(&mut self, cgroup: &str, above: Option<u64>) -> StageResult {
        let file = format!("{cgroup}/memory.max");
        let Some(above) = above else {
            return self.set(&file, "max");
        };
        // CPUs keep some of it charged for later, and give that back first where it is too much (`memory_high_write()`).
        let high = format!("{cgroup}/memory.high");
        let less = self.charged(cgroup)?.saturating_sub(self.page());
        self.set(&high, &less.to_string())?;
        self.set(&high, "max")?;
        let limit = self.charged(cgroup)? + above;
        self.set_for_now(&file, &limit.to_string()).map(drop)
    }

    /// Returns how often a charge of a memory cgroup came to its limit (`memory.events`, max).
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn came_to_limit(&mut self, cgroup: &str) -> Result<u64, Error> {
        let events = self.knob(&format!("{cgroup}/memory.events"))?;
        let events = events.unwrap_or_default();
        let mut counts = events.lines().filter_map(|line| line.split_once(' '));
        let max = counts.find(|(name, _)| *name == "max");
        Ok(max.and_then(|(_, count)| count.parse().ok()).unwrap_or(0))
    }

    /// Returns the bytes that a memory cgroup has charged.
    fn charged(&mut self, cgroup: &str) -> Result<u64, Error> {
        let current = self.knob(&format!("{cgroup}/memory.current"))?;
        let charged = current.as_ref().and_then(|text| text.parse().ok());
        charged.ok_or_else(|| {
            Error::Input(format!(
                "expected a number of bytes in {cgroup}/memory.current and found {current:?}"
            ))
        })
    }

    /// Has the kernel split the folios of a range (`split_huge_pages` of debugfs).
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn split(&mut self, process: ProcessId, start: u64, length: u64) -> StageResult {
        let pid = self.pid(process);
        let end = start + length;
        self.set(
            "/sys/kernel/debug/split_huge_pages",
            &format!("{pid},{start:#x},{end:#x}"),
        )
    }

    /// Ends a process, with what it still has.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn ends(&mut self, process: ProcessId) -> StageResult {
        self.op(process, Operation::Exit { status: 0 })?;
        self.processes.retain(|(id, _)| *id != process);
        Ok(())
    }

    /// Returns an area, by one of the operations that map.
    ///
    /// # Errors
    /// As every request to the guest.
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

    /// Returns an operation in a process. Advice about huge pages is left out where the kernel has none.
    ///
    /// # Errors
    /// As every request to the guest.
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

    /// Does several operations in a process, whatever becomes of each; returns what did.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn several(
        &mut self,
        process: ProcessId,
        ops: Vec<Operation>,
    ) -> Result<Vec<Result<Outcome, Failure>>, Error> {
        let asked = ops.len();
        match self.op(process, Operation::Several { ops })? {
            Outcome::Several { answers } if answers.len() == asked => {
                Ok(answers.into_iter().map(Result::from).collect())
            }
            other => Err(unexpected("several", &other)),
        }
    }

    /// Does an operation that may be refused; returns whether it was done.
    ///
    /// # Errors
    /// If the guest is lost.
    pub fn try_op(&mut self, process: ProcessId, op: Operation) -> Result<bool, Error> {
        match self.op(process, op) {
            Ok(_) => Ok(true),
            Err(Error::Guest { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns an address at which this many bytes are free, aligned to the span of a level-2 descriptor or as
    /// requested.
    ///
    /// # Errors
    /// As every request to the guest.
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

    /// Moves the area at `from` by `mremap(2)`, to the address in the answer.
    ///
    /// # Errors
    /// As every request to the guest.
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
