// SPDX-License-Identifier: GPL-2.0-only
//! The devices of a machine, and the tree that describes them.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use crate::boot;
use crate::device::{Bus, Uart, VirtioConsole};
use crate::fdt;
use crate::gic::Spi;
use crate::io::{HostSide, HostStream, Watched};
use crate::layout;
use crate::memory::Ram;
use crate::vm::{NewCpu, Vm};
use crate::{Config, KvmError};

/// The devices while they are added to the bus.
pub struct Board<'a> {
    pub vm: &'a Vm,
    pub wake: &'a Arc<OwnedFd>,
    pub bus: Bus,
    pub streams: Vec<HostStream>,
}

impl Board<'_> {
    pub fn uart(
        &mut self,
        base: u64,
        spi: u32,
        stream: UnixStream,
    ) -> Result<Arc<Mutex<Watched<Uart>>>, KvmError> {
        let irq = Spi::connect(&self.vm.fd, spi)?;
        let device = Uart::new(irq, copy(&stream)?);
        self.add(base, layout::UART_BYTES, device, stream)
    }

    pub fn virtio(
        &mut self,
        ram: &Ram,
        stream: UnixStream,
    ) -> Result<Arc<Mutex<Watched<VirtioConsole>>>, KvmError> {
        let irq = Spi::connect(&self.vm.fd, layout::VIRTIO_CONSOLE_SPI)?;
        let end = copy(&stream)?;
        let device = VirtioConsole::new(ram.guest().clone(), irq, protocol::PORT_NAME, end);
        self.add(layout::VIRTIO_CONSOLE, layout::VIRTIO_BYTES, device, stream)
    }

    fn add<D: HostSide + 'static>(
        &mut self,
        base: u64,
        bytes: u64,
        device: D,
        stream: UnixStream,
    ) -> Result<Arc<Mutex<Watched<D>>>, KvmError> {
        let device = Arc::new(Mutex::new(Watched::new(device, self.wake)));
        self.bus.add(base, bytes, Arc::clone(&device) as _)?;
        self.streams.push(HostStream::new(stream, &device));
        Ok(device)
    }
}

fn copy(stream: &UnixStream) -> Result<UnixStream, KvmError> {
    stream.try_clone().map_err(|source| KvmError::System {
        what: "copy a descriptor",
        source,
    })
}

/// Returns the device tree of a machine with these CPUs and these places in its RAM.
pub fn tree(
    config: &Config,
    vm: &Vm,
    cpus: &[NewCpu],
    places: &boot::Places,
) -> Result<Vec<u8>, KvmError> {
    // A kernel with a good seed does not wait for its random number generator.
    let mut seed = [0; 64];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed));
    read.map_err(|source| KvmError::System {
        what: "read /dev/urandom",
        source,
    })?;
    let mpidrs: Vec<u64> = cpus.iter().map(|cpu| cpu.mpidr).collect();
    let description = fdt::Description {
        ram_bytes: config.memory_bytes,
        mpidrs: &mpidrs,
        gic: vm.gic.kind,
        command_line: &config.cmdline,
        initrd: places.initrd.clone(),
        rng_seed: Some(&seed),
        kaslr_seed: None,
    };
    Ok(fdt::build(&description)?)
}
