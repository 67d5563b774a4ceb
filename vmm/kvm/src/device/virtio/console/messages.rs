// SPDX-License-Identifier: GPL-2.0-only
//! The console's ports, and the control messages to the guest that are due.

pub(super) const PORTS: u32 = 2;

/// Messages to the guest, in the order in which they are sent. One of each kind suffices: the later of two would
/// include the earlier.
#[derive(Debug, Default)]
pub(super) struct PendingMessages {
    pub add: bool,
    pub name: bool,
    pub open: Option<bool>,
}
