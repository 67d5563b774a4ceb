// SPDX-License-Identifier: GPL-2.0-only
//! Memory mapped into our address space: guest RAM, ours or another process's, and core files.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{null_mut, NonNull};

use rustix::io::Errno;
use rustix::mm::{madvise, mmap, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

/// Memory of this process: the first bytes of a file, or no file's.
///
/// It gives raw access only. A caller that makes a reference has to ensure that no task writes there meanwhile: see
/// [`crate::Region::live`].
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    writable: bool,
    /// The file, which may have holes.
    file: Option<OwnedFd>,
}

// SAFETY: the mapping is plain memory of the process, owned by this value and unmapped by its
// drop alone. All access through it is `unsafe` and its callers answer for races.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `file` for reading and writing, shared with all that map it.
    pub fn shared(file: &impl AsFd, bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mut mapping = Self::of_file(file, bytes, protection, MapFlags::SHARED)?;
        mapping.file = Some(file.as_fd().try_clone_to_owned()?);
        Ok(mapping)
    }

    /// Maps all of `file` for reading.
    pub(crate) fn read_only(file: &File, bytes: usize) -> io::Result<Self> {
        let mut mapping = Self::of_file(file, bytes, ProtFlags::READ, MapFlags::PRIVATE)?;
        mapping.file = Some(file.as_fd().try_clone_to_owned()?);
        Ok(mapping)
    }

    fn of_file(
        file: &impl AsFd,
        bytes: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<Self> {
        // SAFETY: with a null hint and without MAP_FIXED the kernel picks a free place, so no memory in use is
        // touched.
        let start = unsafe { mmap(null_mut(), bytes, protection, flags, file, 0) }?;
        Ok(Self::at(
            start,
            bytes,
            protection.contains(ProtFlags::WRITE),
        ))
    }

    /// Maps `bytes` bytes of private zeros for reading and writing, aligned to `align`. Both are multiples of the page
    /// size. The host allocates them on first touch, in huge pages if it has them.
    pub fn anonymous(bytes: usize, align: usize) -> io::Result<Self> {
        let all = bytes.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let whole = Self::of_none(all, flags)?;
        let before = whole.start.as_ptr().align_offset(align);
        // SAFETY: the place lies in the mapping, which has `align` bytes to spare.
        let start = unsafe { whole.start.add(before) };
        let (first, spare) = (whole.start, all - bytes - before);
        std::mem::forget(whole);
        // Unmaps both ends. After an error more is mapped than is used, which is harmless.
        // SAFETY: no other code has this memory's address, and the part that is kept lies between the two.
        unsafe {
            if before > 0 {
                let _ = munmap(first.as_ptr().cast(), before);
            }
            if spare > 0 {
                let _ = munmap(start.add(bytes).as_ptr().cast(), spare);
            }
        }
        let kept = Self {
            start,
            bytes,
            writable: true,
            file: None,
        };
        for advice in [Advice::LinuxHugepage, Advice::LinuxDontFork] {
            // A host without transparent huge pages has no such advice.
            // SAFETY: neither changes the memory's contents, nor whether it is mapped.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, advice) };
        }
        Ok(kept)
    }

    /// Maps `bytes` bytes of private zeros, of which a page takes memory when it is written.
    pub(crate) fn zeros(bytes: usize) -> io::Result<Self> {
        Self::of_none(bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    /// Maps private zeros on the host's reserved huge pages of 2 MiB; `bytes` is a multiple of that.
    pub fn of_huge_pages(bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        Self::of_none(bytes, flags)
    }

    fn of_none(bytes: usize, flags: MapFlags) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `of_file`.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, protection, flags) }?;
        Ok(Self::at(start, bytes, true))
    }

    fn at(start: *mut std::ffi::c_void, bytes: usize, writable: bool) -> Self {
        let start = NonNull::new(start.cast()).expect("mmap never places a mapping at 0 by itself");
        Self {
            start,
            bytes,
            writable,
            file: None,
        }
    }

    /// Returns the first of the `bytes` bytes at `offset` that may be other than 0, and how many follow: the others are
    /// holes of the file, which reading would fill. `None` where all are.
    pub(crate) fn data(&self, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        match &self.file {
            Some(file) => data_of(file, offset, bytes),
            None => Some((offset, bytes)),
        }
    }

    /// Returns the start, for interfaces that take an address, such as KVM.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether [`Mapping::write`] may be used.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns the `count` words at byte `offset`, a multiple of 8.
    ///
    /// # Panics
    /// If they do not lie in the mapping, or `offset` is not a multiple of 8.
    ///
    /// # Safety
    /// No task may write these bytes, in this process or another, nor truncate the file, while the slice lives.
    pub unsafe fn words(&self, offset: usize, count: usize) -> &[u64] {
        let bytes = count.checked_mul(8).expect("a length that fits");
        assert!(offset % 8 == 0, "byte offset {offset} is not word aligned");
        self.check(offset, bytes);
        // SAFETY: the bytes lie in the mapping (checked), which lives as long as `self`; a mapping starts on a page,
        // so the words are aligned; any bit pattern is a u64; the caller promises that they do not change.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset).cast(), count) }
    }

    /// Returns the `bytes` bytes at `offset`.
    ///
    /// # Panics
    /// If they do not lie in the mapping.
    ///
    /// # Safety
    /// As for [`Mapping::words`].
    pub(crate) unsafe fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        self.check(offset, bytes);
        // SAFETY: as in `words`, without the alignment.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), bytes) }
    }

    /// Copies `data` to byte `offset`.
    ///
    /// # Panics
    /// If it does not fit into the mapping, or the mapping is read-only.
    ///
    /// # Safety
    /// No slice of these bytes may be alive, and no other task may access them meanwhile.
    pub unsafe fn write(&self, offset: usize, data: &[u8]) {
        assert!(self.writable, "the mapping is read-only");
        self.check(offset, data.len());
        // SAFETY: the target lies in the mapping (checked), which is writable; `data` is a live
        // reference and so cannot overlap it by the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(
                data.as_ptr(),
                self.start.as_ptr().add(offset),
                data.len(),
            );
        }
    }

    fn check(&self, offset: usize, bytes: usize) {
        assert!(
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {offset} are not in a mapping of {} bytes",
            self.bytes
        );
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and length are those that mmap returned, and nothing borrowed from the
        // mapping outlives it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Returns the first of the `bytes` bytes at `offset` of a file that may be other than 0, and the number that follow;
/// `None` if all lie in a hole. A file system without support for holes has none.
pub fn data_of(file: &impl AsFd, offset: u64, bytes: u64) -> Option<(u64, u64)> {
    use rustix::fs::{seek, SeekFrom};
    let end = offset.checked_add(bytes)?;
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return None,
        Err(_) => return Some((offset, bytes)),
    };
    if start >= end {
        return None;
    }
    let until = seek(file, SeekFrom::Hole(start)).unwrap_or(end).min(end);
    Some((start, until.saturating_sub(start).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_no_file_is_zero_and_where_it_was_asked_for() {
        const MIB: usize = 1 << 20;
        for align in [4096, 2 * MIB, 16 * MIB] {
            let mapping = Mapping::anonymous(6 * MIB, align).unwrap();
            assert_eq!(mapping.start().as_ptr() as usize % align, 0);
            // SAFETY: no other code has its address.
            unsafe {
                assert!(mapping.slice(0, 6 * MIB).iter().all(|byte| *byte == 0));
                mapping.write(6 * MIB - 1, &[7]);
                assert_eq!(mapping.slice(6 * MIB - 1, 1), [7]);
            }
        }
        assert!(Mapping::anonymous(usize::MAX - 4095, 4096).is_err());
    }
}
