// SPDX-License-Identifier: GPL-2.0-only
//! The most that QEMU takes of some things.

/// The most CPUs that QEMU's `virt` machine takes with a GICv3.
pub const MOST_CPUS: u32 = 512;

/// The most NUMA nodes that QEMU takes.
pub const MOST_NODES: u32 = 128;
