// SPDX-License-Identifier: GPL-2.0-only
//! All of the guest at one instant, and the kernel's own structures in it.

use std::time::Duration;

use analysis::{
    frames::frames,
    kernel_map::kernel_map,
    tasks::{see, see_again, Seen},
    Wait,
};
use evidence::{
    inside::{shows_kernel, Inside, NotInside, Whole},
    Extent, Facts,
};
use protocol::ProcessId;
use report::kernel_map::KernelMap;
use snapshot::{Cpu, Memory, RangeSet, Recording, Snapshot};
use structures::vmcoreinfo::VmCoreInfo;
use structures::View;

use super::Guest;
use crate::Error;

/// Stops until a CPU shows the kernel.
const LOOKS: Wait = Wait {
    stops: 100,
    between: Duration::from_millis(2),
};

/// The structures found, and the pages in which they were found.
#[derive(Debug)]
pub struct Found {
    pub(super) inside: Inside,
    pages: RangeSet,
}

impl Found {
    /// Searches a copy of memory. Returns `None` if another instant may show more, else the result or the reason why it
    /// is unknown.
    pub(super) fn look(memory: &Memory, cpus: &[Cpu]) -> Option<Result<Self, String>> {
        let recording = Recording::new(memory);
        let found = Inside::look(&recording, cpus)?;
        let pages = recording.into_ranges();
        Some(found.map(|inside| Self { inside, pages }))
    }
}

/// Returns what was found of the kernel, if it was.
pub(super) fn known(inside: &Option<Result<Found, String>>) -> Option<&Inside> {
    let found = inside.as_ref()?.as_ref().ok()?;
    Some(&found.inside)
}

/// Returns the symbols that a kernel has of itself, if they were found.
pub(super) fn own_symbols(
    inside: &Option<Result<Found, String>>,
) -> Option<&linux::symbols::Symbols> {
    known(inside).map(|inside| &inside.kernel.symbols)
}

impl Guest {
    /// Finds the kernel's variables and types in its memory, once.
    ///
    /// # Errors
    /// If the kernel has no such data, or no CPU shows the kernel.
    pub fn find_inside(&mut self) -> Result<&Found, Error> {
        if self.inside.is_none() {
            let machine = &mut self.link.machine;
            let found = LOOKS.until(
                machine,
                |_| true,
                |machine| {
                    let paused = machine.pause()?;
                    let found = Found::look(&paused.memory, &paused.cpus);
                    paused.resume()?;
                    Ok::<_, Error>(found.ok_or(()))
                },
            );
            self.inside = found?.ok();
        }
        let found = self.inside.as_ref();
        let found = found.map(|found| found.as_ref().map_err(Clone::clone));
        let found = found.unwrap_or_else(|| Err(NotInside::NotNow.to_string()));
        found.map_err(|why| Error::Input(format!("the kernel's structures were not read: {why}")))
    }

    /// Returns the kernel's symbols: those of its vmlinux, else its own (kallsyms), once [`Guest::find_inside`] has
    /// found them.
    #[must_use]
    pub fn symbols(&self) -> Option<&linux::symbols::Symbols> {
        let own = own_symbols(&self.inside);
        self.kernel.symbols.as_ref().or(own)
    }

    /// Copies all that [`see`] reads of one instant:
    /// - the tasks
    /// - the process with this pid, which need not be one of ours, with its tables and the pages that it maps
    /// - the pages with these page frame numbers
    /// - the kernel half, if that is requested
    ///
    /// # Errors
    /// If the kernel has no such data, or there is no such process.
    pub fn structures(
        &mut self,
        pid: Option<u32>,
        pfns: &[u64],
        kernel: bool,
    ) -> Result<Snapshot, Error> {
        self.find_inside()?;
        let mut notes = self.notes(Vec::new());
        let Some(Ok(Found { inside, pages })) = &self.inside else {
            return Err(Error::Input(
                "the kernel's structures were not found".into(),
            ));
        };
        let machine = &mut self.link.machine;
        let shown = LOOKS.until(
            machine,
            |_| true,
            |machine| {
                let paused = machine.pause()?;
                let recording = Recording::new(&paused.memory);
                let seen = see(inside, inside.view(&recording), &paused.cpus, pid);
                let space = seen.as_ref().ok().and_then(|seen| seen.space.as_ref());
                space.into_iter().for_each(|space| space.touch(&recording));
                if !pfns.is_empty() {
                    // If that fails it does so again in the copy.
                    let _ = frames(inside, &recording, &paused.cpus, pfns);
                }
                let later = kernel
                    .then(|| kernel_map(inside, &recording, &paused.cpus).1)
                    .flatten()
                    .is_some();
                // The structures by which it is found are read from the copy again.
                let mut all = recording.into_ranges();
                pages.iter().for_each(|range| all.insert(range));
                let copy = evidence::copy(&paused.memory, &all);
                // Without a CPU in the kernel nothing would be found in the copy.
                let shows = shows_kernel(&paused.cpus);
                let cpus = paused.cpus.clone();
                paused.resume()?;
                let enough = match &seen {
                    Ok(seen) => shows && !later && !seen.is_locked(),
                    Err(unseen) => !unseen.later,
                };
                let shown = (seen, cpus, copy);
                Ok::<_, Error>(if enough { Ok(shown) } else { Err(shown) })
            },
        )?;
        let (seen, cpus, copy) = shown.unwrap_or_else(|last| last);
        let seen = seen.map_err(|unseen| Error::Input(unseen.why))?;
        seen.keep(&mut notes);
        Ok(Snapshot {
            cpus,
            memory: copy?,
            notes,
        })
    }

    /// Returns what [`Guest::structures`] has read, with the memory that it was read from.
    ///
    /// # Errors
    /// As [`Guest::structures`].
    pub fn see(&mut self, pid: Option<u32>) -> Result<(Seen, Memory), Error> {
        let copy = self.structures(pid, &[], false)?;
        let found = self.find_inside()?;
        let seen = see_again(&found.inside, &copy, pid);
        let seen = seen.map_err(|unseen| Error::Input(unseen.why))?;
        Ok((seen, copy.memory))
    }

    /// Returns the sizes by which the kernel half is mapped.
    ///
    /// # Errors
    /// As [`Guest::structures`].
    pub fn kernel_map(&mut self) -> Result<KernelMap, Error> {
        let Snapshot { cpus, memory, .. } = self.structures(None, &[], true)?;
        let found = self.find_inside()?;
        Ok(kernel_map(&found.inside, &memory, &cpus).0)
    }

    /// Calls `ask` with the kernel's structures while the guest is stopped.
    ///
    /// # Errors
    /// If they are unknown, or `ask` fails.
    pub fn with_structures<T>(
        &mut self,
        ask: impl FnOnce(&Inside, View<'_, Memory>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.find_inside()?;
        let inside = self.inside.take();
        let paused = self.link.machine.pause();
        let answer = paused.map_err(Error::from).and_then(|paused| {
            let answer = match &inside {
                Some(Ok(Found { inside, .. })) => ask(inside, inside.view(&paused.memory)),
                _ => Err(Error::Input(NotInside::NotNow.to_string())),
            };
            paused.resume()?;
            answer
        });
        self.inside = inside;
        answer
    }

    /// Stops the guest, while `process` waits at its checkpoint if there is one, and lets `write` read any memory of
    /// it. It prefers an instant at which no task changes an address space, if there is one soon. Returns the reason
    /// why the kernel's own description (VMCOREINFO) is unknown, if it is.
    ///
    /// # Errors
    /// As [`Guest::capture`], and as `write`.
    pub fn whole(
        &mut self,
        process: Option<ProcessId>,
        write: impl FnOnce(&Whole<'_>) -> Result<(), Error>,
    ) -> Result<Option<String>, Error> {
        let unknown = self.find_inside().err().map(|error| error.to_string());
        // The closure that reads the stopped guest may need it, and has the guest for itself.
        let inside = self.inside.take();
        let mut why = unknown;
        let known = inside.as_ref().and_then(|found| found.as_ref().ok());
        let known = known.map(|found| &found.inside);
        let (mut write, mut written) = (Some(write), Ok(()));
        for left in (0..LOOKS.stops).rev() {
            let describe = |memory: &Memory, cpus: &[Cpu]| match known {
                Some(inside) if left > 0 && !evidence::is_quiet(inside, memory, cpus) => None,
                Some(inside) => {
                    let read = inside.vmcoreinfo(memory);
                    Some(read.map_err(|error| why = Some(error.to_string())).ok())
                }
                None => Some(None),
            };
            written = self.whole_with(process, describe, |whole| {
                write.take().map_or(Ok(()), |write| write(whole))
            });
            if write.is_none() || written.is_err() {
                break;
            }
            std::thread::sleep(LOOKS.between);
        }
        self.inside = inside;
        written.map(|()| why)
    }

    /// Writes the whole guest. `describe` returns the kernel's own description, if it is known, or nothing if another
    /// instant is to be taken.
    fn whole_with(
        &mut self,
        process: Option<ProcessId>,
        describe: impl FnOnce(&Memory, &[Cpu]) -> Option<Option<VmCoreInfo>>,
        write: impl FnOnce(&Whole<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let none = || Memory::new(Vec::new(), Vec::new()).expect("no regions cannot be wrong");
        if let Some(process) = process {
            let extent = Extent::default();
            let written = self.stop_and_copy(process, &[], extent, |paused, _, notes| {
                if let Some(info) = describe(&paused.memory, &paused.cpus) {
                    write(&Whole {
                        cpus: &paused.cpus,
                        ram: &paused.memory,
                        notes,
                        vmcoreinfo: info.as_ref().map(|info| info.text.as_str()),
                    })?;
                }
                Ok((none(), Err("all of its memory was read".into())))
            });
            return written.map(drop);
        }
        let mut notes = self.notes(self.held.values().cloned().collect());
        // If the search fails, the snapshot has the reason in its notes.
        let _ = self.find_inside();
        let contpte = self.contpte();
        let paused = self.link.machine.pause()?;
        let own = own_symbols(&self.inside);
        let facts = Facts::new(self.kernel.symbols.as_ref().or(own), &paused.cpus);
        let facts = Facts {
            contpte,
            ..facts.with(known(&self.inside))
        };
        facts.keep(&mut notes);
        let info = describe(&paused.memory, &paused.cpus);
        let written = info.map(|info| {
            write(&Whole {
                cpus: &paused.cpus,
                ram: &paused.memory,
                notes: &notes,
                vmcoreinfo: info.as_ref().map(|info| info.text.as_str()),
            })
        });
        paused.resume()?;
        written.unwrap_or(Ok(()))
    }
}
