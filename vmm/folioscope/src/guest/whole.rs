//! All of the guest at one instant, and the kernel's own structures in it.

use join::inside::{Inside, NotInside, Whole};
use join::{Extent, Facts};
use protocol::ProcessId;
use snapshot::Memory;

use super::Guest;
use crate::Error;

/// How often the guest is stopped to find a CPU that shows the kernel.
const LOOKS: u32 = 100;

impl Guest {
    /// Where the kernel's variables are and what its types look like: found in its memory, once.
    ///
    /// # Errors
    /// Where the kernel has no such data, or no CPU shows the kernel.
    pub fn find_inside(&mut self) -> Result<&Inside, Error> {
        for _ in 0..LOOKS {
            if self.inside.is_some() {
                break;
            }
            let paused = self.link.machine.pause()?;
            let found = Inside::find(&paused.memory, &paused.cpus);
            paused.resume()?;
            self.inside = match found {
                Ok(found) => Some(Ok(found)),
                Err(NotInside::Never(why)) => Some(Err(why.to_string())),
                Err(NotInside::NotNow) => {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    None
                }
            };
        }
        let found = self.inside.as_ref();
        let found = found.map(|found| found.as_ref().map_err(Clone::clone));
        let found = found.unwrap_or_else(|| Err(NotInside::NotNow.to_string()));
        found.map_err(|why| Error::Input(format!("the kernel's structures were not read: {why}")))
    }

    /// Stops the guest, while `process` waits at its checkpoint if there is one, and has `write` read whatever it likes of
    /// it; gives why the kernel's own description (VMCOREINFO) is not known, if so.
    ///
    /// # Errors
    /// As [`Guest::capture`], and as `write`.
    pub fn whole(
        &mut self,
        process: Option<ProcessId>,
        write: impl FnOnce(&Whole<'_>) -> Result<(), Error>,
    ) -> Result<Option<String>, Error> {
        let unknown = self.find_inside().err().map(|error| error.to_string());
        // It may be needed by what reads the guest while it is stopped, which has the guest for itself.
        let inside = self.inside.take();
        let mut why = unknown;
        let vmcoreinfo = |memory: &Memory| {
            let inside = inside.as_ref()?.as_ref().ok()?;
            let read = inside.vmcoreinfo(memory);
            read.map_err(|error| why = Some(error.to_string())).ok()
        };
        let written = self.whole_with(process, vmcoreinfo, write);
        self.inside = inside;
        written.map(|()| why)
    }

    fn whole_with(
        &mut self,
        process: Option<ProcessId>,
        vmcoreinfo: impl FnOnce(&Memory) -> Option<structures::vmcoreinfo::VmCoreInfo>,
        write: impl FnOnce(&Whole<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let none = || Memory::new(Vec::new(), Vec::new()).expect("no regions cannot be wrong");
        if let Some(process) = process {
            let extent = Extent::default();
            let written = self.stop_and_copy(process, &[], extent, |paused, _, notes| {
                let info = vmcoreinfo(&paused.memory);
                write(&Whole {
                    cpus: &paused.cpus,
                    ram: &paused.memory,
                    notes,
                    vmcoreinfo: info.as_ref().map(|info| info.text.as_str()),
                })?;
                Ok(none())
            });
            return written.map(drop);
        }
        let mut notes = self.notes(self.held.values().cloned().collect());
        let paused = self.link.machine.pause()?;
        let facts = Facts {
            contpte: self.contpte,
            ..Facts::new(self.kernel.symbols.as_ref(), &paused.cpus)
        };
        facts.keep(&mut notes);
        let info = vmcoreinfo(&paused.memory);
        let written = write(&Whole {
            cpus: &paused.cpus,
            ram: &paused.memory,
            notes: &notes,
            vmcoreinfo: info.as_ref().map(|info| info.text.as_str()),
        });
        paused.resume()?;
        written
    }
}
