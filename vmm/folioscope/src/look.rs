// SPDX-License-Identifier: GPL-2.0-only
//! Looks at a process of a guest with our agent: holds, captures, judges and releases it.

use analysis::Look;
use evidence::{Extent, ReadAgain, Since};
use protocol::ProcessId;
use verdict::Expectation;

use crate::guest::{Guest, Poke};
use crate::Error;

/// Lets the process wait, captures as much of the guest as `extent` requires, judges the copy, and releases it.
///
/// # Errors
/// If the process does not reach the checkpoint cleanly, or the guest is lost.
pub fn look(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
    extent: Extent,
) -> Result<Look, Error> {
    guest.hold(process)?;
    let seen = look_held(guest, process, expectations, extent, &[]);
    released(guest, process, seen)
}

/// Looks as [`look`] does, but reads only tables that were written to since the last look of this kind, if the machine
/// records writes.
///
/// # Errors
/// As [`look`].
pub fn look_again(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
) -> Result<Look, Error> {
    guest.hold(process)?;
    let seen = look_held_again(guest, process, expectations);
    released(guest, process, seen)
}

fn released(
    guest: &mut Guest,
    process: ProcessId,
    seen: Result<Look, Error>,
) -> Result<Look, Error> {
    if !seen.as_ref().is_err_and(Error::lost) {
        guest.release(process)?;
    }
    seen
}

/// Looks at a process that waits already, and continues to wait.
///
/// # Errors
/// As [`look`].
pub fn look_held(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
    extent: Extent,
    pokes: &[Poke],
) -> Result<Look, Error> {
    let others = guest.known();
    let extent = extent.with(expectations);
    let mut since = Since::default();
    Look::settled(|| {
        let rested = guest.rested(&since)?;
        let mut capture = guest.capture_with(process, &others, extent, pokes)?;
        capture.work.rested = rested;
        since = Since::new(&capture.snapshot.cpus, &capture.work);
        Ok(Look::of(capture, expectations)?)
    })
}

/// Looks as [`look_again`] does at a process that waits already, and continues to wait.
///
/// # Errors
/// As [`look`].
pub fn look_held_again(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
) -> Result<Look, Error> {
    // A look may take several captures; the tables that are new since the look before are those that any of them has
    // read.
    let mut all: Option<ReadAgain> = None;
    let others = guest.known();
    let mut since = Since::default();
    Look::settled(|| {
        let rested = guest.rested(&since)?;
        let (mut capture, now) =
            guest.capture_again(process, &others, Extent::default().with(expectations))?;
        capture.work.rested = rested;
        since = Since::new(&capture.snapshot.cpus, &capture.work);
        let sum = match all.take() {
            Some(before) => before.and(now),
            None => now,
        };
        all = Some(sum.clone());
        let mut look = Look::of(capture, expectations)?;
        look.read_again = Some(sum);
        Ok(look)
    })
}
