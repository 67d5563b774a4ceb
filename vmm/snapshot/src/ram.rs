// SPDX-License-Identifier: GPL-2.0-only
//! All RAM of a guest, read where it is.

use std::fmt::Debug;
use std::io;

use stage1::PhysicalAddress;

use crate::Range;

/// All RAM of a stopped guest.
pub trait Ram: Debug {
    /// Returns where it is: ranges of whole pages that do not overlap.
    fn ranges(&self) -> Vec<Range>;

    /// Returns the first part of `range`, which lies in one of those, that may hold anything but zeros; `None` if all
    /// are zeros. It avoids reading memory that was never written.
    fn data(&self, range: Range) -> Option<Range> {
        Some(range)
    }

    /// Reads memory that lies in one of the ranges.
    ///
    /// # Errors
    /// The system's error.
    fn read(&self, address: PhysicalAddress, buffer: &mut [u8]) -> io::Result<()>;
}
