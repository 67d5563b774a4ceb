//! The checkpoint again: only the tables that were written to since the last capture are read.
//!
//! The record of writes is one, and reading it empties it. So whoever reads it, other than here, has to
//! call [`Guest::forget_copy`]; and so has whoever writes to guest memory from outside, which no machine records.

use std::time::{Duration, Instant};

use machine::{MachineError, Paused};
use protocol::ProcessId;
use snapshot::{Cpu, LastCopy, Memory, RangeSet, Wanted};
use stage1::{Granule, Half, Regime};

use super::checkpoint::Seen;
use super::Guest;
use crate::capture::{self, Capture, Extent};
use crate::Error;

/// What a capture leaves for the next one.
#[derive(Debug, Default)]
pub(super) struct Again {
    record: Record,
    /// None where the next capture must not start from it.
    last: Option<LastCopy>,
}

/// Whether the machine keeps a record of writes.
#[derive(Debug, Default)]
enum Record {
    /// It was not asked.
    #[default]
    Unknown,
    Kept,
    /// Why there is none.
    Missing(String),
}

/// How much of the processes' tables a capture has read.
#[derive(Clone, Debug)]
pub struct Reread {
    /// Tables that are new or were written to, and tables there are; where it was all of them, why.
    pub tables: Result<snapshot::Reread, String>,
    /// What of the stop went into the record of writes, the tables and the copy.
    pub took: Duration,
    /// What of that went into the record of writes.
    pub record: Duration,
}

impl Reread {
    /// Of a capture that could not start from another.
    #[must_use]
    pub fn none(why: &str) -> Self {
        Self {
            tables: Err(why.into()),
            took: Duration::ZERO,
            record: Duration::ZERO,
        }
    }

    /// Of one capture and then another: tables that were read in both count twice.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        let tables = match (self.tables, next.tables) {
            (Err(why), _) | (_, Err(why)) => Err(why),
            (Ok(one), Ok(other)) => Ok(snapshot::Reread {
                tables: one.tables + other.tables,
                of: other.of,
            }),
        };
        Self {
            tables,
            took: self.took + next.took,
            record: self.record + next.record,
        }
    }
}

impl Guest {
    /// As [`Guest::capture_with`], but what was copied by the last call of this and was not written to since is taken
    /// from there. Where that cannot be known, as on a machine without a record of writes, everything is read.
    ///
    /// The first call starts the record, which costs the guest a fault for each page that it writes to.
    ///
    /// # Errors
    /// As [`Guest::capture`].
    pub fn recapture(
        &mut self,
        process: ProcessId,
        others: &[ProcessId],
        extent: Extent,
    ) -> Result<(Capture, Reread), Error> {
        self.start_record()?;
        // Comes back if all goes well: the record of writes is gone once it was read.
        let mut last = self.again.last.take();
        let missing = match &self.again.record {
            Record::Missing(why) => Some(why.clone()),
            _ => None,
        };
        let mut reread = None;
        let capture = self.stop_and_copy(process, others, |paused, seen| {
            let start = Instant::now();
            let written = match missing {
                Some(why) => Err(why),
                None => paused
                    .written()?
                    .ok_or_else(|| "the machine's record of writes has ended".into()),
            };
            let record = start.elapsed();
            let (copy, tables) = recopy(&mut last, paused, seen, extent, written)?;
            reread = Some(Reread {
                tables,
                took: start.elapsed(),
                record,
            });
            Ok(copy)
        })?;
        self.again.last = last;
        let reread = reread.ok_or_else(|| Error::Input("nothing was copied".into()))?;
        Ok((capture, reread))
    }

    /// Has the next [`Guest::recapture`] read everything: guest memory was written to from outside, or
    /// somebody else has read the record of writes.
    pub fn forget_copy(&mut self) {
        self.again.last = None;
    }

    /// Whether [`Guest::recapture`] has a record of writes to go by; where not, why.
    ///
    /// # Errors
    /// Where the machine is lost.
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

type Copied = (Memory, Result<snapshot::Reread, String>);

/// Copies what was `written` to since `last`, and everything where that cannot be told; the copy is the next `last`.
fn recopy(
    last: &mut Option<LastCopy>,
    paused: &Paused<'_>,
    seen: &Seen<'_>,
    extent: Extent,
    written: Result<RangeSet, String>,
) -> Result<Copied, Error> {
    let written = match written {
        Ok(written) => written,
        Err(why) => {
            *last = None;
            let (copy, _) = renew(&mut LastCopy::default(), paused, seen, extent, None)?;
            return Ok((copy, Err(why)));
        }
    };
    let why = match last {
        Some(_) => None,
        None => Some("no capture came before from which this one could start".to_owned()),
    };
    let since = why.is_none().then_some(&written);
    let (copy, tables) = renew(last.get_or_insert_default(), paused, seen, extent, since)?;
    Ok((copy, why.map_or(Ok(tables), Err)))
}

fn renew(
    last: &mut LastCopy,
    paused: &Paused<'_>,
    seen: &Seen<'_>,
    extent: Extent,
    written: Option<&RangeSet>,
) -> Result<(Memory, snapshot::Reread), Error> {
    let lower = |cpu: &Cpu| Regime::new(&cpu.system, Half::Lower).ok();
    let companions = seen.companions.iter().map(|companion| &companion.cpu);
    let regimes: Vec<Regime> = std::iter::once(seen.root)
        .chain(companions)
        .filter_map(lower)
        .collect();
    let kernel = capture::kernel_half(&paused.cpus);
    let granules = regimes.iter().chain(&kernel).map(|regime| regime.granule);
    let unit = granules.map(Granule::bytes).max().unwrap_or(snapshot::PAGE);
    // The kernel's part is small, and read anew as a whole: what is to be copied depends on words all over it.
    let others = capture::pages(&paused.memory, &paused.cpus, None, seen.facts, extent);
    let wanted = Wanted {
        regimes: &regimes,
        others: &others,
        unit,
    };
    last.renew(&paused.memory, &wanted, written)
        .map_err(|error| Error::Input(error.to_string()))
}
