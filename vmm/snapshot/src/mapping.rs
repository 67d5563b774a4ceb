//! Files mapped into our address space: guest RAM that another process writes, and core files.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

/// The first bytes of a file, mapped.
///
/// It hands out raw access only. Whoever builds a reference on it has to know that nobody writes
/// there meanwhile: see [`crate::Region::live`].
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

// SAFETY: the mapping is plain memory of the process, owned by this value and unmapped by its
// drop alone. All access through it is `unsafe` and its callers answer for races.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `file` for reading and writing, shared with all who map it.
    pub fn shared(file: &impl AsFd, bytes: usize) -> io::Result<Self> {
        Self::map(
            file,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
        )
    }

    /// Maps all of `file` for reading.
    pub(crate) fn read_only(file: &File, bytes: usize) -> io::Result<Self> {
        Self::map(file, bytes, libc::PROT_READ, libc::MAP_PRIVATE)
    }

    fn map(file: &impl AsFd, bytes: usize, protection: i32, flags: i32) -> io::Result<Self> {
        // SAFETY: with a null hint and without MAP_FIXED the kernel picks a free place, so no
        // memory that anybody else uses is touched.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                flags,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mmap never places a mapping at 0 by itself");
        Ok(Self {
            start,
            bytes,
            writable: protection & libc::PROT_WRITE != 0,
        })
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether [`Mapping::write`] may be used.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The `count` words at byte `offset`, a multiple of 8.
    ///
    /// # Panics
    /// If they do not lie in the mapping, or `offset` is not a multiple of 8.
    ///
    /// # Safety
    /// Nobody may write these bytes, in this process or another, nor cut the file short, while
    /// the slice lives.
    pub unsafe fn words(&self, offset: usize, count: usize) -> &[u64] {
        let bytes = count.checked_mul(8).expect("a length that fits");
        assert!(offset % 8 == 0, "byte offset {offset} is not word aligned");
        self.check(offset, bytes);
        // SAFETY: the bytes lie in the mapping (checked), which lives as long as `self`; a
        // mapping starts on a page, so the words are aligned; any bit pattern is a u64; that
        // they do not change is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset).cast(), count) }
    }

    /// The `bytes` bytes at `offset`.
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
    /// No slice of these bytes may be alive, and nobody else may access them meanwhile.
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
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
