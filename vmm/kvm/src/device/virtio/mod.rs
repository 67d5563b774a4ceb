// SPDX-License-Identifier: GPL-2.0-only
//! virtio devices, by the specification *Virtual I/O Device (VIRTIO) Version 1.2*; section numbers below
//! are its.
//!
//! ```text
//!   console   what the device does: ports, control messages, bytes
//!   mmio      the registers: features, status, where the queues are
//!   queue     chains of buffers out of a virtqueue, and back as used
//!   written   which guest pages all this has written to
//! ```

mod console;
mod mmio;
mod queue;
mod written;

pub use console::VirtioConsole;
