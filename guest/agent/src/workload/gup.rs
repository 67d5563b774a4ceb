// SPDX-License-Identifier: GPL-2.0-only
//! Pages that are pinned as a device's driver pins them, and what such a device would read (mm/gup_test.c).

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};

use protocol::{Failure, Outcome};

use super::touch::{compared, Steps};
use super::uffd::request_of;
use crate::sys;

/// `_IOW('g', 7, struct pin_longterm_test)`: addr, size, flags.
const PIN_LONGTERM_TEST_START: u32 = 1 << 30 | 24 << 16 | 0x67 << 8 | 7;
/// `_IO('g', 8)`
const PIN_LONGTERM_TEST_STOP: u32 = 0x67 << 8 | 8;
/// `_IOW('g', 9, __u64)`: the buffer for all pages.
const PIN_LONGTERM_TEST_READ: u32 = 1 << 30 | 8 << 16 | 0x67 << 8 | 9;
/// `PIN_LONGTERM_TEST_FLAG_USE_WRITE`
const FOR_WRITING: u64 = 1;
/// `PIN_LONGTERM_TEST_FLAG_USE_FAST`
const FAST: u64 = 2;

/// The file by which pages are pinned, and their length in bytes. The kernel has one set of them at a time, until the last
/// process that has the file closes it.
static PINNED: Mutex<Option<(OwnedFd, u64)>> = Mutex::new(None);

/// Pins a range, for a device that writes, or for one that reads alone. What was pinned before is let go.
pub fn pin(address: u64, length: u64, read_only: bool) -> Result<Outcome, Failure> {
    let flags = if read_only { FAST } else { FOR_WRITING };
    let mut pinned = pinned();
    *pinned = None;
    let file = File::open("/sys/kernel/debug/gup_test")
        .map_err(|error| sys::io_failure(&error, "open /sys/kernel/debug/gup_test"))?;
    let fd = OwnedFd::from(file);
    request_of(
        &fd,
        PIN_LONGTERM_TEST_START,
        &mut [address, length, flags],
        "PIN_LONGTERM_TEST_START",
    )?;
    *pinned = Some((fd, length));
    Ok(Outcome::Done {})
}

/// Lets the pinned range go, whichever process with this file has pinned it.
pub fn unpin() -> Result<Outcome, Failure> {
    let Some((fd, _)) = pinned().take() else {
        return Err(Failure::bad("no page is pinned"));
    };
    request_of(
        &fd,
        PIN_LONGTERM_TEST_STOP,
        &mut [0],
        "PIN_LONGTERM_TEST_STOP",
    )?;
    Ok(Outcome::Done {})
}

/// Compares a range with the pinned pages from `offset` bytes on.
pub fn verify(address: u64, length: u64, offset: u64) -> Result<Outcome, Failure> {
    let pinned = pinned();
    let Some((fd, all)) = &*pinned else {
        return Err(Failure::bad("no page is pinned"));
    };
    if offset.checked_add(length).is_none_or(|end| end > *all) || offset % 8 != 0 {
        return Err(Failure::bad(format!("the pinned pages have {all} bytes")));
    }
    let mut held = vec![0u64; *all as usize / 8];
    let buffer = held.as_mut_ptr().expose_provenance() as u64;
    request_of(
        fd,
        PIN_LONGTERM_TEST_READ,
        &mut [buffer],
        "PIN_LONGTERM_TEST_READ",
    )?;
    let steps = Steps::new(address, length, Some(8))?;
    let first = offset as usize / 8;
    compared(&steps, |step| held[first + step as usize]).map(Outcome::Verified)
}

fn pinned() -> MutexGuard<'static, Option<(OwnedFd, u64)>> {
    PINNED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
