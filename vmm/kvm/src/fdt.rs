// SPDX-License-Identifier: GPL-2.0-only
//! The device tree that the guest's kernel is started with.
//!
//! One function writes one node; each names the binding, a file under Documentation/devicetree/bindings in
//! Linux, or the chapter of the Devicetree Specification 0.4.

use std::ops::Range;

use vm_fdt::FdtWriter;

use crate::layout;

/// The properties that differ from guest to guest; the rest is the [layout].
#[derive(Clone, Debug)]
pub struct Description<'a> {
    /// Bytes of RAM, from [`RAM`](layout::RAM) on.
    pub ram_bytes: u64,
    /// MPIDR_EL1 of each CPU.
    pub mpidrs: &'a [u64],
    /// The kind of interrupt controller.
    pub gic: Gic,
    /// The kernel's command line.
    pub command_line: &'a str,
    /// The initial ramdisk, if there is one: guest physical addresses.
    pub initrd: Option<Range<u64>>,
    /// Random bytes for the kernel's random number generator, if it is to be seeded.
    pub rng_seed: Option<&'a [u8]>,
    /// A random number for KASLR, if the kernel is to relocate itself.
    pub kaslr_seed: Option<u64>,
}

/// The kinds of interrupt controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gic {
    /// GICv2.
    V2,
    /// GICv3, without an ITS.
    V3,
}

/// The reason why there is no device tree.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The number of CPUs is none that the layout has room for.
    #[error("a guest has 1 to {most} CPUs, not {0}", most = layout::MOST_CPUS)]
    Cpus(usize),
    /// The initial ramdisk is not in RAM.
    #[error("the initial ramdisk at {:#x}..{:#x} is not in RAM", .0.start, .0.end)]
    Initrd(Range<u64>),
    /// The command line cannot be a device tree's string.
    #[error("the kernel's command line has a zero byte in it")]
    CommandLine,
    /// The writer refused something.
    #[error("the device tree cannot be written: {0}")]
    Write(vm_fdt::Error),
}

impl From<vm_fdt::Error> for Error {
    fn from(error: vm_fdt::Error) -> Self {
        Self::Write(error)
    }
}

/// The phandle by which all nodes name their interrupt controller.
const GIC_PHANDLE: u32 = 1;

/// Kinds of interrupts (interrupt-controller/arm,gic.yaml).
const SPI: u32 = 0;
const PPI: u32 = 1;
/// An edge-triggered interrupt. A device pulses its interrupt, so it is the rising edge; the timer's interrupt is
/// level-triggered.
const EDGE_RISING: u32 = 1;
const LEVEL_HIGH: u32 = 4;

/// The architected timer's interrupts in their binding's order: secure and non-secure physical, virtual, hypervisor.
/// KVM has them where the Base System Architecture recommends.
const TIMER_PPIS: [u32; 4] = [13, 14, 11, 10];

/// The input clock of the UARTs in Hz, from which Linux computes a divisor that has no effect. It is the usual 16 times
/// 115,200.
const UART_CLOCK: u32 = 1_843_200;

/// Affinity fields of MPIDR_EL1 (arm/cpus.yaml).
const MPIDR_AFFINITY: u64 = 0xff_00ff_ffff;

type Written = Result<(), vm_fdt::Error>;

/// Writes the device tree, as a flattened blob.
pub fn build(description: &Description) -> Result<Vec<u8>, Error> {
    check(description)?;
    let mut fdt = FdtWriter::new()?;
    let root = fdt.begin_node("")?;
    // Chapter 3.2. This is the only board known to Linux that has no code of its own.
    fdt.property_string("compatible", "linux,dummy-virt")?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_u32("interrupt-parent", GIC_PHANDLE)?;
    aliases(&mut fdt)?;
    chosen(&mut fdt, description)?;
    memory(&mut fdt, description.ram_bytes)?;
    cpus(&mut fdt, description.mpidrs)?;
    psci(&mut fdt)?;
    gic(&mut fdt, description)?;
    timer(&mut fdt, description)?;
    serial(&mut fdt, layout::CONSOLE, layout::CONSOLE_SPI)?;
    serial(&mut fdt, layout::AGENT_UART, layout::AGENT_UART_SPI)?;
    virtio(&mut fdt, layout::VIRTIO_CONSOLE, layout::VIRTIO_CONSOLE_SPI)?;
    doorbell(&mut fdt)?;
    fdt.end_node(root)?;
    Ok(fdt.finish()?)
}

fn check(description: &Description) -> Result<(), Error> {
    let cpus = description.mpidrs.len();
    if cpus == 0 || cpus > layout::MOST_CPUS as usize {
        return Err(Error::Cpus(cpus));
    }
    if description.command_line.contains('\0') {
        return Err(Error::CommandLine);
    }
    let ram = layout::RAM..layout::RAM.saturating_add(description.ram_bytes);
    match &description.initrd {
        Some(initrd)
            if initrd.start >= initrd.end || initrd.start < ram.start || initrd.end > ram.end =>
        {
            Err(Error::Initrd(initrd.clone()))
        }
        _ => Ok(()),
    }
}

/// Writes the aliases (chapter 3.3): ttyS0 and ttyS1.
fn aliases(fdt: &mut FdtWriter) -> Written {
    let node = fdt.begin_node("aliases")?;
    fdt.property_string("serial0", &format!("/{}", serial_name(layout::CONSOLE)))?;
    fdt.property_string("serial1", &format!("/{}", serial_name(layout::AGENT_UART)))?;
    fdt.end_node(node)
}

/// Writes `/chosen` (chapter 3.6, and Documentation/arch/arm64/booting.rst).
fn chosen(fdt: &mut FdtWriter, description: &Description) -> Written {
    let node = fdt.begin_node("chosen")?;
    fdt.property_string("bootargs", description.command_line)?;
    fdt.property_string("stdout-path", &format!("/{}", serial_name(layout::CONSOLE)))?;
    if let Some(initrd) = &description.initrd {
        fdt.property_u64("linux,initrd-start", initrd.start)?;
        fdt.property_u64("linux,initrd-end", initrd.end)?;
    }
    if let Some(seed) = description.rng_seed {
        fdt.property("rng-seed", seed)?;
    }
    if let Some(seed) = description.kaslr_seed {
        fdt.property_u64("kaslr-seed", seed)?;
    }
    fdt.end_node(node)
}

/// Writes `/memory` (chapter 3.4).
fn memory(fdt: &mut FdtWriter, bytes: u64) -> Written {
    let node = fdt.begin_node(&format!("memory@{:x}", layout::RAM))?;
    fdt.property_string("device_type", "memory")?;
    fdt.property_array_u64("reg", &[layout::RAM, bytes])?;
    fdt.end_node(node)
}

/// Writes `/cpus` (arm/cpus.yaml).
fn cpus(fdt: &mut FdtWriter, mpidrs: &[u64]) -> Written {
    let node = fdt.begin_node("cpus")?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 0)?;
    for mpidr in mpidrs {
        let affinity = mpidr & MPIDR_AFFINITY;
        let cpu = fdt.begin_node(&format!("cpu@{affinity:x}"))?;
        fdt.property_string("device_type", "cpu")?;
        fdt.property_string("compatible", "arm,armv8")?;
        fdt.property_u64("reg", affinity)?;
        fdt.property_string("enable-method", "psci")?;
        fdt.end_node(cpu)?;
    }
    fdt.end_node(node)
}

/// Writes `/psci` (arm/psci.yaml): KVM answers the calls, which come as HVC.
fn psci(fdt: &mut FdtWriter) -> Written {
    let node = fdt.begin_node("psci")?;
    let versions = ["arm,psci-1.0", "arm,psci-0.2"].map(str::to_owned);
    fdt.property_string_list("compatible", versions.to_vec())?;
    fdt.property_string("method", "hvc")?;
    fdt.end_node(node)
}

/// Writes the interrupt controller (interrupt-controller/arm,gic.yaml and arm,gic-v3.yaml).
fn gic(fdt: &mut FdtWriter, description: &Description) -> Written {
    let node = fdt.begin_node(&format!(
        "interrupt-controller@{:x}",
        layout::GIC_DISTRIBUTOR
    ))?;
    let (compatible, reg) = match description.gic {
        Gic::V2 => (
            "arm,cortex-a15-gic",
            [
                layout::GIC_DISTRIBUTOR,
                layout::GIC_V2_DISTRIBUTOR_BYTES,
                layout::GIC_V2_CPU,
                layout::GIC_V2_CPU_BYTES,
            ],
        ),
        Gic::V3 => (
            "arm,gic-v3",
            [
                layout::GIC_DISTRIBUTOR,
                layout::GIC_V3_DISTRIBUTOR_BYTES,
                layout::GIC_REDISTRIBUTORS,
                layout::GIC_REDISTRIBUTOR_BYTES * description.mpidrs.len() as u64,
            ],
        ),
    };
    fdt.property_string("compatible", compatible)?;
    fdt.property_null("interrupt-controller")?;
    fdt.property_u32("#interrupt-cells", 3)?;
    fdt.property_u32("#address-cells", 0)?;
    fdt.property_array_u64("reg", &reg)?;
    fdt.property_phandle(GIC_PHANDLE)?;
    fdt.end_node(node)
}

/// Writes the timer (timer/arm,arch_timer.yaml).
fn timer(fdt: &mut FdtWriter, description: &Description) -> Written {
    let cpus = description.mpidrs.len();
    // A GICv2 needs the set of CPUs that have the interrupt.
    let flags = match description.gic {
        Gic::V2 => ((1 << cpus) - 1) << 8 | LEVEL_HIGH,
        Gic::V3 => LEVEL_HIGH,
    };
    let node = fdt.begin_node("timer")?;
    fdt.property_string("compatible", "arm,armv8-timer")?;
    let interrupts = TIMER_PPIS.map(|ppi| [PPI, ppi, flags]);
    fdt.property_array_u32("interrupts", interrupts.as_flattened())?;
    // It runs on while its CPU sleeps, so no other timer has to wake that.
    fdt.property_null("always-on")?;
    fdt.end_node(node)
}

fn serial_name(address: u64) -> String {
    format!("serial@{address:x}")
}

/// Writes a UART (serial/8250.yaml).
fn serial(fdt: &mut FdtWriter, address: u64, spi: u32) -> Written {
    let node = fdt.begin_node(&serial_name(address))?;
    fdt.property_string("compatible", "ns16550a")?;
    fdt.property_array_u64("reg", &[address, layout::UART_BYTES])?;
    fdt.property_array_u32("interrupts", &[SPI, spi, EDGE_RISING])?;
    fdt.property_u32("clock-frequency", UART_CLOCK)?;
    fdt.end_node(node)
}

/// Writes a virtio device (virtio/mmio.yaml).
fn virtio(fdt: &mut FdtWriter, address: u64, spi: u32) -> Written {
    let node = fdt.begin_node(&format!("virtio_mmio@{address:x}"))?;
    fdt.property_string("compatible", "virtio,mmio")?;
    fdt.property_array_u64("reg", &[address, layout::VIRTIO_BYTES])?;
    fdt.property_array_u32("interrupts", &[SPI, spi, EDGE_RISING])?;
    // The device reads and writes the guest's memory as the CPUs of the host do, through their caches.
    fdt.property_null("dma-coherent")?;
    fdt.end_node(node)
}

/// Writes our doorbell: a page to which a waiting workload stores its nonce.
fn doorbell(fdt: &mut FdtWriter) -> Written {
    let node = fdt.begin_node(&format!("doorbell@{:x}", layout::DOORBELL))?;
    fdt.property_string("compatible", protocol::DOORBELL_COMPATIBLE)?;
    fdt.property_array_u64("reg", &[layout::DOORBELL, layout::DOORBELL_BYTES])?;
    fdt.end_node(node)
}
