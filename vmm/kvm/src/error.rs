// SPDX-License-Identifier: GPL-2.0-only
//! Everything that can go wrong with a guest on KVM, each with its own sentence.

use std::io;
use std::path::PathBuf;

use machine::MachineError;

use crate::layout::MOST_CPUS;

/// The reason why a guest on KVM did not start, or a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvmError {
    /// A host of another architecture.
    #[error(
        "KVM can run an arm64 guest on an arm64 host only, and this host is {}: use --machine kvm-in-tcg, which emulates such a host, or --machine tcg",
        std::env::consts::ARCH
    )]
    NotArm64,
    /// No `/dev/kvm`.
    #[error("there is no /dev/kvm: expected a kernel with CONFIG_KVM that was started at EL2 (a virtual machine needs nested virtualization); use --machine kvm-in-tcg or tcg on this host")]
    NoDevice,
    /// `/dev/kvm` may not be opened.
    #[error("/dev/kvm may not be opened by this user: it belongs to group {group}; join it (as root: usermod -aG {group} USER, and log in again), or use --machine tcg")]
    Permission {
        /// The group that owns it, by name or number.
        group: String,
    },
    /// `/dev/kvm` cannot be opened for another reason.
    #[error("cannot open /dev/kvm: {0}")]
    Open(#[source] io::Error),
    /// Another KVM API than the one that every kernel since 2.6.22 has.
    #[error("expected KVM API version 12 at /dev/kvm, found {0}: update the host's kernel")]
    ApiVersion(i32),
    /// A function of KVM that the monitor cannot do without.
    #[error(
        "this host's KVM lacks {what} ({name}): update the host's kernel, or use --machine tcg"
    )]
    Capability {
        /// The capability, as `Documentation/virt/kvm/api.rst` names it.
        name: &'static str,
        /// Its purpose.
        what: &'static str,
    },
    /// A number of CPUs that cannot be.
    #[error("a guest with {asked} CPUs makes no sense on KVM: expected 1 to {most} (this machine's most is {MOST_CPUS})")]
    Cpus {
        /// The requested number.
        asked: u32,
        /// The most that this machine and KVM on this host can have.
        most: u32,
    },
    /// More memory than the host's stage 2 can address.
    #[error("a guest with {bytes} bytes of memory needs intermediate physical addresses of {needed} bits, and this host's stage 2 has {limit}: give it less memory")]
    IpaSize {
        /// The guest's memory.
        bytes: u64,
        /// Bits of the highest address.
        needed: u32,
        /// Bits that KVM gives.
        limit: u32,
    },
    /// A load offset that the boot protocol forbids.
    #[error("a kernel cannot be loaded {0:#x} bytes into RAM: expected a multiple of 2 MiB")]
    LoadOffset(u64),
    /// Kernel, initrd and device tree do not all fit.
    #[error("the guest's {what} needs RAM up to {end:#x}, and RAM ends at {ram_end:#x}: give the guest more memory (or a smaller load offset)")]
    TooLittleMemory {
        /// The part that did not fit.
        what: &'static str,
        /// Its end.
        end: u64,
        /// The end of RAM.
        ram_end: u64,
    },
    /// No loader can use the kernel's header.
    #[error("{} cannot be loaded: {why}", path.display())]
    Kernel {
        /// The file.
        path: PathBuf,
        /// The error in its header.
        why: String,
    },
    /// A kernel or initrd that could not be copied into the guest's memory.
    #[error("cannot load the {what} {}: {source}", path.display())]
    Load {
        /// The file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The device tree.
    #[error(transparent)]
    DeviceTree(#[from] crate::fdt::Error),
    /// The guest's memory.
    #[error("cannot make {bytes} bytes of memory for the guest{}: {source}", if *.hugepages { " out of huge pages of 2 MiB (as root: write their number to /proc/sys/vm/nr_hugepages, or boot without huge pages)" } else { "" })]
    Memory {
        /// The number of bytes.
        bytes: u64,
        /// True if huge pages were requested.
        hugepages: bool,
        /// The system's error.
        source: io::Error,
    },
    /// Two devices at one address.
    #[error(transparent)]
    Bus(#[from] crate::device::Overlap),
    /// A system call that is not KVM's.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// `KVM_CREATE_VM`.
    #[error("KVM made no virtual machine with {ipa_bits} bits of address: {source}")]
    CreateVm {
        /// Bits of an intermediate physical address; 0 is KVM's own choice.
        ipa_bits: u32,
        /// KVM's error.
        source: io::Error,
    },
    /// `KVM_SET_USER_MEMORY_REGION`.
    #[error("KVM did not take {bytes} bytes at {base:#x} as the guest's memory{}: {source}", if *.logged { ", with a log of writes" } else { "" })]
    SetMemory {
        /// Guest physical address.
        base: u64,
        /// The number of bytes.
        bytes: u64,
        /// True if writes to it are logged.
        logged: bool,
        /// KVM's error.
        source: io::Error,
    },
    /// `KVM_GET_DIRTY_LOG`.
    #[error("KVM did not tell which pages were written to: {0}")]
    DirtyLog(#[source] io::Error),
    /// `KVM_CREATE_VCPU`.
    #[error("KVM made no CPU {cpu}: {source}")]
    CreateCpu {
        /// Its index.
        cpu: usize,
        /// KVM's error.
        source: io::Error,
    },
    /// `KVM_ARM_PREFERRED_TARGET`.
    #[error("KVM did not say what kind of CPU it has: {0}")]
    PreferredTarget(#[source] io::Error),
    /// `KVM_ARM_VCPU_INIT`.
    #[error("KVM did not initialize CPU {cpu} with PSCI 0.2: {source}")]
    InitCpu {
        /// Its index.
        cpu: usize,
        /// KVM's error.
        source: io::Error,
    },
    /// `KVM_GET_ONE_REG`.
    #[error("KVM did not give {register} of CPU {cpu}: {source}")]
    ReadRegister {
        /// Its name in the Arm ARM.
        register: &'static str,
        /// The CPU.
        cpu: usize,
        /// KVM's error.
        source: io::Error,
    },
    /// `KVM_SET_ONE_REG`.
    #[error("KVM did not take {value:#x} for {register} of CPU {cpu}: {source}")]
    WriteRegister {
        /// Its name in the Arm ARM.
        register: &'static str,
        /// The CPU.
        cpu: usize,
        /// The value that was to be set.
        value: u64,
        /// KVM's error.
        source: io::Error,
    },
    /// `KVM_CREATE_DEVICE`, for an interrupt controller.
    #[error("KVM made neither a GICv3 ({v3}) nor a GICv2 ({v2}): this host has no interrupt controller that a guest could use")]
    NoGic {
        /// KVM's error for the first.
        v3: io::Error,
        /// KVM's error for the second.
        v2: io::Error,
    },
    /// `KVM_SET_DEVICE_ATTR`, on the interrupt controller.
    #[error("KVM did not {what}: {source}")]
    Gic {
        /// The attribute to set.
        what: &'static str,
        /// KVM's error.
        source: io::Error,
    },
    /// `KVM_IRQFD`.
    #[error("KVM did not connect interrupt SPI {spi}: {source}")]
    Irqfd {
        /// The number of the shared peripheral interrupt.
        spi: u32,
        /// KVM's error.
        source: io::Error,
    },
    /// A system call filter that could not be made or installed.
    #[error("the monitor's threads cannot be confined to their system calls: {0}; expected a host kernel with CONFIG_SECCOMP_FILTER (or `Config::seccomp` off, for a guest that is trusted)")]
    Seccomp(String),
    /// Rules for files that the host's kernel does not take.
    #[error("the process with the guest cannot be confined to its files: {0}; expected a host kernel with Landlock that takes one more set of rules (at most 16 at once), or without Landlock")]
    Landlock(String),
    /// CPUs that do not leave the guest.
    #[error("the guest's CPUs did not stand still within {waited:?}: {running} of {cpus} still ran; the host is overloaded, or its KVM hangs")]
    NotStill {
        /// The time waited.
        waited: std::time::Duration,
        /// The number of CPUs that still ran.
        running: usize,
        /// The number of CPUs.
        cpus: usize,
    },
    /// The guest did something that neither KVM nor the monitor can handle.
    #[error("the guest is lost: {0}")]
    Lost(String),
    /// The machine was ended by [`machine::Machine::kill`].
    #[error("the guest was ended by us, and nothing of it is left to read")]
    Killed,
}

impl From<KvmError> for MachineError {
    fn from(error: KvmError) -> Self {
        Self::Kvm(Box::new(error))
    }
}
