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
//! What does not need KVM itself (devices, device tree, memory map, loading) compiles on any host and is tested
//! there; the rest exists on arm64 alone. On every host there is [`start`], which says so elsewhere.

// On other hosts nobody uses what only the arm64 part does.
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

/// Whether this host can run a guest on KVM; where not, why not and what to do.
pub fn check_host() -> Result<(), KvmError> {
    #[cfg(target_arch = "aarch64")]
    return vm::open().map(drop);
    #[cfg(not(target_arch = "aarch64"))]
    Err(KvmError::NotArm64)
}

/// Confines this process for good to what one with a guest has to do: its threads besides those that serve the guest, which are
/// confined further. It may use the files of `reach`, threads and Unix sockets, and starts no program any more. To be called
/// before there are other threads; on a host that is not arm64 it does nothing. Returns whether the host's kernel holds it to
/// those files; where it has no Landlock, or has it turned off, all of the user's can be used.
///
/// # Errors
/// Where the host's kernel has no seccomp filters, or refuses one.
pub fn confine(reach: &Reach) -> Result<bool, KvmError> {
    #[cfg(target_arch = "aarch64")]
    {
        // A filter allows no change of what Landlock does.
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
