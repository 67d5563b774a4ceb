// SPDX-License-Identifier: GPL-2.0-only
//! The registers of a virtio device on a memory bus (4.2), in their second version.

use std::fmt;
use std::sync::Arc;

use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_DRIVER_OK,
    VIRTIO_CONFIG_S_FAILED, VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET,
    VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_mmio::*;
use vm_memory::GuestMemoryMmap;

use super::queue::{Broken, Virtqueue, MOST_ENTRIES};
use crate::device::Interrupt;

/// "virt", little endian.
const MAGIC: u32 = 0x7472_6976;
/// The version of the interface: not the legacy one.
const VERSION: u32 = 2;
/// "Folo": a vendor id of our own.
const VENDOR: u32 = 0x6f6c_6f46;

/// The status bits that a driver may set (2.1).
const DRIVERS_BITS: u32 = VIRTIO_CONFIG_S_ACKNOWLEDGE
    | VIRTIO_CONFIG_S_DRIVER
    | VIRTIO_CONFIG_S_FEATURES_OK
    | VIRTIO_CONFIG_S_DRIVER_OK
    | VIRTIO_CONFIG_S_FAILED;

/// Offset of the device's own registers.
pub(super) const CONFIG: u64 = VIRTIO_MMIO_CONFIG as u64;

/// A request to the device by a store to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// No request.
    None,
    /// Reset all state.
    Reset,
    /// Read the queues: one may have new buffers, or the driver is now ready.
    Look,
    /// Drop all state of this queue: the driver has stopped it.
    Stopped(usize),
}

/// Features, status, interrupts and queues of a device.
pub(super) struct Transport {
    device: u32,
    /// The features that the device offers.
    offered: u64,
    /// The features that the driver has accepted.
    taken: u64,
    offered_select: u32,
    taken_select: u32,
    queue_select: u32,
    pub(super) queues: Vec<Virtqueue>,
    status: u32,
    interrupts: u32,
    irq: Arc<dyn Interrupt>,
    /// The driver's error, if the device needs a reset.
    broken: Option<Broken>,
}

impl Transport {
    /// Creates a device in its reset state, of the kind `device` (5). It offers `features` and those that every device
    /// must offer.
    pub(super) fn new(device: u32, features: u64, queues: usize, irq: Arc<dyn Interrupt>) -> Self {
        Self {
            device,
            offered: features | 1 << VIRTIO_F_VERSION_1,
            taken: 0,
            offered_select: 0,
            taken_select: 0,
            queue_select: 0,
            queues: (0..queues).map(|_| Virtqueue::new()).collect(),
            status: 0,
            interrupts: 0,
            irq,
            broken: None,
        }
    }

    /// Returns whether the device may use its queues (3.1.1: not before the driver is ready).
    pub(super) fn is_live(&self) -> bool {
        let both = VIRTIO_CONFIG_S_DRIVER_OK | VIRTIO_CONFIG_S_NEEDS_RESET;
        self.status & both == VIRTIO_CONFIG_S_DRIVER_OK
    }

    /// Returns whether driver and device have agreed on this feature.
    pub(super) fn has(&self, feature: u64) -> bool {
        self.taken & feature == feature
    }

    /// Returns what the driver did wrong, if the device needs a reset.
    pub(super) fn broken(&self) -> Option<&'static str> {
        self.broken.map(|Broken(what)| what)
    }

    /// Notifies the driver that buffers were used (2.7.10). The driver's hint that it wants no interrupt is ignored,
    /// which is allowed.
    pub(super) fn used_buffers(&mut self) {
        self.interrupt(VIRTIO_MMIO_INT_VRING);
    }

    /// Stops the device until the driver resets it (2.1.2).
    pub(super) fn needs_reset(&mut self, broken: Broken) {
        self.broken = Some(broken);
        self.status |= VIRTIO_CONFIG_S_NEEDS_RESET;
        if self.status & VIRTIO_CONFIG_S_DRIVER_OK != 0 {
            self.interrupt(VIRTIO_MMIO_INT_CONFIG);
        }
    }

    fn interrupt(&mut self, why: u32) {
        self.interrupts |= why;
        self.irq.pulse();
    }

    /// Reads the register at `offset`, below [`CONFIG`]. An offset without a register, or with a write-only one, reads
    /// as zero.
    pub(super) fn read(&self, offset: u32) -> u32 {
        let queue = self.queues.get(self.queue_select as usize);
        match offset {
            VIRTIO_MMIO_MAGIC_VALUE => MAGIC,
            VIRTIO_MMIO_VERSION => VERSION,
            VIRTIO_MMIO_DEVICE_ID => self.device,
            VIRTIO_MMIO_VENDOR_ID => VENDOR,
            // 32 of the features; there are no more than 64.
            VIRTIO_MMIO_DEVICE_FEATURES => match self.offered_select {
                0 => self.offered as u32,
                1 => (self.offered >> 32) as u32,
                _ => 0,
            },
            // Zero means that there is no such queue.
            VIRTIO_MMIO_QUEUE_NUM_MAX => queue.map_or(0, |_| u32::from(MOST_ENTRIES)),
            VIRTIO_MMIO_QUEUE_READY => queue.map_or(0, |queue| u32::from(queue.is_ready())),
            VIRTIO_MMIO_INTERRUPT_STATUS => self.interrupts,
            VIRTIO_MMIO_STATUS => self.status,
            // All ones mean that there is no such shared memory (4.2.2).
            VIRTIO_MMIO_SHM_LEN_LOW
            | VIRTIO_MMIO_SHM_LEN_HIGH
            | VIRTIO_MMIO_SHM_BASE_LOW
            | VIRTIO_MMIO_SHM_BASE_HIGH => u32::MAX,
            // The configuration never changes.
            VIRTIO_MMIO_CONFIG_GENERATION => 0,
            _ => 0,
        }
    }

    /// Writes the register at `offset`, below [`CONFIG`]. A store to an offset without a register, or with a read-only
    /// one, is ignored.
    pub(super) fn write(&mut self, memory: &GuestMemoryMmap, offset: u32, value: u32) -> Event {
        match offset {
            VIRTIO_MMIO_DEVICE_FEATURES_SEL => self.offered_select = value,
            VIRTIO_MMIO_DRIVER_FEATURES_SEL => self.taken_select = value,
            VIRTIO_MMIO_DRIVER_FEATURES => self.take_features(value),
            VIRTIO_MMIO_QUEUE_SEL => self.queue_select = value,
            VIRTIO_MMIO_QUEUE_NUM => self.set_queue(|queue| queue.size = value),
            VIRTIO_MMIO_QUEUE_DESC_LOW => self.set_queue(|q| set_low(&mut q.descriptors, value)),
            VIRTIO_MMIO_QUEUE_DESC_HIGH => self.set_queue(|q| set_high(&mut q.descriptors, value)),
            VIRTIO_MMIO_QUEUE_AVAIL_LOW => self.set_queue(|q| set_low(&mut q.available, value)),
            VIRTIO_MMIO_QUEUE_AVAIL_HIGH => self.set_queue(|q| set_high(&mut q.available, value)),
            VIRTIO_MMIO_QUEUE_USED_LOW => self.set_queue(|q| set_low(&mut q.used, value)),
            VIRTIO_MMIO_QUEUE_USED_HIGH => self.set_queue(|q| set_high(&mut q.used, value)),
            VIRTIO_MMIO_QUEUE_READY => return self.start_queue(memory, value),
            // The value is the queue's index: VIRTIO_F_NOTIFICATION_DATA is not offered.
            VIRTIO_MMIO_QUEUE_NOTIFY => return Event::Look,
            VIRTIO_MMIO_INTERRUPT_ACK => self.interrupts &= !value,
            VIRTIO_MMIO_STATUS => return self.set_status(value),
            _ => {}
        }
        Event::None
    }

    /// 3.1.1: features are chosen until FEATURES_OK.
    fn take_features(&mut self, value: u32) {
        if self.status & VIRTIO_CONFIG_S_FEATURES_OK != 0 {
            return;
        }
        match self.taken_select {
            0 => set_low(&mut self.taken, value),
            1 => set_high(&mut self.taken, value),
            _ => {}
        }
    }

    fn set_queue(&mut self, set: impl FnOnce(&mut Virtqueue)) {
        if let Some(queue) = self.queues.get_mut(self.queue_select as usize) {
            set(queue);
        }
    }

    /// Starts or stops the queue (4.2.2): one makes it ready with its current description, zero stops it.
    fn start_queue(&mut self, memory: &GuestMemoryMmap, value: u32) -> Event {
        let index = self.queue_select as usize;
        match self.queues.get_mut(index) {
            Some(queue) if value == 1 && !queue.is_ready() => {
                if let Err(broken) = queue.start(memory) {
                    self.needs_reset(broken);
                }
                Event::None
            }
            Some(queue) if value == 0 && queue.is_ready() => {
                queue.stop();
                Event::Stopped(index)
            }
            _ => Event::None,
        }
    }

    /// Sets the status (2.1): bits are set one by one, and only a reset, a store of zero, clears any.
    fn set_status(&mut self, value: u32) -> Event {
        if value == 0 {
            let queues = self.queues.len();
            *self = Self::new(self.device, self.offered, queues, Arc::clone(&self.irq));
            return Event::Reset;
        }
        let was = self.status;
        self.status |= value & DRIVERS_BITS;
        let set = self.status & !was;
        let acceptable = self.taken & !self.offered == 0 && self.has(1 << VIRTIO_F_VERSION_1);
        if set & VIRTIO_CONFIG_S_FEATURES_OK != 0 && !acceptable {
            // 2.2.2: the driver reads this back and gives up.
            self.status &= !VIRTIO_CONFIG_S_FEATURES_OK;
        }
        if set & VIRTIO_CONFIG_S_DRIVER_OK == 0 {
            return Event::None;
        }
        if self.status & VIRTIO_CONFIG_S_FEATURES_OK == 0 {
            self.needs_reset(Broken("a driver that is ready without agreed features"));
        }
        Event::Look
    }
}

fn set_low(word: &mut u64, low: u32) {
    *word = *word >> 32 << 32 | u64::from(low);
}

fn set_high(word: &mut u64, high: u32) {
    *word = u64::from(high) << 32 | *word & 0xffff_ffff;
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("taken", &format_args!("{:#x}", self.taken))
            .field("status", &format_args!("{:#x}", self.status))
            .field("interrupts", &self.interrupts)
            .field("broken", &self.broken)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}
