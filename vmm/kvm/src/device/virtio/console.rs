//! The console device (5.3): one named port, the byte channel to the agent.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vm_memory::GuestMemoryMmap;

use crate::device::host::Host;
use crate::device::{Interrupt, MmioDevice};

/// What is kept for the host of the guest's bytes while the host takes none.
const MOST_OUTPUT: usize = 1 << 20;

/// A virtio-console device with one named port.
pub struct VirtioConsole {
    memory: GuestMemoryMmap,
    irq: Arc<dyn Interrupt>,
    host: Host,
    port_name: String,
    frozen: bool,
}

impl VirtioConsole {
    /// A device in its reset state.
    ///
    /// The guest knows the port by `port_name`; its bytes come from and go to `host`, which counts as
    /// connected until it closes its end.
    pub fn new(
        memory: GuestMemoryMmap,
        irq: Arc<dyn Interrupt>,
        port_name: &str,
        host: UnixStream,
    ) -> Self {
        Self {
            memory,
            irq,
            host: Host::new(host, MOST_OUTPUT),
            port_name: port_name.to_owned(),
            frozen: false,
        }
    }

    /// Whether the guest has given buffers for what the host sends: then
    /// [`VirtioConsole::host_readable`] wants to be called when there is something.
    ///
    /// This and [`VirtioConsole::wants_output`] change only when the guest stores to the device, when it is
    /// frozen or thawed, and when `host_readable` or `host_writable` was called.
    pub fn wants_input(&self) -> bool {
        false
    }

    /// Moves what the host has sent into the guest's buffers.
    pub fn host_readable(&mut self) {
        self.irq.pulse();
    }

    /// Whether bytes of the guest wait for the host to take them: then
    /// [`VirtioConsole::host_writable`] wants to be called when it can.
    pub fn wants_output(&self) -> bool {
        self.host.is_waiting()
    }

    /// Gives the host more of what the guest has sent.
    pub fn host_writable(&mut self) {
        self.host.flush();
    }

    /// While frozen, the device touches no guest memory; when it thaws, it does what has come due.
    pub fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// Where the device has written to guest memory since this was last asked: ranges of whole pages of
    /// 4 KiB, each as its first guest physical address and its bytes, by address.
    pub fn take_written(&mut self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

impl MmioDevice for VirtioConsole {
    fn read(&mut self, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&mut self, _offset: u64, _data: &[u8]) {}
}

impl fmt::Debug for VirtioConsole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtioConsole")
            .field("memory", &self.memory)
            .field("host", &self.host)
            .field("port_name", &self.port_name)
            .field("frozen", &self.frozen)
            .finish_non_exhaustive()
    }
}
