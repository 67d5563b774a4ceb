// SPDX-License-Identifier: GPL-2.0-only
//! A copy that starts from the last one: only tables that were written to since are read.

use std::time::Duration;

use snapshot::{Cpu, LastCopy, Memory, RangeSet, Wanted};
use stage1::{Granule, Half, Regime};

use crate::cpus::kernel_half;
use crate::{pages, CaptureRequest, Error, Extent};

/// How much of the processes' tables a capture has read.
#[derive(Clone, Debug)]
pub struct ReadAgain {
    /// Tables that are new or were written to, and tables there are; where it was all of them, why.
    pub tables: Result<snapshot::TablesRead, String>,
    /// Part of the stop that the record of writes, the tables and the copy took.
    pub took: Duration,
    /// Part of that which the record of writes took.
    pub record: Duration,
}

impl ReadAgain {
    /// Returns the counts of a capture that could not start from another.
    #[must_use]
    pub fn none(why: &str) -> Self {
        Self {
            tables: Err(why.into()),
            took: Duration::ZERO,
            record: Duration::ZERO,
        }
    }

    /// Adds a later capture. Tables that were read in both count twice.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        let tables = match (self.tables, next.tables) {
            (Err(why), _) | (_, Err(why)) => Err(why),
            (Ok(one), Ok(other)) => Ok(snapshot::TablesRead {
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

type Copied = (Memory, Result<snapshot::TablesRead, String>);

/// Copies what was `written` to since `last`, and everything where that cannot be told; the copy is the next `last`.
///
/// # Errors
/// Where pages do not lie in the memory.
pub fn copy_again(
    last: &mut Option<LastCopy>,
    memory: &Memory,
    cpus: &[Cpu],
    seen: &CaptureRequest<'_>,
    extent: Extent,
    written: Result<RangeSet, String>,
) -> Result<Copied, Error> {
    let written = match written {
        Ok(written) => written,
        Err(why) => {
            *last = None;
            let (copy, _) = copy_from(&mut LastCopy::default(), memory, cpus, seen, extent, None)?;
            return Ok((copy, Err(why)));
        }
    };
    let why = match last {
        Some(_) => None,
        None => Some("no capture came before from which this one could start".to_owned()),
    };
    let since = why.is_none().then_some(&written);
    let (copy, tables) = copy_from(
        last.get_or_insert_default(),
        memory,
        cpus,
        seen,
        extent,
        since,
    )?;
    Ok((copy, why.map_or(Ok(tables), Err)))
}

fn copy_from(
    last: &mut LastCopy,
    memory: &Memory,
    cpus: &[Cpu],
    seen: &CaptureRequest<'_>,
    extent: Extent,
    written: Option<&RangeSet>,
) -> Result<(Memory, snapshot::TablesRead), Error> {
    let lower = |cpu: &Cpu| Regime::new(&cpu.system, Half::Lower).ok();
    let companions = seen.companions.iter().map(|companion| &companion.cpu);
    let regimes: Vec<Regime> = std::iter::once(seen.root)
        .chain(companions)
        .filter_map(lower)
        .collect();
    let kernel = kernel_half(cpus);
    let granules = regimes.iter().chain(&kernel).map(|regime| regime.granule);
    let unit = granules.map(Granule::bytes).max().unwrap_or(snapshot::PAGE);
    // The kernel's part is small, and read anew as a whole: what is to be copied depends on words all over it.
    let others = pages(memory, cpus, None, seen.facts, extent);
    let wanted = Wanted {
        regimes: &regimes,
        others: &others,
        unit,
    };
    last.copy_again(memory, &wanted, written)
        .map_err(|error| Error::Input(error.to_string()))
}
