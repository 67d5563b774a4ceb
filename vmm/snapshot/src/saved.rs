// SPDX-License-Identifier: GPL-2.0-only
//! The bytes of a saved file, which is mapped and not read.
//!
//! Opening a core is a safe function, although the file is mapped, and a mapped file changes under its reader if another
//! process writes it. No system call forbids that: locks are advisory, and a lease needs the file's owner. This is what
//! keeps the function from doing harm:
//!
//! - The mapping is private and read-only, so nothing is ever written through it.
//! - It is read as bytes and as words, of which every bit pattern is one. No reference to a type with other rules (a
//!   `bool`, an enum, text) is made to it: text is checked in a copy.
//! - Each access is checked against the length of the mapping, which does not change. Places and lengths that the file
//!   states are checked when they are used, so a file that changes in between is a wrong file, and not a wrong access.
//! - A file that becomes shorter ends the process by SIGBUS, at the access.
//!
//! So a file that changes makes a wrong verdict or the end of the process. Rust's rules ask for more: bytes behind a
//! reference must not change at all. That part is the promise of the user who names the file, as for every program that
//! maps one (`memmap2` has the same in its documentation). This is the one place that makes it.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use crate::{Mapping, Range, Region};

/// A file that is mapped for reading, and that no task changes while this or a copy of it lives.
#[derive(Clone, Debug)]
pub(crate) struct Saved(Arc<Mapping>);

impl Saved {
    /// Maps all `bytes` bytes of `file`.
    pub(crate) fn map(file: &File, bytes: usize) -> io::Result<Self> {
        Ok(Self(Arc::new(Mapping::read_only(file, bytes)?)))
    }

    /// Creates a region of the words from byte `offset` on, a multiple of 8.
    ///
    /// # Panics
    /// If it does not lie in the file.
    pub(crate) fn region(&self, range: Range, offset: usize) -> Region {
        // SAFETY: the file does not change, see above.
        unsafe { Region::live(range, Arc::clone(&self.0), offset) }
    }

    /// Returns the first of the `bytes` bytes at `offset` that may be other than 0, and how many follow.
    pub(crate) fn data(&self, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        self.0.data(offset, bytes)
    }
}

impl Deref for Saved {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as in `region`.
        unsafe { self.0.slice(0, self.0.bytes()) }
    }
}
