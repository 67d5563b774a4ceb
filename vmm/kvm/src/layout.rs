// SPDX-License-Identifier: GPL-2.0-only
//! The guest's physical address space, and its interrupts.
//!
//! ```text
//!  0x0800_0000  +-----------------------------+
//!               | GIC distributor        64 K |
//!  0x0801_0000  | GICv2 CPU interface     8 K |  where the host has no GICv3
//!  0x080a_0000  | GICv3 redistributors        |  128 K for each CPU
//!  0x0900_0000  | 16550: the console      4 K |  SPI 1
//!  0x0901_0000  | 16550: agent's 2nd way  4 K |  SPI 2
//!  0x0902_0000  | doorbell               64 K |  a whole page of every granule
//!  0x0a00_0000  | virtio-console         512  |  SPI 3
//!               |                             |
//!  0x4000_0000  +-----------------------------+
//!               | RAM                         |
//!               |   kernel, at any 2 MiB      |
//!               |   initrd                    |  both behind what the kernel's header claims,
//!               |   device tree               |  its .bss included
//!               +-----------------------------+
//! ```

/// The GIC's distributor.
pub const GIC_DISTRIBUTOR: u64 = 0x0800_0000;
/// Bytes of a GICv3 distributor.
pub const GIC_V3_DISTRIBUTOR_BYTES: u64 = 0x1_0000;
/// Bytes of a GICv2 distributor.
pub const GIC_V2_DISTRIBUTOR_BYTES: u64 = 0x1000;
/// The CPU interface of a GICv2.
pub const GIC_V2_CPU: u64 = 0x0801_0000;
/// Bytes of it.
pub const GIC_V2_CPU_BYTES: u64 = 0x2000;
/// The redistributors of a GICv3, one behind the other.
pub const GIC_REDISTRIBUTORS: u64 = 0x080a_0000;
/// Bytes of one CPU's.
pub const GIC_REDISTRIBUTOR_BYTES: u64 = 0x2_0000;

/// The UART of the console.
pub const CONSOLE: u64 = 0x0900_0000;
/// The UART that serves the agent where the kernel has no virtio.
pub const AGENT_UART: u64 = 0x0901_0000;
/// Number of bytes of address space of each UART.
pub const UART_BYTES: u64 = 0x1000;
/// The doorbell.
pub const DOORBELL: u64 = 0x0902_0000;
/// Size of the doorbell: the largest page, so that it can be mapped alone under every granule.
pub const DOORBELL_BYTES: u64 = 0x1_0000;
/// The virtio-console device that has the agent's port.
pub const VIRTIO_CONSOLE: u64 = 0x0a00_0000;
/// Bytes of a virtio-mmio device.
pub const VIRTIO_BYTES: u64 = 0x200;

/// The start of RAM.
pub const RAM: u64 = 0x4000_0000;

/// The console's interrupt, a shared peripheral one.
pub const CONSOLE_SPI: u32 = 1;
/// The SPI of the agent's UART.
pub const AGENT_UART_SPI: u32 = 2;
/// The SPI of the virtio-console device.
pub const VIRTIO_CONSOLE_SPI: u32 = 3;

/// The most CPUs of a guest.
pub const MOST_CPUS: u32 = 8;
