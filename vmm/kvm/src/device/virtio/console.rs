// SPDX-License-Identifier: GPL-2.0-only
//! The console device (5.3): one named port, the byte channel to the agent.
//!
//! It behaves as QEMU's `virtserialport` does. The port is number 1, beside port 0 of a console. The host's bytes wait
//! until the guest has opened the port. A host that has closed its end is a hang-up for the guest.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use virtio_bindings::virtio_ids::VIRTIO_ID_CONSOLE;

use super::mmio::{Event, Transport, CONFIG};
use super::queue::{Broken, Chain, Direction};
use super::written::Written;
use crate::device::host::{Host, ReadResult};
use crate::device::{Interrupt, MmioDevice};
use crate::DeviceMemory;
use messages::{PendingMessages, PORTS};

mod control;
mod messages;

/// VIRTIO_CONSOLE_F_MULTIPORT (5.3.3): several ports, with names, and control messages.
const MULTIPORT: u64 = 1 << 1;

/// The queues (5.3.2): two for each port, and two for control behind port 0's.
const QUEUES: usize = 6;
const PORT0_TRANSMIT: usize = 1;
const CONTROL_RECEIVE: usize = 2;
const CONTROL_TRANSMIT: usize = 3;
const RECEIVE: usize = 4;
const TRANSMIT: usize = 5;

/// Maximum number of the guest's bytes that are kept while the host takes none. It also bounds the bytes that one call
/// moves, so that the device's lock is held for a short time.
const MOST_OUTPUT: usize = 1 << 20;
/// Number of bytes read at once from the host or from guest memory.
const AT_ONCE: usize = 32 << 10;

/// A virtio-console device with one named port.
///
/// Every call does all pending work: it takes control messages, answers them, and moves bytes in both directions, as
/// far as host and guest have room. No call waits.
pub struct VirtioConsole {
    memory: DeviceMemory,
    transport: Transport,
    host: Host,
    port_name: String,
    /// True if the host has not closed its end.
    host_open: bool,
    /// True if the guest has the port open.
    guest_open: bool,
    /// Control messages for the guest that are still to be sent.
    pending: PendingMessages,
    /// A chain of the guest whose bytes have not all been taken.
    sending: Option<Chain>,
    /// True if the last call left bytes of the guest for the next one.
    more_output: bool,
    /// Bytes from the host for which the guest had too few buffers; at most [`AT_ONCE`].
    received: Vec<u8>,
    frozen: bool,
    written: Written,
}

impl VirtioConsole {
    /// Creates a device in its reset state.
    ///
    /// Creates the device. The guest knows the port by `port_name`. Its bytes come from and go to `host`, which is
    /// connected until it closes its end.
    pub fn new(
        memory: impl Into<DeviceMemory>,
        irq: Arc<dyn Interrupt>,
        port_name: &str,
        host: UnixStream,
    ) -> Self {
        Self {
            memory: memory.into(),
            transport: Transport::new(VIRTIO_ID_CONSOLE, MULTIPORT, QUEUES, irq),
            host: Host::new(host, MOST_OUTPUT),
            port_name: port_name.to_owned(),
            host_open: true,
            guest_open: false,
            pending: PendingMessages::default(),
            sending: None,
            more_output: false,
            received: Vec::new(),
            frozen: false,
            written: Written::default(),
        }
    }

    /// Returns whether the guest has buffers for bytes from the host. [`VirtioConsole::host_readable`] must then be
    /// called when the stream is readable.
    ///
    /// This and [`VirtioConsole::wants_output`] change only when the guest stores to the device, when it is
    /// frozen or thawed, and when `host_readable` or `host_writable` was called.
    pub fn wants_input(&self) -> bool {
        let listens = self.host_open && self.guest_open && !self.frozen && self.transport.is_live();
        listens && self.transport.queues[RECEIVE].has_buffers(&self.memory)
    }

    /// Moves bytes from the host into the guest's buffers.
    pub fn host_readable(&mut self) {
        self.run();
    }

    /// Returns whether bytes of the guest wait for the host. [`VirtioConsole::host_writable`] must then be called when
    /// the stream is writable.
    pub fn wants_output(&self) -> bool {
        self.host.is_waiting() || (self.more_output && !self.frozen)
    }

    /// Passes more of the guest's bytes to the host.
    pub fn host_writable(&mut self) {
        self.host.flush();
        self.run();
    }

    /// Freezes or thaws the device. A frozen device touches no guest memory; when it thaws, it does the pending work.
    pub fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
        self.run();
    }

    /// Returns the guest memory that the device has written since the last call: ranges of whole pages of 4 KiB, each
    /// as its first guest physical address and its bytes, by address.
    pub fn take_written(&mut self) -> Vec<(u64, u64)> {
        self.written.take()
    }

    /// Returns what the driver did wrong, if the device waits for a reset because of it.
    pub fn broken(&self) -> Option<&'static str> {
        self.transport.broken()
    }

    /// Does all pending work.
    fn run(&mut self) {
        if self.frozen || !self.transport.is_live() {
            return;
        }
        match self.try_run() {
            Ok(0) => {}
            Ok(_) => self.transport.used_buffers(),
            Err(broken) => self.fail(broken),
        }
    }

    /// Returns the number of chains that were used.
    fn try_run(&mut self) -> Result<usize, Broken> {
        let mut used = self.discard(PORT0_TRANSMIT)?;
        if self.transport.has(MULTIPORT) {
            used += self.take_control()?;
            used += self.transmit()?;
            used += self.receive()?;
            used += self.send_messages()?;
        }
        Ok(used)
    }

    fn fail(&mut self, broken: Broken) {
        self.forget();
        self.transport.needs_reset(broken);
    }

    /// Resets all state of the guest. Bytes that it has sent still go to the host.
    fn forget(&mut self) {
        self.guest_open = false;
        self.pending = PendingMessages::default();
        self.sending = None;
        self.more_output = false;
        self.received.clear();
    }

    /// Drops the guest's bytes on a queue without a receiver.
    fn discard(&mut self, queue: usize) -> Result<usize, Broken> {
        self.drain(queue, |_, _| Ok(()))
    }

    /// Takes the chains that the guest has sent on `queue` and returns their buffers. It takes at most as many as the
    /// queue has, since another CPU may add more for ever. The guest notifies again for those.
    fn drain(
        &mut self,
        queue: usize,
        mut each: impl FnMut(&mut Self, &mut Chain) -> Result<(), Broken>,
    ) -> Result<usize, Broken> {
        for used in 0..self.transport.queues[queue].entries() {
            let Some(mut chain) = self.pop(queue, Direction::FromGuest)? else {
                return Ok(used);
            };
            each(self, &mut chain)?;
            self.give_back(queue, &chain)?;
        }
        Ok(self.transport.queues[queue].entries())
    }

    /// Passes the guest's bytes to the host. Bytes that do not fit stay in the guest's buffers.
    fn transmit(&mut self) -> Result<usize, Broken> {
        let mut used = 0;
        let mut budget = MOST_OUTPUT;
        let mut buffer = Vec::new();
        // Chains without a byte cost nothing of the budget, so the chains are counted too.
        for _ in 0..self.transport.queues[TRANSMIT].entries() {
            let Some(mut chain) = self.next_sent()? else {
                self.more_output = false;
                return Ok(used);
            };
            while !chain.is_empty() {
                let room = AT_ONCE.min(budget).min(self.host.room());
                if room == 0 {
                    self.sending = Some(chain);
                    self.more_output = true;
                    return Ok(used);
                }
                buffer.resize(room.min(chain.bytes()), 0);
                let count = chain.read(&self.memory, &mut buffer)?;
                self.host.keep(&buffer);
                self.host.flush();
                budget -= count;
            }
            self.give_back(TRANSMIT, &chain)?;
            used += 1;
        }
        self.more_output = true;
        Ok(used)
    }

    /// Returns the chain that has been begun, or the next one.
    fn next_sent(&mut self) -> Result<Option<Chain>, Broken> {
        match self.sending.take() {
            Some(chain) => Ok(Some(chain)),
            None => self.pop(TRANSMIT, Direction::FromGuest),
        }
    }

    /// Takes the host's bytes to the guest, as far as it has given buffers.
    fn receive(&mut self) -> Result<usize, Broken> {
        if !self.guest_open {
            return Ok(0);
        }
        let mut used = 0;
        let queue = &self.transport.queues[RECEIVE];
        for _ in 0..queue.entries() {
            if self.received.is_empty() && !self.receive_from_host() {
                break;
            }
            let Some(mut chain) = self.pop(RECEIVE, Direction::ToGuest)? else {
                break;
            };
            let count = chain.write(&self.memory, &self.received, &mut self.written)?;
            if count == 0 {
                return Err(Broken("a chain to receive in that has no room"));
            }
            self.received.drain(..count);
            self.give_back(RECEIVE, &chain)?;
            used += 1;
        }
        Ok(used)
    }

    /// Reads bytes from the host, if the guest has buffers for any. Returns false if there are none.
    fn receive_from_host(&mut self) -> bool {
        if !self.host_open || !self.transport.queues[RECEIVE].has_buffers(&self.memory) {
            return false;
        }
        let mut buffer = vec![0; AT_ONCE];
        match self.host.receive(&mut buffer) {
            ReadResult::Bytes(count) => {
                buffer.truncate(count);
                self.received = buffer;
                true
            }
            ReadResult::Nothing => false,
            ReadResult::End => {
                self.host_open = false;
                self.pending.open = Some(false);
                false
            }
        }
    }

    fn pop(&mut self, queue: usize, direction: Direction) -> Result<Option<Chain>, Broken> {
        self.transport.queues[queue].pop(&self.memory, direction)
    }

    fn give_back(&mut self, queue: usize, chain: &Chain) -> Result<(), Broken> {
        self.transport.queues[queue].give_back(&self.memory, chain, &mut self.written)
    }

    /// Returns the device's own registers (5.3.4): columns, rows, the number of ports, and the emergency write. The
    /// driver was offered only the third.
    fn config() -> [u8; 12] {
        let mut config = [0; 12];
        config[4..8].copy_from_slice(&PORTS.to_le_bytes());
        config
    }
}

impl MmioDevice for VirtioConsole {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        match offset.checked_sub(CONFIG) {
            // 4.2.2.2: loads of the configuration are as wide as its fields.
            Some(at) => {
                let config = Self::config().into_iter().skip(at as usize);
                data.iter_mut()
                    .zip(config)
                    .for_each(|(byte, field)| *byte = field);
            }
            // The registers have 32 bits each, and are read whole.
            None if data.len() == 4 && offset % 4 == 0 => {
                data.copy_from_slice(&self.transport.read(offset as u32).to_le_bytes());
            }
            None => {}
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        // Nothing in the configuration can be written.
        let (true, true, Ok(value)) = (offset < CONFIG, offset % 4 == 0, data.try_into()) else {
            return;
        };
        let value = u32::from_le_bytes(value);
        match self.transport.write(&self.memory, offset as u32, value) {
            Event::Reset => self.forget(),
            Event::Stopped(TRANSMIT) => self.sending = None,
            Event::Look => self.run(),
            Event::Stopped(_) | Event::None => {}
        }
    }
}

impl fmt::Debug for VirtioConsole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtioConsole")
            .field("transport", &self.transport)
            .field("host", &self.host)
            .field("port_name", &self.port_name)
            .field("host_open", &self.host_open)
            .field("guest_open", &self.guest_open)
            .field("pending", &self.pending)
            .field("sending", &self.sending)
            .field("frozen", &self.frozen)
            .finish_non_exhaustive()
    }
}
