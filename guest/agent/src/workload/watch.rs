// SPDX-License-Identifier: GPL-2.0-only
//! Pages that were written since they were protected: `PAGEMAP_SCAN` (fs/proc/task_mmu.c).
//!
//! The numbers are those of include/uapi/linux/fs.h and userfaultfd.h.

use std::fs::File;
use std::os::fd::OwnedFd;

use protocol::{Failure, Outcome};

use super::own::Own;
use super::uffd::{self, request_of};
use crate::sys;

const PAGEMAP: &str = "/proc/self/pagemap";
/// `_IOWR('f', 16, struct pm_scan_arg)`
const SCAN: u32 = 3 << 30 | 96 << 16 | 0x66 << 8 | 16;
const SCAN_BYTES: u64 = 96;
/// `PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC`
const PROTECT: u64 = 1 << 0 | 1 << 1;
const IS_WRITTEN: u64 = 1 << 1;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
/// Words of `struct page_region`: start, end, categories.
const REGION: usize = 3;
/// Regions of one request.
const REGIONS: usize = 64;

/// `UFFD_FEATURE_WP_ASYNC`
const ASYNC: u64 = 1 << 15;

/// The userfaultfd that resolves writes by itself.
static OPEN: Own<OwnedFd> = Own::new();

/// Registers a range, and protects the pages that are there.
pub fn watch(address: u64, length: u64) -> Result<Outcome, Failure> {
    OPEN.with(
        || uffd::start(ASYNC),
        |fd| uffd::protects(fd, address, length),
    )?;
    scan(address, length, PROTECT, IS_PRESENT | IS_SWAPPED)
}

/// Returns the pages that were written since.
pub fn written(address: u64, length: u64) -> Result<Outcome, Failure> {
    scan(address, length, 0, IS_WRITTEN)
}

/// Returns the pages of a range that are of one of these categories.
fn scan(address: u64, length: u64, flags: u64, any: u64) -> Result<Outcome, Failure> {
    let file =
        File::open(PAGEMAP).map_err(|error| sys::io_failure(&error, format!("open {PAGEMAP}")))?;
    let (fd, page) = (OwnedFd::from(file), sys::page_size() as usize);
    let end = address.saturating_add(length);
    let (mut start, mut pages) = (address, Vec::new());
    while start < end {
        let mut regions = [0u64; REGIONS * REGION];
        let to = regions.as_mut_ptr().expose_provenance() as u64;
        // struct pm_scan_arg: size, flags, start, end, walk_end (out), vec, vec_len, max_pages, then the masks: inverted, all,
        // any, returned.
        let mut argument = [
            SCAN_BYTES,
            flags,
            start,
            end,
            0,
            to,
            REGIONS as u64,
            0,
            0,
            0,
            any,
            any,
        ];
        let found = request_of(&fd, SCAN, &mut argument, "PAGEMAP_SCAN")?;
        let regions = regions.chunks_exact(REGION).take(found as usize);
        pages.extend(regions.flat_map(|region| (region[0]..region[1]).step_by(page)));
        if argument[4] <= start {
            return Err(Failure::bad(format!("PAGEMAP_SCAN stopped at 0x{start:x}")));
        }
        start = argument[4];
    }
    Ok(Outcome::Pages { pages })
}
