// SPDX-License-Identifier: GPL-2.0-only
//! A look at a process in which an error is made.

use analysis::Look;
use evidence::{Extent, Subject};
use protocol::ProcessId;
use stage1::{lookup, Lookup, PhysicalAddress, VirtualAddress};
use verdict::Expectation;

use super::spoil::Spoil;
use super::Stage;
use crate::guest::Poke;
use crate::look::look_held;
use crate::Error;

impl Stage<'_> {
    /// Looks at a process in which an error is made.
    pub(super) fn spoiled(
        &mut self,
        process: ProcessId,
        expectations: &[Expectation],
        spoil: &Spoil,
    ) -> Result<Look, Error> {
        let area = self.areas(process).get(spoil.area).copied();
        let area = area.ok_or_else(|| {
            Error::Input(format!("the process has no area {} to spoil", spoil.area))
        })?;
        let va = area.address + spoil.page * self.page;
        self.guest.hold(process)?;
        let seen = self.spoiled_held(process, expectations, spoil, va);
        if !seen.as_ref().is_err_and(Error::lost) {
            self.guest.release(process)?;
        }
        seen
    }

    fn spoiled_held(
        &mut self,
        process: ProcessId,
        expectations: &[Expectation],
        spoil: &Spoil,
        va: u64,
    ) -> Result<Look, Error> {
        let capture = self
            .guest
            .capture_with(process, &[], Extent::default(), &[])?;
        let subject = Subject::find(&capture.snapshot, None)?;
        let found = lookup(
            &capture.snapshot.memory,
            &subject.regime,
            VirtualAddress(va),
        );
        let (entry, output) = match found {
            Lookup::Mapped { entry, pa, .. } => (entry, Some(pa)),
            Lookup::NotMapped { entry } => (entry, None),
            other => {
                return Err(Error::Input(format!(
                    "VA 0x{va:x} cannot be spoiled: {other:?}"
                )))
            }
        };
        let mut pokes = Vec::new();
        if let Some(bit) = spoil.bit {
            pokes.push(Poke {
                address: PhysicalAddress(entry.table.0 + entry.index as u64 * 8),
                word: entry.descriptor.word ^ 1 << bit,
            });
        }
        let look = look_held(self.guest, process, expectations, Extent::default(), &pokes)?;
        if spoil.memory {
            let output = output.ok_or_else(|| {
                Error::Input(format!(
                    "VA 0x{va:x} is not mapped, so it has no memory to spoil"
                ))
            })?;
            self.guest.forget_copy();
            let mut paused = self.guest.machine().pause()?;
            paused.write(output, &0xdead_beef_u64.to_le_bytes())?;
            paused.resume()?;
        }
        Ok(look)
    }
}
