//! virtio devices, by the specification *Virtual I/O Device (VIRTIO) Version 1.2*; section numbers below
//! are its.

mod console;

pub use console::VirtioConsole;
