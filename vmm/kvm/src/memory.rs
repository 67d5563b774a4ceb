// SPDX-License-Identifier: GPL-2.0-only
//! The guest's RAM: private anonymous memory, which a host with transparent huge pages maps in blocks.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use snapshot::{Mapping, Memory, MemoryError, Range, Region};
use stage1::PhysicalAddress;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use crate::layout::RAM;
use crate::KvmError;
use machine::host::GRAIN;

/// The guest's RAM. Clones share the same memory.
///
/// It is private memory and no file. KVM maps to the guest the pages that the host maps to us: with huge pages the
/// guest's first touch of 2 MiB costs one exit and not 512. Hosts rarely give a memfd huge pages (`shmem_enabled` is
/// `never`), and private memory on request (`enabled` is `madvise` or `always`).
#[derive(Clone, Debug)]
pub(crate) struct Ram {
    range: Range,
    mapping: Arc<Mapping>,
    /// The view of the memory for devices.
    guest: DeviceMemory,
}

/// Guest memory as devices use it. It stays mapped as long as they have it.
#[derive(Clone, Debug)]
pub struct DeviceMemory {
    guest: GuestMemoryMmap,
    _owner: Option<Arc<Mapping>>,
}

impl Deref for DeviceMemory {
    type Target = GuestMemoryMmap;

    fn deref(&self) -> &GuestMemoryMmap {
        &self.guest
    }
}

/// Wraps memory that owns itself.
impl From<GuestMemoryMmap> for DeviceMemory {
    fn from(guest: GuestMemoryMmap) -> Self {
        let _owner = None;
        Self { guest, _owner }
    }
}

impl Ram {
    /// Creates RAM of `bytes` bytes, all zero, at its place in the guest's address space.
    pub(crate) fn new(bytes: u64, hugepages: bool) -> Result<Self, KvmError> {
        let error = |source| KvmError::Memory {
            bytes,
            hugepages,
            source,
        };
        let too_much = || error(io::ErrorKind::OutOfMemory.into());
        let length = usize::try_from(bytes).map_err(|_| too_much())?;
        let range = Range::new(PhysicalAddress(RAM), bytes).ok_or_else(too_much)?;
        let mapping = match hugepages {
            true => Mapping::of_huge_pages(length),
            // The same offset in a block for us as for the guest, or KVM could not map blocks.
            false => Mapping::anonymous(length, GRAIN as usize),
        };
        let mapping = Arc::new(mapping.map_err(error)?);
        // SAFETY: the mapping is there in this length, readable and writable, and stays so as long as `_owner`
        // does, which goes wherever the region does.
        let region = unsafe {
            MmapRegion::build_raw(
                mapping.start().as_ptr(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            )
        };
        let region = region.map_err(|reason| error(io::Error::other(reason)))?;
        let region = GuestRegionMmap::new(region, GuestAddress(RAM)).ok_or_else(too_much)?;
        let guest = GuestMemoryMmap::from_regions(vec![region])
            .map_err(|reason| error(io::Error::other(reason)))?;
        let guest = DeviceMemory {
            guest,
            _owner: Some(Arc::clone(&mapping)),
        };
        Ok(Self {
            range,
            mapping,
            guest,
        })
    }

    /// Returns its guest physical addresses.
    pub(crate) fn range(&self) -> Range {
        self.range
    }

    /// Returns the memory as devices and loaders use it.
    pub(crate) fn guest(&self) -> &DeviceMemory {
        &self.guest
    }

    /// Returns its address in our own address space, for KVM.
    pub(crate) fn host_address(&self) -> u64 {
        self.mapping.start().as_ptr() as u64
    }

    /// Returns the memory, to be read in place.
    ///
    /// # Safety
    /// Until the result is dropped, only it may write to the guest's RAM: the caller has stopped all CPUs and devices,
    /// and keeps them stopped.
    pub(crate) unsafe fn live(&self) -> Result<Memory, MemoryError> {
        // SAFETY: our caller's promise is the one that is required here, and there is no file to truncate.
        let region = unsafe { Region::live(self.range, Arc::clone(&self.mapping), 0) };
        Memory::new(vec![region], vec![self.range])
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::*;

    #[test]
    fn devices_and_who_looks_see_one_memory() {
        let ram = Ram::new(4 << 20, false).unwrap();
        assert_eq!(ram.host_address() % GRAIN, 0);
        ram.guest()
            .write_obj(7_u64, GuestAddress(RAM + 4096))
            .unwrap();
        // SAFETY: there is neither guest nor device.
        let mut memory = unsafe { ram.live() }.unwrap();
        let words = |memory: &Memory| {
            let address = PhysicalAddress(RAM + 4096);
            stage1::PhysMemory::words(memory, address, 1).unwrap()[0]
        };
        assert_eq!(words(&memory), 7);
        memory.write(PhysicalAddress(RAM + 4096), &[8]).unwrap();
        assert_eq!(words(&memory), 8);
        drop(memory);
        assert_eq!(
            ram.guest()
                .read_obj::<u64>(GuestAddress(RAM + 4096))
                .unwrap(),
            8
        );
    }

    #[test]
    fn a_device_s_memory_stays_mapped() {
        let ram = Ram::new(4 << 20, false).unwrap();
        let device = ram.guest().clone();
        drop(ram);
        device.write_obj(7_u64, GuestAddress(RAM)).unwrap();
        assert_eq!(device.read_obj::<u64>(GuestAddress(RAM)).unwrap(), 7);
    }

    #[test]
    fn memory_that_the_host_has_not_is_refused_in_a_sentence() {
        let error = Ram::new(1 << 62, false).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot make 4611686018427387904 bytes"),
            "{error}"
        );
        let error = Ram::new(1 << 40, true).unwrap_err().to_string();
        assert!(error.contains("/proc/sys/vm/nr_hugepages"), "{error}");
    }
}
