// SPDX-License-Identifier: GPL-2.0-only
//! A driver for virtio-console, as the guest and the host have it.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};

use kvm::device::{Bus, VirtioConsole};
use kvm::layout::{RAM, VIRTIO_BYTES, VIRTIO_CONSOLE};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::edges::Edges;

/// The registers that a driver uses (4.2.2).
pub mod register {
    pub const MAGIC: u64 = 0x000;
    pub const VERSION: u64 = 0x004;
    pub const DEVICE: u64 = 0x008;
    pub const OFFERED: u64 = 0x010;
    pub const OFFERED_SELECT: u64 = 0x014;
    pub const TAKEN: u64 = 0x020;
    pub const TAKEN_SELECT: u64 = 0x024;
    pub const QUEUE_SELECT: u64 = 0x030;
    pub const QUEUE_MOST: u64 = 0x034;
    pub const QUEUE_SIZE: u64 = 0x038;
    pub const QUEUE_READY: u64 = 0x044;
    pub const NOTIFY: u64 = 0x050;
    pub const INTERRUPTS: u64 = 0x060;
    pub const ACKNOWLEDGE: u64 = 0x064;
    pub const STATUS: u64 = 0x070;
    pub const DESCRIPTORS: u64 = 0x080;
    pub const AVAILABLE: u64 = 0x090;
    pub const USED: u64 = 0x0a0;
    pub const CONFIG: u64 = 0x100;
}

pub const NEEDS_RESET: u32 = 64;
pub const PORT_NAME: &str = protocol::PORT_NAME;

pub const CONTROL_RECEIVE: usize = 2;
pub const CONTROL_TRANSMIT: usize = 3;
pub const RECEIVE: usize = 4;
pub const TRANSMIT: usize = 5;

/// Descriptor flags (2.7.5).
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// Entries of each queue, and bytes of each of its buffers.
pub const ENTRIES: u16 = 16;
pub const BUFFER: u32 = 4096;
pub const RAM_BYTES: usize = 2 << 20;

/// A guest with the device, its driver, and the host at the other end.
pub struct Guest {
    pub bus: Bus,
    pub console: Arc<Mutex<VirtioConsole>>,
    pub memory: GuestMemoryMmap,
    pub edges: Arc<Edges>,
    pub host: UnixStream,
    rings: [Ring; 6],
}

/// The driver's side of a queue: how many chains it gave, and how many it saw come back.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    given: u16,
    seen: u16,
}

impl Guest {
    /// Creates a guest whose driver has done nothing yet.
    pub fn new() -> Self {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(RAM), RAM_BYTES)]).unwrap();
        let edges = Arc::new(Edges::default());
        let (host, ours) = UnixStream::pair().unwrap();
        let console = VirtioConsole::new(memory.clone(), edges.clone(), PORT_NAME, ours);
        let console = Arc::new(Mutex::new(console));
        let mut bus = Bus::new();
        bus.add(VIRTIO_CONSOLE, VIRTIO_BYTES, console.clone())
            .unwrap();
        host.set_nonblocking(true).unwrap();
        Self {
            bus,
            console,
            memory,
            edges,
            host,
            rings: Default::default(),
        }
    }

    /// Creates a guest whose driver is ready and has the port open.
    pub fn ready() -> Self {
        let mut guest = Self::new();
        guest.start();
        guest.open();
        guest
    }

    pub fn device(&self) -> MutexGuard<'_, VirtioConsole> {
        self.console.lock().unwrap()
    }

    pub fn read(&self, register: u64) -> u32 {
        let mut bytes = [0xee; 4];
        assert!(self.bus.read(VIRTIO_CONSOLE + register, &mut bytes));
        u32::from_le_bytes(bytes)
    }

    pub fn write(&self, register: u64, value: u32) {
        assert!(self
            .bus
            .write(VIRTIO_CONSOLE + register, &value.to_le_bytes()));
    }

    /// Negotiates as in 3.1.1, up to FEATURES_OK; returns whether the device agreed.
    pub fn negotiate(&mut self, features: u64) -> bool {
        self.rings = Default::default();
        for status in [0, 1, 3] {
            self.write(register::STATUS, status);
        }
        for half in [0, 1] {
            self.write(register::TAKEN_SELECT, half);
            self.write(register::TAKEN, (features >> (32 * half)) as u32);
        }
        self.write(register::STATUS, 11);
        self.read(register::STATUS) == 11
    }

    pub fn set_queue(&self, queue: usize, size: u32, places: [u64; 3]) {
        self.write(register::QUEUE_SELECT, queue as u32);
        self.write(register::QUEUE_SIZE, size);
        let at = [register::DESCRIPTORS, register::AVAILABLE, register::USED];
        for (register, place) in at.into_iter().zip(places) {
            self.write(register, place as u32);
            self.write(register + 4, (place >> 32) as u32);
        }
        self.write(register::QUEUE_READY, 1);
    }

    /// Returns where the descriptor table, the available and the used ring of a queue are.
    pub fn places(queue: usize) -> [u64; 3] {
        let base = RAM + 0x1000 * queue as u64;
        [base, base + 0x400, base + 0x800]
    }

    /// Returns where a queue's buffer is.
    pub fn buffer(queue: usize, slot: u16) -> u64 {
        RAM + 0x2_0000 * (queue as u64 + 1) + u64::from(BUFFER) * u64::from(slot)
    }

    /// All of 3.1.1, and buffers in the receiving queues.
    pub fn start(&mut self) {
        assert!(self.negotiate(1 << 32 | 1 << 1));
        for queue in 0..6 {
            let zeroes = [0; 0x1000];
            self.memory
                .write_slice(&zeroes, GuestAddress(Self::places(queue)[0]))
                .unwrap();
            self.set_queue(queue, ENTRIES.into(), Self::places(queue));
            assert_eq!(self.read(register::QUEUE_READY), 1);
        }
        self.write(register::STATUS, 15);
        assert_eq!(self.read(register::STATUS), 15);
        for queue in [CONTROL_RECEIVE, RECEIVE] {
            for slot in 0..ENTRIES {
                self.give(queue, slot, &[(Self::buffer(queue, slot), BUFFER, WRITE)]);
            }
            self.notify(queue);
        }
    }

    /// The handshake over the control queues, up to an open port.
    pub fn open(&mut self) {
        self.control(u32::MAX, 0, 1);
        assert_eq!(self.messages(), [(1, 1, 1, String::new())]);
        self.control(1, 3, 1);
        let name = format!("{PORT_NAME}\0");
        let expected = [(1, 7, 1, name), (1, 6, 1, String::new())];
        assert_eq!(self.messages(), expected);
        self.control(1, 6, 1);
    }

    /// Writes descriptors from `slot` on, one behind the other, and makes them available as a chain.
    pub fn give(&mut self, queue: usize, slot: u16, buffers: &[(u64, u32, u16)]) {
        for (index, &(address, bytes, flags)) in buffers.iter().enumerate() {
            let slot = slot + index as u16;
            let more = if index + 1 < buffers.len() { NEXT } else { 0 };
            self.describe(queue, slot, address, bytes, flags | more, slot + 1);
        }
        self.make_available(queue, slot);
    }

    pub fn describe(
        &self,
        queue: usize,
        slot: u16,
        address: u64,
        bytes: u32,
        flags: u16,
        next: u16,
    ) {
        let mut descriptor = address.to_le_bytes().to_vec();
        descriptor.extend(bytes.to_le_bytes());
        descriptor.extend(flags.to_le_bytes());
        descriptor.extend(next.to_le_bytes());
        let at = Self::places(queue)[0] + 16 * u64::from(slot);
        self.memory
            .write_slice(&descriptor, GuestAddress(at))
            .unwrap();
    }

    pub fn make_available(&mut self, queue: usize, head: u16) {
        let available = Self::places(queue)[1];
        let ring = &mut self.rings[queue];
        let entry = available + 4 + 2 * u64::from(ring.given % ENTRIES);
        ring.given = ring.given.wrapping_add(1);
        self.memory.write_obj(head, GuestAddress(entry)).unwrap();
        self.memory
            .write_obj(ring.given, GuestAddress(available + 2))
            .unwrap();
    }

    pub fn notify(&self, queue: usize) {
        self.write(register::NOTIFY, queue as u32);
    }

    /// Returns the used chains: their heads, and the number of bytes that the device wrote.
    pub fn used(&mut self, queue: usize) -> Vec<(u32, u32)> {
        let used = Self::places(queue)[2];
        let index: u16 = self.memory.read_obj(GuestAddress(used + 2)).unwrap();
        let ring = &mut self.rings[queue];
        let mut chains = Vec::new();
        while ring.seen != index {
            let at = used + 4 + 8 * u64::from(ring.seen % ENTRIES);
            chains.push((
                self.memory.read_obj(GuestAddress(at)).unwrap(),
                self.memory.read_obj(GuestAddress(at + 4)).unwrap(),
            ));
            ring.seen = ring.seen.wrapping_add(1);
        }
        chains
    }

    /// Returns the contents of a receiving queue; its buffers are made available again.
    pub fn received(&mut self, queue: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for (slot, bytes) in self.used(queue) {
            let slot = slot as u16;
            let mut content = vec![0; bytes as usize];
            let at = GuestAddress(Self::buffer(queue, slot));
            self.memory.read_slice(&mut content, at).unwrap();
            all.push(content);
            self.make_available(queue, slot);
        }
        self.notify(queue);
        all
    }

    /// Sends bytes in one buffer, which must be free.
    pub fn send(&mut self, queue: usize, slot: u16, bytes: &[u8]) {
        let at = Self::buffer(queue, slot);
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
        self.give(queue, slot, &[(at, bytes.len() as u32, 0)]);
        self.notify(queue);
    }

    /// Sends a control message, and checks that it was taken.
    pub fn control(&mut self, port: u32, event: u16, value: u16) {
        let mut message = port.to_le_bytes().to_vec();
        message.extend(event.to_le_bytes());
        message.extend(value.to_le_bytes());
        self.send(CONTROL_TRANSMIT, 0, &message);
        assert_eq!(self.used(CONTROL_TRANSMIT), [(0, 0)]);
    }

    /// Returns the control messages: port, event, value, and the text behind.
    pub fn messages(&mut self) -> Vec<(u32, u16, u16, String)> {
        let message = |bytes: Vec<u8>| {
            (
                u32::from_le_bytes(bytes[..4].try_into().unwrap()),
                u16::from_le_bytes(bytes[4..6].try_into().unwrap()),
                u16::from_le_bytes(bytes[6..8].try_into().unwrap()),
                String::from_utf8(bytes[8..].to_vec()).unwrap(),
            )
        };
        let messages = self.received(CONTROL_RECEIVE);
        messages.into_iter().map(message).collect()
    }

    /// Returns a copy of all memory.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; RAM_BYTES];
        self.memory
            .read_slice(&mut image, GuestAddress(RAM))
            .unwrap();
        image
    }
}
