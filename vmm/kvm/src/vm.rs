// SPDX-License-Identifier: GPL-2.0-only
//! KVM's virtual machine: memory, CPUs, interrupt controller.

use std::io;
use std::os::unix::fs::MetadataExt;

use kvm_bindings::{
    kvm_enable_cap, kvm_userspace_memory_region, kvm_vcpu_init, KVM_ARM_VCPU_POWER_OFF,
    KVM_ARM_VCPU_PSCI_0_2, KVM_CAP_ARM_NISV_TO_USER, KVM_MEM_LOG_DIRTY_PAGES,
};
use kvm_ioctls::{Cap, Kvm, KvmRunWrapper, VcpuFd, VmFd};
use snapshot::{Range, RangeSet};

use crate::fdt;
use crate::gic::Gic;
use crate::layout::MOST_CPUS;
use crate::memory::Ram;
use crate::registers::Registers;
use crate::KvmError;

/// The one slot of memory.
const SLOT: u32 = 0;
/// The fewest bits of address that KVM gives a machine.
const LEAST_IPA_BITS: u32 = 32;
/// The capabilities that nothing works without.
const NEEDED: [(Cap, &str, &str); 6] = [
    (
        Cap::UserMemory,
        "KVM_CAP_USER_MEMORY",
        "memory of ours as a guest's",
    ),
    (Cap::OneReg, "KVM_CAP_ONE_REG", "the reading of registers"),
    (
        Cap::ArmPsci02,
        "KVM_CAP_ARM_PSCI_0_2",
        "PSCI 0.2, by which a guest starts CPUs and powers off",
    ),
    (
        Cap::ImmediateExit,
        "KVM_CAP_IMMEDIATE_EXIT",
        "a way to stop a CPU for certain",
    ),
    (Cap::Irqfd, "KVM_CAP_IRQFD", "interrupts by event"),
    (
        Cap::DeviceCtrl,
        "KVM_CAP_DEVICE_CTRL",
        "interrupt controllers as devices",
    ),
];

/// A machine of KVM with its memory.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) fd: VmFd,
    pub(crate) gic: Gic,
    ram: Ram,
}

/// A CPU of KVM, not yet running.
#[derive(Debug)]
pub(crate) struct NewCpu {
    pub(crate) fd: VcpuFd,
    /// A second mapping of its `kvm_run`, for others than its thread.
    pub(crate) run: KvmRunWrapper,
    pub(crate) mpidr: u64,
}

/// Opens `/dev/kvm` and checks that it has what the monitor needs.
pub(crate) fn open() -> Result<Kvm, KvmError> {
    let kvm = Kvm::new().map_err(|error| match error.errno() {
        libc::ENOENT | libc::ENODEV | libc::ENXIO => KvmError::NoDevice,
        libc::EACCES | libc::EPERM => KvmError::Permission { group: group() },
        _ => KvmError::Open(error.into()),
    })?;
    match kvm.get_api_version() {
        12 => (),
        other => return Err(KvmError::ApiVersion(other)),
    }
    for (capability, name, what) in NEEDED {
        if !kvm.check_extension(capability) {
            return Err(KvmError::Capability { name, what });
        }
    }
    Ok(kvm)
}

/// Returns the group that owns `/dev/kvm`, by name where it has one.
fn group() -> String {
    let Ok(metadata) = std::fs::metadata("/dev/kvm") else {
        return "unknown".into();
    };
    let number = metadata.gid().to_string();
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let name = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    name.unwrap_or(number)
}

impl Vm {
    /// Creates a machine of `cpus` CPUs, the first of which is on.
    pub(crate) fn new(
        cpus: u32,
        ram: Ram,
        gic: Option<fdt::Gic>,
    ) -> Result<(Self, Vec<NewCpu>), KvmError> {
        let kvm = open()?;
        // KVM_CAP_NR_VCPUS is how many can run at once; a guest may have more.
        let most = MOST_CPUS.min(kvm.get_max_vcpus() as u32);
        if !(1..=most).contains(&cpus) {
            return Err(KvmError::Cpus { asked: cpus, most });
        }
        let fd = create(&kvm, ram.range())?;
        let nisv = kvm_enable_cap {
            cap: KVM_CAP_ARM_NISV_TO_USER,
            ..Default::default()
        };
        // Without it such an access ends in a less informative error.
        let _ = fd.enable_cap(&nisv);
        set_memory(&fd, &ram, false)?;
        let made: Vec<NewCpu> = (0..cpus as usize)
            .map(|index| new_cpu(&fd, index))
            .collect::<Result<_, _>>()?;
        let gic = Gic::new(&fd, gic)?;
        Ok((Self { fd, gic, ram }, made))
    }

    /// Starts or ends KVM's log of the pages that the CPUs write to.
    pub(crate) fn log_writes(&self, on: bool) -> Result<(), KvmError> {
        set_memory(&self.fd, &self.ram, on)
    }

    /// Returns the pages that the CPUs have written to since the log began, or was last read.
    pub(crate) fn written(&self) -> Result<RangeSet, KvmError> {
        let ram = self.ram.range();
        let log = self.fd.get_dirty_log(SLOT, ram.bytes as usize);
        let log = log.map_err(|error| KvmError::DirtyLog(error.into()))?;
        Ok(RangeSet::from_bitmap(ram.base, page_size(), &log))
    }
}

/// Returns the host's page size, in which its KVM counts.
fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

fn create(kvm: &Kvm, ram: Range) -> Result<VmFd, KvmError> {
    let needed = (64 - (ram.end() - 1).leading_zeros()).max(LEAST_IPA_BITS);
    // Older kernels have no configurable size and give 40 bits.
    let (limit, ipa_bits) = match kvm.get_host_ipa_limit() {
        0 => (40, 0),
        limit => (limit as u32, needed),
    };
    if needed > limit {
        return Err(KvmError::IpaSize {
            bytes: ram.bytes,
            needed,
            limit,
        });
    }
    let created = kvm.create_vm_with_type(u64::from(ipa_bits));
    created.map_err(|error| KvmError::CreateVm {
        ipa_bits,
        source: error.into(),
    })
}

fn set_memory(vm: &VmFd, ram: &Ram, logged: bool) -> Result<(), KvmError> {
    let Range { base, bytes } = ram.range();
    let region = kvm_userspace_memory_region {
        slot: SLOT,
        flags: if logged { KVM_MEM_LOG_DIRTY_PAGES } else { 0 },
        guest_phys_addr: base.0,
        memory_size: bytes,
        userspace_addr: ram.host_address(),
    };
    // SAFETY: the memory is mapped there in this length, and stays so as long as the machine does, which has a clone of
    // it. It is shared memory, and no code makes a reference to it while CPUs run.
    unsafe { vm.set_user_memory_region(region) }.map_err(|error| KvmError::SetMemory {
        base: base.0,
        bytes,
        logged,
        source: error.into(),
    })
}

fn new_cpu(vm: &VmFd, index: usize) -> Result<NewCpu, KvmError> {
    let create = |error: kvm_ioctls::Error| KvmError::CreateCpu {
        cpu: index,
        source: io::Error::from(error),
    };
    let fd = vm.create_vcpu(index as u64).map_err(create)?;
    let run = KvmRunWrapper::mmap_from_fd(&fd, vm.run_size()).map_err(create)?;
    let mut kind = kvm_vcpu_init::default();
    vm.get_preferred_target(&mut kind)
        .map_err(|error| KvmError::PreferredTarget(error.into()))?;
    // No PMU: one that is requested and not set up makes KVM_RUN fail.
    kind.features[0] |= 1 << KVM_ARM_VCPU_PSCI_0_2;
    if index > 0 {
        kind.features[0] |= 1 << KVM_ARM_VCPU_POWER_OFF;
    }
    fd.vcpu_init(&kind).map_err(|error| KvmError::InitCpu {
        cpu: index,
        source: error.into(),
    })?;
    let mpidr = Registers {
        fd: &fd,
        cpu: index,
    }
    .mpidr()?;
    Ok(NewCpu { fd, run, mpidr })
}
