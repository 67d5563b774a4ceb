//! Which device is at an address.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::MmioDevice;

/// The devices, each at its place in the guest's physical address space.
#[derive(Default)]
pub struct Bus {
    /// By address.
    slots: Vec<Slot>,
}

struct Slot {
    base: u64,
    bytes: u64,
    device: Arc<Mutex<dyn MmioDevice>>,
}

/// A device that was to be put where it has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a device cannot have {bytes:#x} bytes at {base:#x}: there is another one, or no such address"
)]
pub struct Overlap {
    /// Where it was to begin.
    pub base: u64,
    /// How many bytes it was to have.
    pub bytes: u64,
}

impl Bus {
    /// A bus without devices.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a device at `base`.
    ///
    /// It fails where the range is empty, ends behind the address space, or meets another device's.
    pub fn add(
        &mut self,
        base: u64,
        bytes: u64,
        device: Arc<Mutex<dyn MmioDevice>>,
    ) -> Result<(), Overlap> {
        let refused = Overlap { base, bytes };
        let end = base.checked_add(bytes).ok_or(refused)?;
        let at = self.slots.partition_point(|slot| slot.base < base);
        let before = at.checked_sub(1).map(|before| &self.slots[before]);
        let meets_before = before.is_some_and(|before| before.base + before.bytes > base);
        let meets_behind = self.slots.get(at).is_some_and(|behind| behind.base < end);
        if bytes == 0 || meets_before || meets_behind {
            return Err(refused);
        }
        let slot = Slot {
            base,
            bytes,
            device,
        };
        self.slots.insert(at, slot);
        Ok(())
    }

    /// A load by a CPU. False if no device has all of the bytes: `data` is left as it was.
    pub fn read(&self, address: u64, data: &mut [u8]) -> bool {
        match self.find(address, data.len()) {
            Some((mut device, offset)) => device.read(offset, data),
            None => return false,
        }
        true
    }

    /// A store by a CPU. False if no device has all of the bytes.
    pub fn write(&self, address: u64, data: &[u8]) -> bool {
        match self.find(address, data.len()) {
            Some((mut device, offset)) => device.write(offset, data),
            None => return false,
        }
        true
    }

    /// The device that has `bytes` at `address`, and how far from its start they are.
    fn find(
        &self,
        address: u64,
        bytes: usize,
    ) -> Option<(MutexGuard<'_, dyn MmioDevice + 'static>, u64)> {
        let at = self.slots.partition_point(|slot| slot.base <= address);
        let slot = &self.slots[at.checked_sub(1)?];
        let offset = address - slot.base;
        let end = offset.checked_add(bytes as u64)?;
        if offset >= slot.bytes || end > slot.bytes {
            return None;
        }
        // A device is never left half changed by a panic of another thread: what it holds is plain data.
        let device = slot.device.lock().unwrap_or_else(PoisonError::into_inner);
        Some((device, offset))
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.slots.iter().map(|slot| (slot.base, slot.bytes));
        f.debug_list().entries(ranges).finish()
    }
}
