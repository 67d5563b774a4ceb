// SPDX-License-Identifier: GPL-2.0-only
//! The requests of `ioctl()` and `fcntl()` that a process with a guest makes. Others are denied: `ioctl()` can type at
//! a terminal (`TIOCSTI`, `TIOCLINUX`) and name a process for signals (`FIOSETOWN`, `SIOCSPGRP`), as `fcntl()` can
//! (`F_SETOWN`, `F_SETSIG`, `F_NOTIFY`, `F_SETLEASE`).

use std::mem::size_of;

use kvm_bindings::{
    kvm_create_device, kvm_device_attr, kvm_dirty_log, kvm_enable_cap, kvm_irqfd, kvm_one_reg,
    kvm_userspace_memory_region, kvm_vcpu_init,
};
use vmm_sys_util::ioctl::{ioctl_expr, _IOC_NONE, _IOC_READ, _IOC_WRITE};

/// `KVMIO` of `linux/kvm.h`.
const KVMIO: u32 = 0xae;

/// Makes the number of a request of KVM's.
const fn kvm(direction: u32, number: u32, size: usize) -> u64 {
    ioctl_expr(direction, KVMIO, number, size as u32)
}

/// `KVM_RUN`.
pub(super) const KVM_RUN: u64 = kvm(_IOC_NONE, 0x80, 0);
/// `KVM_GET_ONE_REG`.
pub(super) const KVM_GET_ONE_REG: u64 = kvm(_IOC_WRITE, 0xab, size_of::<kvm_one_reg>());

/// Requests of `ioctl()`.
pub(super) const IOCTL: [u64; 30] = [
    // The system: KVM_GET_API_VERSION, KVM_CREATE_VM, KVM_CHECK_EXTENSION, KVM_GET_VCPU_MMAP_SIZE.
    kvm(_IOC_NONE, 0x00, 0),
    kvm(_IOC_NONE, 0x01, 0),
    kvm(_IOC_NONE, 0x03, 0),
    kvm(_IOC_NONE, 0x04, 0),
    // A machine: KVM_CREATE_VCPU, KVM_GET_DIRTY_LOG, KVM_SET_USER_MEMORY_REGION, KVM_IRQFD, KVM_ENABLE_CAP,
    // KVM_ARM_PREFERRED_TARGET.
    kvm(_IOC_NONE, 0x41, 0),
    kvm(_IOC_WRITE, 0x42, size_of::<kvm_dirty_log>()),
    kvm(_IOC_WRITE, 0x46, size_of::<kvm_userspace_memory_region>()),
    kvm(_IOC_WRITE, 0x76, size_of::<kvm_irqfd>()),
    kvm(_IOC_WRITE, 0xa3, size_of::<kvm_enable_cap>()),
    kvm(_IOC_READ, 0xaf, size_of::<kvm_vcpu_init>()),
    // A CPU: KVM_SET_ONE_REG, KVM_ARM_VCPU_INIT.
    KVM_RUN,
    KVM_GET_ONE_REG,
    kvm(_IOC_WRITE, 0xac, size_of::<kvm_one_reg>()),
    kvm(_IOC_WRITE, 0xae, size_of::<kvm_vcpu_init>()),
    // A device: KVM_CREATE_DEVICE, KVM_SET_DEVICE_ATTR.
    kvm(_IOC_READ | _IOC_WRITE, 0xe0, size_of::<kvm_create_device>()),
    kvm(_IOC_WRITE, 0xe1, size_of::<kvm_device_attr>()),
    // A terminal: its settings and its size.
    libc::TCGETS,
    libc::TCSETS,
    libc::TCSETSW,
    libc::TCSETSF,
    libc::TCGETS2,
    libc::TCSETS2,
    libc::TCSETSW2,
    libc::TCSETSF2,
    libc::TIOCGWINSZ,
    // A stream: the readable bytes, and those that the other end has not taken.
    libc::FIONREAD,
    libc::TIOCOUTQ,
    // A descriptor.
    libc::FIONBIO,
    libc::FIOCLEX,
    libc::FIONCLEX,
];

/// Commands of `fcntl()` besides `F_SETFL`.
pub(super) const FCNTL: [libc::c_int; 5] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
];

/// Options of `setsockopt()` at `SOL_SOCKET`: for how long is waited. Others load programs into the kernel
/// (`SO_ATTACH_FILTER`).
pub(super) const SETSOCKOPT: [libc::c_int; 2] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];
