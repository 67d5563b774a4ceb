//! The guest's RAM: a memfd of ours, mapped once for the devices and KVM, and once to be read from outside.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use snapshot::{Mapping, Memory, MemoryError, Range, Region};
use stage1::PhysicalAddress;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use crate::layout::RAM;
use crate::KvmError;

/// The guest's RAM. Clones are of the same memory.
#[derive(Clone, Debug)]
pub(crate) struct Ram {
    range: Range,
    /// What devices use, and where KVM finds the memory.
    guest: GuestMemoryMmap,
    /// What a paused guest is read through.
    outside: Arc<Mapping>,
}

impl Ram {
    /// RAM of `bytes` bytes, all zero, at its place in the guest's address space.
    pub(crate) fn new(bytes: u64, hugepages: bool) -> Result<Self, KvmError> {
        let error = |source| KvmError::Memory {
            bytes,
            hugepages,
            source,
        };
        let file = memfd(bytes, hugepages).map_err(error)?;
        let length =
            usize::try_from(bytes).map_err(|_| error(io::ErrorKind::OutOfMemory.into()))?;
        let outside = Arc::new(Mapping::shared(&file.as_fd(), length).map_err(error)?);
        let range = (GuestAddress(RAM), length, Some(FileOffset::new(file, 0)));
        let guest = GuestMemoryMmap::from_ranges_with_files([range])
            .map_err(|reason| error(io::Error::other(reason)))?;
        let range = Range::new(PhysicalAddress(RAM), bytes)
            .ok_or_else(|| error(io::ErrorKind::OutOfMemory.into()))?;
        Ok(Self {
            range,
            guest,
            outside,
        })
    }

    /// Its guest physical addresses.
    pub(crate) fn range(&self) -> Range {
        self.range
    }

    /// The memory as devices and loaders use it.
    pub(crate) fn guest(&self) -> &GuestMemoryMmap {
        &self.guest
    }

    /// Where it is in our own address space, for KVM.
    pub(crate) fn host_address(&self) -> u64 {
        let region = self.guest.iter().next().expect("RAM is one region");
        region.as_ptr() as u64
    }

    /// The memory, to be read in place.
    ///
    /// # Safety
    /// Until the result is dropped, nobody but it may write to the guest's RAM: the caller has stopped
    /// all CPUs and devices, and keeps them so.
    pub(crate) unsafe fn live(&self) -> Result<Memory, MemoryError> {
        // SAFETY: our caller's promise is the one that is asked for here, and the size of the file is
        // sealed.
        let region = unsafe { Region::live(self.range, Arc::clone(&self.outside), 0) };
        Memory::new(vec![region], vec![self.range])
    }
}

/// Memory with no name in any file system, whose size is sealed: a mapping never meets its end.
fn memfd(bytes: u64, hugepages: bool) -> io::Result<File> {
    let mut flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    if hugepages {
        flags |= libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
    }
    // SAFETY: the name is a C string; the call returns a new descriptor or an error.
    let fd = unsafe { libc::memfd_create(c"folioscope-ram".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(bytes)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: plain system call on a descriptor of ours.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::*;

    #[test]
    fn both_mappings_are_of_one_memory() {
        let ram = Ram::new(4 << 20, false).unwrap();
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
