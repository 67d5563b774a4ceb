// SPDX-License-Identifier: GPL-2.0-only
//! The methods `diff`, `changes` and `folio`, which use earlier looks.

use analysis::{
    diff::{diff, Instant},
    AddressInfo,
};
use evidence::{Capture, Subject};

use super::answer::{Done, Empty};
use super::request::{OfLooks, OfPlace, OfSpace};
use crate::guest::Guest;
use crate::Error;

/// Compares two looks.
pub(super) fn compare(guest: &Guest, of: &OfLooks) -> Result<Done, Error> {
    let (before, after) = (guest.kept_look(of.before)?, guest.kept_look(of.after)?);
    let found = diff(instant(before), instant(after), of.pid)?;
    Ok(Done::Diff(Box::new(found)))
}

/// Compares the last two looks at a process.
pub(super) fn changes(guest: &Guest, of: &OfSpace) -> Result<Done, Error> {
    let mut looks = guest.looks_at(of.pid);
    let (Some(after), Some(before)) = (looks.next(), looks.next()) else {
        return Ok(Done::Nothing(Empty {}));
    };
    let found = diff(instant(before), instant(after), Some(of.pid))?;
    Ok(Done::Diff(Box::new(found)))
}

/// Returns the page that is mapped at an address, and its folio.
pub(super) fn folio(guest: &Guest, of: &OfPlace) -> Result<Done, Error> {
    let snapshot = &guest.kept_look(of.look)?.snapshot;
    let subject = Subject::find(snapshot, None)?;
    match AddressInfo::folio(snapshot, &subject, of.va) {
        None => Ok(Done::Nothing(Empty {})),
        Some(found) => {
            let found = found.map_err(|why| {
                Error::Input(format!("the folio at {:#x} is not known: {why}", of.va))
            })?;
            Ok(Done::Frames(Box::new(found)))
        }
    }
}

fn instant(capture: &Capture) -> Instant<'_> {
    Instant {
        snapshot: &capture.snapshot,
        companions: &capture.companions,
    }
}
