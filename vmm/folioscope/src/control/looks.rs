// SPDX-License-Identifier: GPL-2.0-only
//! The methods `diff`, `changes` and `folio`, which use earlier looks.

use analysis::{
    diff::{diff, Instant},
    AddressInfo,
};
use changes::Diff;
use evidence::{Capture, Subject};
use report::frames::Frames;

use super::parameters::{OfLooks, OfPlace, OfSpace};
use crate::guest::Guest;
use crate::Error;

/// Compares two looks.
pub(super) fn compare(guest: &Guest, of: &OfLooks) -> Result<Diff, Error> {
    let (before, after) = (guest.kept_look(of.before)?, guest.kept_look(of.after)?);
    Ok(diff(instant(before), instant(after), of.pid)?)
}

/// Compares the last two looks at a process, if there are two.
pub(super) fn changes(guest: &Guest, of: &OfSpace) -> Result<Option<Diff>, Error> {
    let mut looks = guest.looks_at(of.pid);
    let (Some(after), Some(before)) = (looks.next(), looks.next()) else {
        return Ok(None);
    };
    Ok(Some(diff(instant(before), instant(after), Some(of.pid))?))
}

/// Returns the page that is mapped at an address, if one is, and its folio.
pub(super) fn folio(guest: &Guest, of: &OfPlace) -> Result<Option<Frames>, Error> {
    let snapshot = &guest.kept_look(of.look)?.snapshot;
    let subject = Subject::find(snapshot, None)?;
    let found = AddressInfo::folio(snapshot, &subject, of.va).transpose();
    found.map_err(|why| Error::Input(format!("the folio at {:#x} is not known: {why}", of.va)))
}

fn instant(capture: &Capture) -> Instant<'_> {
    Instant {
        snapshot: &capture.snapshot,
        companions: &capture.companions,
    }
}
