// SPDX-License-Identifier: GPL-2.0-only
//! Runs arm64 programs on any host as if they were local, in an emulated machine that has EL2 and KVM.
//!
//! ```text
//!   client --Unix socket--> Carrier --virtio serial port--> init (guest/carrier) --pipes--> program
//!                            QEMU  <---------9p--------------  the host's files
//! ```
//!
//! A [`Carrier`] is a QEMU with emulated EL2, the pinned kernel and an init of ours. The program has this host's file
//! system, read-only except for the directories in [`CarrierConfig::writable`], and the carrier's own devices,
//! including `/dev/kvm`. [`client::run`] runs one program through a connection.

pub mod client;

mod command;
mod config;
mod emulator;
mod error;
mod start;
mod switch;

pub use config::CarrierConfig;
pub use error::CarrierError;
pub use start::Carrier;
