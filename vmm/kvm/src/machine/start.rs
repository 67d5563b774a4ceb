// SPDX-License-Identifier: GPL-2.0-only
//! Starts a guest on KVM: memory, CPUs, devices, threads.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use machine::channel::Channel;
use machine::stream::Stream;
use machine::{Console, MachineError};
use rustix::event::{eventfd, EventfdFlags};

use super::{Kvm, STILL};
use crate::board::{tree, Board};
use crate::boot;
use crate::device::Bus;
use crate::fdt;
use crate::io;
use crate::layout;
use crate::memory::Ram;
use crate::parking::{End, Parking};
use crate::seccomp::Filter;
use crate::vcpu::Vcpu;
use crate::vm::Vm;
use crate::{Config, KvmError};

impl Kvm {
    /// Boots the guest; it runs when this returns.
    pub fn start(config: &Config) -> Result<Self, MachineError> {
        Self::start_with(config, None)
    }

    /// Starts a guest with one kind of interrupt controller, for tests of a host that has no other.
    #[doc(hidden)]
    pub fn start_with(config: &Config, gic: Option<fdt::Gic>) -> Result<Self, MachineError> {
        config.validate()?;
        machine::private::directory_all(&config.work_dir).map_err(|source| {
            MachineError::System {
                what: format!("make the folder {}", config.work_dir.display()),
                source,
            }
        })?;
        let console_log = create(&config.work_dir.join("console.log"))?;
        let transcript = create(&config.work_dir.join("channel.log"))?;
        let system = |what| move |source| KvmError::System { what, source };
        let pair = || UnixStream::pair().map_err(system("make a socket pair"));

        let ram = Ram::new(config.memory_bytes, config.hugepages)?;
        let (vm, cpus) = Vm::new(config.smp, ram.clone(), gic)?;
        let places = boot::load(config, &ram)?;
        let tree = tree(config, &vm, &cpus, &places)?;
        boot::load_tree(&tree, &places, &ram)?;
        let first = crate::registers::Registers {
            fd: &cpus[0].fd,
            cpu: 0,
        };
        first.set_boot(places.entry, places.tree)?;

        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(
            wake.map_err(std::io::Error::from)
                .map_err(system("make an event"))?,
        );
        let mut board = Board {
            vm: &vm,
            wake: &wake,
            bus: Bus::new(),
            streams: Vec::new(),
        };
        let (console, console_end) = pair()?;
        let (uart, uart_end) = pair()?;
        let (port, port_end) = pair()?;
        let first_uart = board.uart(layout::CONSOLE, layout::CONSOLE_SPI, console_end)?;
        board.uart(layout::AGENT_UART, layout::AGENT_UART_SPI, uart_end)?;
        let virtio = board.virtio(&ram, port_end)?;
        let Board { bus, streams, .. } = board;

        let (fds, runs): (Vec<_>, Vec<_>) = cpus.into_iter().map(|cpu| (cpu.fd, cpu.run)).unzip();
        let parking = Arc::new(Parking::new(runs)?);
        let filters = match config.seccomp {
            true => Some((Filter::cpu()?, Filter::io()?)),
            false => None,
        };
        let (cpu_filter, io_filter) = filters.unzip();
        let filter = io_filter.clone();
        let console = Console::start_with(console, console_log, move || {
            let confined = filter.map_or(Ok(()), |filter| filter.install());
            confined.map_err(std::io::Error::other)
        });
        let stream = |end| Stream::new(end).map_err(system("set up a socket"));
        let mut machine = Self {
            vm,
            ram,
            parking: Arc::clone(&parking),
            threads: Vec::new(),
            quit: Arc::default(),
            wake: Arc::clone(&wake),
            virtio: Some(virtio),
            uart: Some(first_uart),
            counts: Arc::default(),
            console: console.map_err(system("start the console's thread"))?,
            channel: Channel::new(vec![stream(port)?, stream(uart)?], transcript),
            command_line: config.command_line(),
            cmdline: config.cmdline.clone(),
            logging: false,
        };
        let bus = Arc::new(bus);
        for (index, fd) in fds.into_iter().enumerate() {
            let vcpu = Vcpu {
                index,
                fd,
                parking: Arc::clone(&parking),
                bus: Arc::clone(&bus),
                counts: Arc::clone(&machine.counts),
            };
            let filter = cpu_filter.clone();
            machine.spawn(format!("vcpu{index}"), move || vcpu.run(filter.as_ref()))?;
        }
        let quit = Arc::clone(&machine.quit);
        machine.spawn("io".into(), move || {
            match io_filter.map_or(Ok(()), |filter| filter.install()) {
                Ok(()) => io::run(streams, &*wake, &quit),
                Err(error) => parking.set_end(End::Lost(error.to_string())),
            }
        })?;
        // Each thread is there, confined, and its CPU's registers can be read.
        machine.parking.still(STILL)?;
        machine.ended()?;
        machine.parking.go();
        Ok(machine)
    }

    fn spawn(
        &mut self,
        name: String,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), KvmError> {
        let thread = std::thread::Builder::new().name(name).spawn(body);
        self.threads.push(thread.map_err(|source| KvmError::System {
            what: "start a thread",
            source,
        })?);
        Ok(())
    }
}

fn create(path: &Path) -> Result<File, MachineError> {
    machine::private::create(path).map_err(|source| MachineError::System {
        what: format!("write {}", path.display()),
        source,
    })
}
