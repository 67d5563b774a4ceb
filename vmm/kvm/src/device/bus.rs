// SPDX-License-Identifier: GPL-2.0-only
//! The bus: finds the device at an address.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::MmioDevice;

/// The devices, each at its place in the guest's physical address space.
#[derive(Default)]
pub struct Bus {
    /// Sorted by address.
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
    /// The requested start.
    pub base: u64,
    /// The requested number of bytes.
    pub bytes: u64,
}

impl Bus {
    /// Creates a bus without devices.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a device at `base`.
    ///
    /// It fails if the range is empty, ends behind the address space, or overlaps another device's.
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

    /// Returns a load by a CPU. False if no device has all of the bytes: `data` is left as it was.
    pub fn read(&self, address: u64, data: &mut [u8]) -> bool {
        match self.find(address, data.len()) {
            Some((mut device, offset)) => device.read(offset, data),
            None => return false,
        }
        true
    }

    /// Returns a store by a CPU. False if no device has all of the bytes.
    pub fn write(&self, address: u64, data: &[u8]) -> bool {
        match self.find(address, data.len()) {
            Some((mut device, offset)) => device.write(offset, data),
            None => return false,
        }
        true
    }

    /// Returns the device that has `bytes` at `address`, and their offset in it.
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
        // A panic of another thread never leaves a device half changed: its state is plain data.
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
