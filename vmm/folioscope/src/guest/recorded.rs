// SPDX-License-Identifier: GPL-2.0-only
//! A guest that was booted with the recorder's plugin.

use std::collections::BTreeMap;
use std::path::Path;

use recorder::{Judge, PageLayout};
use untrusted::Filter;
use verdict::KernelVerdict;

use super::Guest;
use crate::options::GuestOptions;
use crate::recorded::{tell, Calls, End, KernelNames, Live, Names, Sequences, LAST};
use crate::Error;

impl Guest {
    /// Returns what is known of names at this instant.
    pub fn names_known(&mut self) -> KernelNames {
        let tasks = self.see(None).map(|(seen, _)| seen.tasks);
        let capture = match self.kernel().symbols {
            Some(_) => self.capture_all().ok(),
            None => None,
        };
        let symbols = self.kernel().symbols.as_ref();
        let slide = capture
            .zip(symbols)
            .and_then(|(capture, symbols)| evidence::slide(symbols, &capture.snapshot.cpus));
        KernelNames::new(self.started(), tasks.unwrap_or_default(), slide)
    }

    /// Boots as [`Guest::boot`] does, with the recorder's plugin; a copy of the trace goes to `kept`.
    ///
    /// # Errors
    /// The errors of [`Guest::boot`], and an error if it cannot be recorded. The verdict on a guest that did not come
    /// up goes to standard error.
    pub fn boot_recorded(
        options: &mut GuestOptions,
        plugin: &Path,
        kept: Option<&Path>,
    ) -> Result<Self, Error> {
        options.only_tcg()?;
        let live = Live::begin(plugin, kept)?;
        options.recording = Some(live.recording());
        let booted = Self::boot(options);
        let live = live.booted();
        match booted {
            Ok(guest) => {
                let mut guest = Self {
                    live: Some(live),
                    ..guest
                };
                guest.send_page_layout()?;
                Ok(guest)
            }
            Err(error) => {
                // QEMU has ended, and with it the trace.
                let (judge, end) = live.join();
                if end.has_begun() {
                    let _ = tell(
                        &mut Filter::new(std::io::stderr(), false),
                        &judge,
                        &end,
                        &Names::default(),
                    );
                }
                Err(error)
            }
        }
    }

    /// Tells the plugin the kernel's layout of pages, if it is known, so that findings name folios.
    fn send_page_layout(&mut self) -> Result<(), Error> {
        let Some(mut live) = self.live.take() else {
            return Ok(());
        };
        let inside = self.find_inside().ok().map(|found| &found.inside);
        let layout = inside.and_then(|inside| Some(&inside.layouts.as_ref().ok()?.0));
        let told = layout.map_or(Ok(()), |layout| {
            let fields = layout.folio_fields();
            live.send_page_layout(&PageLayout {
                vmemmap: layout.vmemmap,
                start: layout.start,
                end: layout.end,
                size: layout.size,
                flags: fields.flags,
                head: fields.head,
                compound_head: fields.compound_head,
                flags_1: fields.flags_1,
                mapping: fields.mapping,
                index: fields.index,
            })
        });
        self.live = Some(live);
        told
    }

    /// Ends the guest, and returns the judge of its sequences, if it was booted with the recorder.
    pub fn end_recorded(&mut self) -> Option<(KernelNames, Judge, End)> {
        let live = self.live.take()?;
        let known = self.names_known();
        self.link.machine.quit(LAST);
        let (judge, end) = live.join();
        Some((known, judge, end))
    }

    fn recorded(&mut self) -> Result<Live, Error> {
        self.live.take().ok_or_else(|| {
            Error::Input(
                "this guest was booted without the recorder's plugin, which has to be there from the first instruction on; boot it with --record".into(),
            )
        })
    }

    /// Begins to count anew the operations on these VAs, first and last.
    ///
    /// # Errors
    /// As [`Guest::begin_sequences`].
    pub fn count_within(&mut self, vas: [u64; 2]) -> Result<(), Error> {
        let mut live = self.recorded()?;
        let begun = live.count_within(vas);
        self.live = Some(live);
        begun
    }

    /// Returns what was done since under each function of the kernel, by the names of `known`.
    ///
    /// # Errors
    /// As [`Guest::begin_sequences`].
    pub fn counted(&mut self, known: &KernelNames) -> Result<BTreeMap<String, Calls>, Error> {
        let mut live = self.recorded()?;
        let counted = live.counted(&known.names(self.symbols()));
        self.live = Some(live);
        counted
    }

    /// Begins a new record of findings, TLBIs and counts.
    ///
    /// # Errors
    /// If it is not recorded, or the trace does not reach this point.
    pub fn begin_sequences(&mut self) -> Result<(), Error> {
        let mut live = self.recorded()?;
        let begun = live.anew();
        self.live = Some(live);
        begun
    }

    /// Returns what was found of the guest's sequences since the last call, with the VAs of all findings; nothing
    /// of a guest that is not recorded.
    ///
    /// # Errors
    /// If the trace does not reach this point.
    pub fn sequences_found(
        &mut self,
        known: &mut KernelNames,
    ) -> Result<(KernelVerdict, Vec<u64>), Error> {
        let Some(mut live) = self.live.take() else {
            return Ok((KernelVerdict::default(), Vec::new()));
        };
        known.add(self.started());
        let found = live.found(&known.names(self.symbols()));
        self.live = Some(live);
        found
    }

    /// Returns the events since then.
    ///
    /// # Errors
    /// As [`Guest::begin_sequences`].
    pub fn end_sequences(&mut self) -> Result<Sequences, Error> {
        let mut live = self.recorded()?;
        // First of all, as it sets the place up to which is judged.
        let known = self.names_known();
        let seen = live.since(&known.names(self.symbols()));
        self.live = Some(live);
        seen
    }
}
