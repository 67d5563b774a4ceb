// SPDX-License-Identifier: GPL-2.0-only
//! A small arm64 virtual machine monitor on KVM.
//!
//! ```text
//!   Kvm (machine)      the guest as a machine::Machine: start, pause, read, resume
//!    |- Ram (memory)   private memory, in huge pages where the host has them
//!    |- boot, fdt      what is in RAM at the start: kernel, initrd, device tree
//!    |- Vm (vm, gic)   KVM's machine: memory slot, CPUs, interrupt controller
//!    |- Vcpu (vcpu)    a thread for each CPU: KVM_RUN, and what KVM leaves to us
//!    |- Parking          how the CPUs are brought to stand still
//!    |- Board            how the devices come to the bus
//!    |- device, io     UARTs and virtio-console, and the thread that waits for their streams
//!    |- seccomp        the system calls of all these threads
//!    `- Reach          the files of their process
//! ```
//!
//! The parts that do not need KVM itself (devices, device tree, memory map, loading) compile on any host and are tested
//! there; the rest exists on arm64 alone. Every host has [`start`], which returns an error elsewhere.

// On other hosts the code for the arm64 part is unused.
#![cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]

pub mod device;
pub mod fdt;
pub mod layout;

mod boot;
mod config;
mod error;
mod exits;
mod memory;
mod reach;

#[cfg(target_arch = "aarch64")]
mod board;
#[cfg(target_arch = "aarch64")]
mod gic;
#[cfg(target_arch = "aarch64")]
mod io;
#[cfg(target_arch = "aarch64")]
mod machine;
#[cfg(target_arch = "aarch64")]
mod parking;
#[cfg(target_arch = "aarch64")]
mod registers;
#[cfg(target_arch = "aarch64")]
mod seccomp;
#[cfg(target_arch = "aarch64")]
mod vcpu;
#[cfg(target_arch = "aarch64")]
mod vm;

pub use config::Config;
pub use error::KvmError;
pub use exits::Exits;
pub use memory::DeviceMemory;
pub use reach::Reach;

#[cfg(target_arch = "aarch64")]
pub use machine::Kvm;

/// Checks whether this host can run a guest on KVM. The error has the reason and what to do.
pub fn check_host() -> Result<(), KvmError> {
    #[cfg(target_arch = "aarch64")]
    return vm::open().map(drop);
    #[cfg(not(target_arch = "aarch64"))]
    Err(KvmError::NotArm64)
}

/// Confines this process irreversibly to the operations that a process with a guest needs. The threads that serve the
/// guest are confined further. The process may use the files of `reach`, threads and Unix sockets, and starts no more
/// programs. It must be called before there are other threads. On a host that is not arm64 it does nothing. Returns
/// whether the host's kernel restricts it to those files. Without Landlock, all of the user's files can be used.
///
/// # Errors
/// If the host's kernel has no seccomp filters, or refuses one.
pub fn confine(reach: &Reach) -> Result<bool, KvmError> {
    #[cfg(target_arch = "aarch64")]
    {
        // The seccomp filter forbids changes of Landlock rules.
        let files = reach.confine()?.is_some();
        seccomp::confine()?;
        Ok(files)
    }
    #[cfg(not(target_arch = "aarch64"))]
    {
        let _ = reach;
        Ok(false)
    }
}

/// Boots the guest; it runs when this returns. On a host that is not arm64 it is always an error.
pub fn start(config: &Config) -> Result<Box<dyn ::machine::Machine>, ::machine::MachineError> {
    check_host()?;
    #[cfg(target_arch = "aarch64")]
    return Ok(Box::new(Kvm::start(config)?));
    #[cfg(not(target_arch = "aarch64"))]
    Err(config.validate().err().unwrap_or(KvmError::NotArm64.into()))
}
