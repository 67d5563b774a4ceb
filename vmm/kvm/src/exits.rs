// SPDX-License-Identifier: GPL-2.0-only
//! Counts of exits of the guest's CPUs, by reason.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reason why a CPU left the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    MmioRead,
    MmioWrite,
    Unclaimed,
    Doorbell,
    SystemEvent,
    Interrupted,
    Other,
}

/// Exits of all CPUs from KVM_RUN to the monitor, by reason. Events that KVM handles itself (interrupts, stage 2
/// faults, PSCI) are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exits {
    /// Loads from a device.
    pub mmio_reads: u64,
    /// Stores to a device, the doorbell apart.
    pub mmio_writes: u64,
    /// Accesses where nothing is; loads give zeros.
    pub unclaimed: u64,
    /// Stores to the doorbell.
    pub doorbell: u64,
    /// Power-off, reset, crash.
    pub system_events: u64,
    /// Stops at our request.
    pub interrupted: u64,
    /// All other exits.
    pub other: u64,
}

impl Exits {
    /// Returns the sum.
    pub fn total(&self) -> u64 {
        self.rows().iter().map(|(_, count)| count).sum()
    }

    /// Returns each count with its name.
    pub fn rows(&self) -> [(&'static str, u64); 7] {
        [
            ("loads from devices", self.mmio_reads),
            ("stores to devices", self.mmio_writes),
            ("accesses to nothing", self.unclaimed),
            ("rings of the doorbell", self.doorbell),
            ("system events", self.system_events),
            ("stops", self.interrupted),
            ("others", self.other),
        ]
    }
}

/// Writes the counts as `5 loads from devices, 7 stores to devices`, without those that are 0.
impl fmt::Display for Exits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let some: Vec<String> = rows
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        f.write_str(if some.is_empty() { "none" } else { "" })?;
        f.write_str(&some.join(", "))
    }
}

/// The counts while CPUs add to them.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; 7]);

impl Counts {
    pub(crate) fn add(&self, reason: Reason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Exits {
        let count = |reason: Reason| self.0[reason as usize].load(Ordering::Relaxed);
        Exits {
            mmio_reads: count(Reason::MmioRead),
            mmio_writes: count(Reason::MmioWrite),
            unclaimed: count(Reason::Unclaimed),
            doorbell: count(Reason::Doorbell),
            system_events: count(Reason::SystemEvent),
            interrupted: count(Reason::Interrupted),
            other: count(Reason::Other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_count() {
        let counts = Counts::default();
        assert_eq!(counts.read().to_string(), "none");
        counts.add(Reason::Other);
        counts.add(Reason::MmioRead);
        counts.add(Reason::MmioRead);
        assert_eq!(counts.read().to_string(), "2 loads from devices, 1 others");
        assert_eq!(counts.read().total(), 3);
    }
}
