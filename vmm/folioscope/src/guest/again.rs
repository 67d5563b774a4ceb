// SPDX-License-Identifier: GPL-2.0-only
//! The checkpoint again: only the tables that were written to since the last capture are read.
//!
//! There is one record of writes, and reading it empties it. Any other code that reads it has to call
//! [`Guest::forget_copy`]; so has code that writes to guest memory from outside, which no machine records.

use std::time::Instant;

use evidence::{copy_again, Capture, Extent, ReadAgain};
use machine::MachineError;
use protocol::ProcessId;
use snapshot::LastCopy;

use super::Guest;
use crate::Error;

/// The error for a look that reads both written tables alone and more than tables.
const TABLES_ALONE: &str =
    "a look that reads only what was written to reads no structures of the kernel";

/// State that a capture leaves for the next one.
#[derive(Debug, Default)]
pub(super) struct Again {
    record: Record,
    /// None if the next capture must not start from it.
    last: Option<LastCopy>,
}

/// State of the machine's record of writes.
#[derive(Debug, Default)]
enum Record {
    /// Not requested yet.
    #[default]
    Unknown,
    Kept,
    /// The reason why there is none.
    Missing(String),
}

impl Guest {
    /// Captures as [`Guest::capture_with`] does, but takes pages without a write from the last call's copy. If the
    /// writes are unknown, as on a machine without a record of writes, everything is read.
    ///
    /// The first call starts the record, which costs the guest a fault for each page that it writes to.
    ///
    /// # Errors
    /// As [`Guest::capture`].
    pub fn capture_again(
        &mut self,
        process: ProcessId,
        others: &[ProcessId],
        extent: Extent,
    ) -> Result<(Capture, ReadAgain), Error> {
        self.start_record()?;
        // Comes back if all goes well: the record of writes is gone once it was read.
        let mut last = self.again.last.take();
        let missing = match &self.again.record {
            Record::Missing(why) => Some(why.clone()),
            _ => None,
        };
        let mut read_again = None;
        let capture = self.stop_and_copy(process, others, extent, |paused, seen, _| {
            let start = Instant::now();
            let written = match missing {
                Some(why) => Err(why),
                None => paused
                    .written()?
                    .ok_or_else(|| "the machine's record of writes has ended".into()),
            };
            let record = start.elapsed();
            let (memory, cpus) = (&paused.memory, &paused.cpus);
            let (copy, tables) = copy_again(&mut last, memory, cpus, seen, extent, written)?;
            read_again = Some(ReadAgain {
                tables,
                took: start.elapsed(),
                record,
            });
            Ok((copy, Err(TABLES_ALONE.into())))
        })?;
        self.again.last = last;
        let read_again = read_again.ok_or_else(|| Error::Input("nothing was copied".into()))?;
        Ok((capture, read_again))
    }

    /// Makes the next [`Guest::capture_again`] read everything: guest memory was written to from outside, or other code
    /// has read the record of writes.
    pub fn forget_copy(&mut self) {
        self.again.last = None;
    }

    /// Returns whether [`Guest::capture_again`] has a record of writes to go by; where not, why.
    ///
    /// # Errors
    /// If the machine is lost.
    pub fn records_writes(&mut self) -> Result<Result<(), &str>, Error> {
        self.start_record()?;
        Ok(match &self.again.record {
            Record::Missing(why) => Err(why),
            _ => Ok(()),
        })
    }

    fn start_record(&mut self) -> Result<(), Error> {
        if matches!(self.again.record, Record::Unknown) {
            self.again.record = match self.link.machine.log_writes(true) {
                Ok(()) => Record::Kept,
                Err(error @ MachineError::Unsupported { .. }) => Record::Missing(error.to_string()),
                Err(error) => return Err(error.into()),
            };
        }
        Ok(())
    }
}
