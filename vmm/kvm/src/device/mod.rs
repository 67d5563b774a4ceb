// SPDX-License-Identifier: GPL-2.0-only
//! The devices on a guest's bus, besides memory and the interrupt controller.
//!
//! The guest chooses offsets, lengths, values and the whole content of its memory; any of them may be nonsense.
//! Whatever its input, a device neither panics nor loops nor allocates without bound, and never makes a CPU wait for
//! the host.

mod bus;
mod host;
mod uart;
mod virtio;

pub use bus::{Bus, Overlap};
pub use uart::Uart;
pub use virtio::VirtioConsole;

/// A device whose registers are memory-mapped.
///
/// The guest chooses offsets, lengths and values; any of them may be nonsense and must do no harm.
pub trait MmioDevice: Send {
    /// A load of `data.len()` bytes at `offset` from the device's start.
    fn read(&mut self, offset: u64, data: &mut [u8]);

    /// A store of `data` at `offset` from the device's start.
    fn write(&mut self, offset: u64, data: &[u8]);
}

/// A device's interrupt line: a shared peripheral interrupt (SPI) that triggers on its rising edge.
pub trait Interrupt: Send + Sync {
    /// Raises one edge.
    fn pulse(&self);
}
