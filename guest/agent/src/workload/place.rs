//! Chooses the place of a mapping.

use std::ptr::null_mut;

use protocol::{Failure, Placement};
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

use crate::sys;

/// Pages that stay free on either side of an isolated mapping: enough that it is alone under its
/// last-level table, and more than the guard below a mapping that grows down.
const GAP_PAGES: u64 = 512;

/// Returns the address to pass to `mmap`, and the flags that make it final.
pub fn choose(
    place: &Placement,
    length: u64,
    least_align: u64,
    fixed: bool,
) -> Result<(u64, i32), Failure> {
    match place {
        Placement::At { address } => Ok((*address, 0)),
        _ if fixed => Err(Failure::bad(
            "`fixed` and `fixed_noreplace` need the address: {\"at\":{\"address\":...}}",
        )),
        Placement::Kernel => Ok((0, 0)),
        Placement::Isolated { align, offset, gap } => {
            let page = sys::page_size();
            // The span of a level-2 descriptor: a table is one page of 8-byte descriptors.
            let block = page * (page / 8);
            let wanted = Room {
                length: length.checked_next_multiple_of(page).ok_or_else(too_long)?,
                align: align.unwrap_or_else(|| block.max(least_align)),
                offset: *offset,
                gap: gap.unwrap_or(GAP_PAGES * page),
            };
            wanted.check(page)?;
            Ok((find(&wanted)?, libc::MAP_FIXED_NOREPLACE))
        }
    }
}

/// An isolated place.
#[derive(Debug, PartialEq, Eq)]
struct Room {
    length: u64,
    align: u64,
    offset: u64,
    gap: u64,
}

impl Room {
    fn check(&self, page: u64) -> Result<(), Failure> {
        if !self.align.is_power_of_two() || self.align < page {
            return Err(Failure::bad(format!(
                "the alignment {:#x} is no power of two, or is below the page size",
                self.align
            )));
        }
        if self.offset % page != 0 || self.offset >= self.align || self.gap % page != 0 {
            return Err(Failure::bad(
                "offset and gap must be multiples of the page size, the offset below the alignment",
            ));
        }
        Ok(())
    }

    /// Returns the size that has to be free so that the place is in it wherever it starts.
    fn span(&self) -> Option<u64> {
        let around = self.gap.checked_mul(2)?.checked_add(self.align)?;
        self.length.checked_add(around)
    }

    /// Returns the first address in a free range from `start` that fits.
    fn within(&self, start: u64) -> u64 {
        let low = start + self.gap;
        let base = low.saturating_sub(self.offset);
        base.next_multiple_of(self.align) + self.offset
    }
}

fn too_long() -> Failure {
    sys::errno(libc::ENOMEM, "mmap")
}

/// Finds free address space by mapping and unmapping it. This process has one thread, so that nothing else takes it
/// meanwhile.
fn find(room: &Room) -> Result<u64, Failure> {
    let span = room.span().ok_or_else(too_long)? as usize;
    let what = "mmap of the address space around it";
    // SAFETY: a new mapping at an address that the kernel chooses, never accessed, of which no other code knows when it
    // is unmapped.
    let start = sys::done(
        unsafe {
            mmap_anonymous(
                null_mut(),
                span,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
            .and_then(|start| munmap(start, span).map(|()| start))
        },
        what,
    )?;
    Ok(room.within(start as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_fits_wherever_the_free_range_starts() {
        let pages = |n: u64| n * 4096;
        for (align, offset, gap) in [(1, 0, 0), (16, 3, 0), (512, 511, 512), (512, 0, 1)] {
            let room = Room {
                length: pages(5),
                align: pages(align),
                offset: pages(offset),
                gap: pages(gap),
            };
            room.check(4096).unwrap();
            for first in 0..2048 {
                let start = pages(first);
                let at = room.within(start);
                assert_eq!(at % room.align, room.offset);
                assert!(at >= start + room.gap, "{room:?} from {start:#x}: {at:#x}");
                let end = start + room.span().unwrap();
                assert!(at + room.length + room.gap <= end, "{room:?} {start:#x}");
            }
        }
    }

    #[test]
    fn senseless_rooms_are_refused() {
        let room = |align, offset, gap| Room {
            length: 4096,
            align,
            offset,
            gap,
        };
        assert!(room(4096, 0, 4096).check(4096).is_ok());
        assert!(room(2048, 0, 0).check(4096).is_err());
        assert!(room(12288, 0, 0).check(4096).is_err());
        assert!(room(65536, 65536, 0).check(4096).is_err());
        assert!(room(65536, 1, 0).check(4096).is_err());
        assert!(room(65536, 0, 1).check(4096).is_err());
        assert_eq!(room(1 << 63, 0, 1 << 63).span(), None);
    }
}
