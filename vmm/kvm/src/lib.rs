//! A small arm64 virtual machine monitor on KVM.
//!
//! What does not need KVM itself (devices, device tree, memory map) compiles on any host and is tested there; the
//! rest exists on arm64 alone.

pub mod device;
pub mod fdt;
pub mod layout;
