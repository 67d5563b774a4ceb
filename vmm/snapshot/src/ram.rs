//! All RAM of a guest, read where it is.

use std::fmt::Debug;
use std::io;

use stage1::PhysicalAddress;

use crate::Range;

/// All RAM of a guest that stands still.
pub trait Ram: Debug {
    /// Where it is: ranges of whole pages that do not overlap.
    fn ranges(&self) -> Vec<Range>;

    /// The first part of `range`, which lies in one of those, that may hold anything but zeros; `None` where none does.
    /// It spares reading what was never written to.
    fn data(&self, range: Range) -> Option<Range> {
        Some(range)
    }

    /// Reads what lies in one of the ranges.
    ///
    /// # Errors
    /// What the system said.
    fn read(&self, address: PhysicalAddress, buffer: &mut [u8]) -> io::Result<()>;
}
