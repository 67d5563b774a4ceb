// SPDX-License-Identifier: GPL-2.0-only
//! Compares processes at two instants of a guest, as events: a fault, a fold, a copy on write, ...
//!
//! Pure: [`diff`] compares two [`View`]s, each of which is what tables, VMAs and folios said at one instant. Two instants do
//! not show what came in between: a page that was taken away and brought back may look as if it had stayed. What can be told
//! by tables, folios and the kernel's own record of faults is told by its name; where these leave it open, a frame was
//! [replaced](Kind::Replace), and why no more is known is said beside it.

mod bits;
mod compare;
mod event;
mod frames;
mod places;
mod sides;
mod text;
mod view;
mod vmas;
mod why;

pub use compare::diff;
pub use event::{schema, Diff, Event, Kind, Lives, ProcessDiff, State, DIFF_VERSION};
pub use view::{entries, Entry, Frames, Space, View, Who};

#[cfg(test)]
mod tests;
