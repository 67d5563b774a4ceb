//! A process of a guest with our agent: held, captured, judged, let go on.

use join::{Extent, Look, ReadAgain, Since};
use protocol::ProcessId;
use verdict::Expectation;

use crate::guest::{Guest, Poke};
use crate::Error;

/// Lets the process wait, captures as much of the guest as `extent` says, judges the copy, lets it go on.
///
/// # Errors
/// Where the state cannot be had cleanly, or the guest is lost.
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

/// As [`look`], reading only tables that were written to since the last look of this kind, where the machine
/// can tell which those are.
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

/// The same for a process that waits already, which goes on waiting.
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
    let mut since = Since::default();
    Look::settled(|| {
        let rested = guest.rested(&since)?;
        let mut capture = guest.capture_with(process, &others, extent, pokes)?;
        capture.work.rested = rested;
        since = Since::new(&capture.snapshot.cpus, &capture.work);
        Ok(Look::of(capture, expectations)?)
    })
}

/// [`look_again`] for a process that waits already, which goes on waiting.
///
/// # Errors
/// As [`look`].
pub fn look_held_again(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
) -> Result<Look, Error> {
    // A look may take several captures; what the look before did not know is what any of them has read.
    let mut all: Option<ReadAgain> = None;
    let others = guest.known();
    let mut since = Since::default();
    Look::settled(|| {
        let rested = guest.rested(&since)?;
        let (mut capture, now) = guest.capture_again(process, &others, Extent::default())?;
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
