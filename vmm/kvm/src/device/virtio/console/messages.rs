//! The console's ports, and the control messages to the guest that are due.

pub(super) const PORTS: u32 = 2;

/// Messages to the guest, in the order in which they go. One of each kind is enough: of two, the later
/// one would say all.
#[derive(Debug, Default)]
pub(super) struct Tell {
    pub add: bool,
    pub name: bool,
    pub open: Option<bool>,
}
