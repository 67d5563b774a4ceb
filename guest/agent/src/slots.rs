//! The words that the agent and its workload processes share, one slot per process.
//!
//! A checkpoint must make no system call between its announcement and its release, so these are words of memory and not
//! messages. They are in a small file that every process maps; a child inherits a mapping that was made before the
//! fork.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::Failure;

use crate::sys;

/// Maximum number of processes at the same time.
pub const SLOTS: usize = 1024;

/// The file's size: one page of the largest granule.
pub const BYTES: usize = SLOTS * size_of::<Slot>();

/// Address at which a workload maps the file if it can: below the program, far from the memory under test.
pub const WORKLOAD_ADDRESS: usize = 0x20_0000;

/// One process's words. The code of a checkpoint uses their offsets.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// The number of the checkpoint in whose loop the process is, or last was.
    pub announced: AtomicU64,
    /// The number of the checkpoint that the agent has released last.
    pub released: AtomicU64,
    /// The bell of a machine without a doorbell: written while the process waits, never read.
    pub unheard: AtomicU64,
}

/// All slots.
#[derive(Debug, Clone, Copy)]
pub struct Slots(&'static [Slot]);

impl Slots {
    /// Creates the file with all words zero and maps it, for the agent.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let path = path.to_string_lossy();
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
        let file = std::fs::File::from(sys::open(&path, flags)?);
        file.set_len(BYTES as u64)
            .map_err(|e| sys::io_failure(&e, format!("truncate {path}")))?;
        Self::map(&file, std::ptr::null_mut(), 0)
    }

    /// Maps the file that the agent made, for a workload.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = std::fs::File::from(sys::open(&path.to_string_lossy(), libc::O_RDWR)?);
        let low = std::ptr::without_provenance_mut(WORKLOAD_ADDRESS);
        Self::map(&file, low, libc::MAP_FIXED_NOREPLACE)
            .or_else(|_| Self::map(&file, std::ptr::null_mut(), 0))
    }

    fn map(file: &std::fs::File, at: *mut libc::c_void, flags: i32) -> Result<Self, Failure> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | flags;
        // SAFETY: it replaces no mapping, as MAP_FIXED alone would.
        let address = unsafe { libc::mmap(at, BYTES, prot, flags, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(sys::last_errno("mmap of the shared slots"));
        }
        // SAFETY: the mapping is that long, is never unmapped or truncated, starts on a page, and
        // the slots hold atomics, which any process may change.
        Ok(Self(unsafe {
            std::slice::from_raw_parts(address.cast::<Slot>(), SLOTS)
        }))
    }

    /// Returns the slot of that number.
    pub fn slot(&self, number: usize) -> &'static Slot {
        &self.0[number]
    }
}

impl Slot {
    /// Returns whether the process is in the loop of that checkpoint, or has been.
    pub fn has_announced(&self, checkpoint: u64) -> bool {
        self.announced.load(Ordering::Acquire) == checkpoint
    }

    /// Lets the process out of the loop of that checkpoint.
    pub fn release(&self, checkpoint: u64) {
        self.released.store(checkpoint, Ordering::Release);
    }
}
