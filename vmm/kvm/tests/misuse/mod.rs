// SPDX-License-Identifier: GPL-2.0-only
//! Devices used in arbitrary ways: the body of a property test and of a fuzz target.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use kvm::device::{Bus, Interrupt, Uart, VirtioConsole};
use kvm::layout::{CONSOLE, RAM, UART_BYTES, VIRTIO_BYTES, VIRTIO_CONSOLE};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// All of the guest's RAM.
const RAM_BYTES: usize = 0x8000;
const PAGE: usize = 4096;
/// Entries of the queues that [`Rig::start`] makes.
const ENTRIES: u16 = 8;

struct Nobody;

impl Interrupt for Nobody {
    fn pulse(&self) {}
}

/// Bytes that decide the steps, followed by zeros.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes([0; 8].map(|_: u8| self.byte()))
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}

struct Rig {
    bus: Bus,
    memory: GuestMemoryMmap,
    console: Arc<Mutex<VirtioConsole>>,
    uart: Arc<Mutex<Uart>>,
    host: Option<UnixStream>,
    terminal: UnixStream,
    /// Contents of guest memory if no device has written to it.
    image: Vec<u8>,
    frozen: bool,
}

/// Uses a virtio-console device and a UART as `input` directs, as guest, as host and as monitor.
///
/// # Panics
/// If a device panics, writes to guest memory while it is frozen, or writes to a page that it does not report.
pub fn use_devices(input: &[u8]) {
    let mut choices = Choices(input);
    let mut rig = Rig::new();
    // Few inputs would find out on their own how a device is started.
    if choices.byte() % 4 != 0 {
        rig.start();
    }
    while !choices.0.is_empty() {
        rig.step(&mut choices);
        rig.check();
    }
}

impl Rig {
    fn new() -> Self {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(RAM), RAM_BYTES)]).unwrap();
        let (host, ours) = UnixStream::pair().unwrap();
        let (terminal, line) = UnixStream::pair().unwrap();
        host.set_nonblocking(true).unwrap();
        terminal.set_nonblocking(true).unwrap();
        let irq = Arc::new(Nobody);
        let console = VirtioConsole::new(memory.clone(), irq.clone(), "port", ours);
        let console = Arc::new(Mutex::new(console));
        let uart = Arc::new(Mutex::new(Uart::new(irq, line)));
        let mut bus = Bus::new();
        bus.add(VIRTIO_CONSOLE, VIRTIO_BYTES, console.clone())
            .unwrap();
        bus.add(CONSOLE, UART_BYTES, uart.clone()).unwrap();
        Self {
            bus,
            memory,
            console,
            uart,
            host: Some(host),
            terminal,
            image: vec![0; RAM_BYTES],
            frozen: false,
        }
    }

    fn register(&self, offset: u64, value: u32) {
        self.bus
            .write(VIRTIO_CONSOLE + offset, &value.to_le_bytes());
    }

    /// Starts the device as a driver does, with buffers in all queues and the port open.
    fn start(&mut self) {
        self.register(0x70, 0);
        self.register(0x24, 0);
        self.register(0x20, 1 << 1);
        self.register(0x24, 1);
        self.register(0x20, 1);
        self.register(0x70, 11);
        for queue in 0..6_u16 {
            let base = 0x200 * u64::from(queue);
            self.register(0x30, queue.into());
            self.register(0x38, ENTRIES.into());
            for (register, offset) in [(0x80, 0), (0x90, 0x100), (0xa0, 0x180)] {
                self.register(register, (RAM + base + offset) as u32);
                self.register(register + 4, 0);
            }
            self.register(0x44, 1);
            // Receiving queues have even numbers.
            let flags = if queue % 2 == 0 { 2 } else { 0 };
            for slot in 0..ENTRIES {
                let address = RAM + 0x1000 + 0x80 * u64::from(queue * ENTRIES + slot);
                let at = base + 16 * u64::from(slot);
                self.poke(at, &address.to_le_bytes());
                self.poke(at + 8, &0x80_u32.to_le_bytes());
                self.poke(at + 12, &[flags, 0, 0, 0]);
                self.poke(base + 0x104 + 2 * u64::from(slot), &slot.to_le_bytes());
            }
            // The receiving queues are full, and one control message opens the port.
            let given = if queue % 2 == 0 { ENTRIES } else { 0 };
            self.poke(base + 0x102, &given.to_le_bytes());
        }
        let opening = RAM + 0x1000 + 0x80 * u64::from(3 * ENTRIES);
        self.poke(opening - RAM, &[1, 0, 0, 0, 6, 0, 1, 0]);
        self.poke(0x200 * 3 + 0x102, &[1]);
        self.register(0x70, 15);
        self.check();
    }

    /// The guest writes to its memory.
    fn poke(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize % (RAM_BYTES - bytes.len());
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
        self.memory
            .write_slice(bytes, GuestAddress(RAM + at as u64))
            .unwrap();
    }

    /// Does one step that guest, host or monitor may do.
    fn step(&mut self, choices: &mut Choices) {
        match choices.byte() % 16 {
            // The guest: registers, with valid and other widths.
            0 => {
                let offset = u64::from(choices.short()) % 0x204;
                let bytes = choices.word().to_le_bytes();
                let width = usize::from(choices.byte()) % 9;
                self.bus.write(VIRTIO_CONSOLE + offset, &bytes[..width]);
            }
            1 => {
                let offset = u64::from(choices.byte() % 0x40) * 4;
                self.register(offset, choices.byte().into());
            }
            2 => {
                let offset = u64::from(choices.short()) % 0x204;
                let width = usize::from(choices.byte()) % 9;
                let mut data = [0; 8];
                self.bus.read(VIRTIO_CONSOLE + offset, &mut data[..width]);
            }
            3 => self.register(0x50, choices.byte().into()),
            // The guest: its memory. A word anywhere, a descriptor, an entry of a ring and its index.
            4 => {
                let offset = choices.short().into();
                let bytes = choices.word().to_le_bytes();
                self.poke(offset, &bytes[..1 + usize::from(choices.byte()) % 8]);
            }
            5 => {
                let at = 0x200 * u64::from(choices.byte() % 6) + 16 * u64::from(choices.byte() % 8);
                let address = RAM + choices.word() % 0x8100;
                self.poke(at, &address.to_le_bytes());
                let bytes = u32::from(choices.short()) << (choices.byte() % 17);
                self.poke(at + 8, &bytes.to_le_bytes());
                self.poke(at + 12, &[choices.byte() % 8, 0, choices.byte() % 9, 0]);
            }
            6 | 7 => {
                let queue = choices.byte() % 6;
                let ring = 0x200 * u64::from(queue) + 0x100;
                let at = ring as usize + 2;
                let index = u16::from_le_bytes([self.image[at], self.image[at + 1]]);
                let entry = ring + 4 + 2 * u64::from(index % ENTRIES);
                self.poke(entry, &[choices.byte() % (ENTRIES as u8 + 1), 0]);
                let index = index.wrapping_add((choices.byte() % 3).into());
                self.poke(ring + 2, &index.to_le_bytes());
                self.register(0x50, queue.into());
            }
            // The UART.
            8 => {
                let offset = u64::from(choices.byte() % 9);
                self.bus.write(CONSOLE + offset, &[choices.byte()]);
            }
            9 => {
                let offset = u64::from(choices.byte() % 9);
                let mut data = [0; 8];
                self.bus.read(
                    CONSOLE + offset,
                    &mut data[..usize::from(choices.byte()) % 9],
                );
            }
            10 => {
                let bytes = [0x55; 300];
                let taken = self
                    .uart
                    .lock()
                    .unwrap()
                    .receive(&bytes[..choices.byte().into()]);
                assert!(taken <= 255);
            }
            // The host.
            11 => {
                let bytes = [0xaa; 600];
                if let Some(host) = &mut self.host {
                    let _ = host.write(&bytes[..usize::from(choices.byte()) * 2]);
                }
                self.console.lock().unwrap().host_readable();
            }
            12 => {
                let mut buffer = [0; 4096];
                if let Some(host) = &mut self.host {
                    let _ = host.read(&mut buffer);
                }
                let _ = self.terminal.read(&mut buffer);
                self.console.lock().unwrap().host_writable();
                self.uart.lock().unwrap().host_writable();
            }
            13 if choices.byte() == 0 => self.host = None,
            // The monitor.
            14 => {
                self.frozen = choices.byte() % 2 == 1;
                self.console.lock().unwrap().freeze(self.frozen);
            }
            15 => self.start(),
            _ => {
                let console = self.console.lock().unwrap();
                let _ = (console.wants_input(), console.wants_output());
                let _ = format!("{console:?} {:?}", self.bus);
            }
        }
    }

    /// Checks that all changes of memory since the last check are reported, and that there are none if there must be
    /// none.
    fn check(&mut self) {
        let mut now = vec![0; RAM_BYTES];
        self.memory.read_slice(&mut now, GuestAddress(RAM)).unwrap();
        let written = self.console.lock().unwrap().take_written();
        for &(start, bytes) in &written {
            assert!(start >= RAM && start + bytes <= RAM + RAM_BYTES as u64);
        }
        assert!(!self.frozen || (written.is_empty() && now == self.image));
        for page in (0..RAM_BYTES).step_by(PAGE) {
            let at = RAM + page as u64;
            let told = written
                .iter()
                .any(|&(start, bytes)| at >= start && at < start + bytes);
            let same = now[page..page + PAGE] == self.image[page..page + PAGE];
            assert!(same || told, "the page at {at:#x} was written to in secret");
        }
        self.image = now;
    }
}
