//! userfaultfd, used by the thread that faults: an access that it would have to resolve ends in SIGBUS, which the probe
//! reports, and is resolved by an operation of its own.
//!
//! The numbers are those of include/uapi/linux/userfaultfd.h, which the libc crate does not have.

use std::os::fd::{AsRawFd, OwnedFd};

use protocol::{pattern, Failure, MoveFlag, Outcome, UffdMode};
use rustix::mm::{userfaultfd, UserfaultfdFlags};

use super::memory;
use super::own::Own;
use crate::sys;

const API: u64 = 0xaa;
const FEATURE_SIGBUS: u64 = 1 << 7;
const MODE_MISSING: u64 = 1 << 0;
const MODE_WP: u64 = 1 << 1;
const MODE_MINOR: u64 = 1 << 2;
const COPY_MODE_WP: u64 = 1 << 1;
/// Number of times that a request is made again after EAGAIN.
const TRIES: u32 = 10_000;
const MOVE_MODE_ALLOW_SRC_HOLES: u64 = 1 << 1;

/// Returns `_IOWR(0xaa, nr, size)`, the kernel's encoding of a request.
const fn iowr(nr: u32, size: u32) -> u32 {
    3 << 30 | size << 16 | 0xaa << 8 | nr
}
const IO_API: u32 = iowr(0x3f, 24);
const IO_REGISTER: u32 = iowr(0x00, 32);
/// `_IOR(0xaa, 1, struct uffdio_range)`
const IO_UNREGISTER: u32 = 2 << 30 | 16 << 16 | 0xaa << 8 | 0x01;
const IO_COPY: u32 = iowr(0x03, 40);
const IO_ZEROPAGE: u32 = iowr(0x04, 32);
const IO_MOVE: u32 = iowr(0x05, 40);
const IO_WRITEPROTECT: u32 = iowr(0x06, 24);
const IO_CONTINUE: u32 = iowr(0x07, 32);
const IO_POISON: u32 = iowr(0x08, 32);

/// The descriptor. A child's copy of it would still refer to the parent's memory.
static OPEN: Own<OwnedFd> = Own::new();

pub fn register(address: u64, length: u64, modes: &[UffdMode]) -> Result<Outcome, Failure> {
    let modes = modes.iter().fold(0, |bits, mode| {
        bits | match mode {
            UffdMode::Missing => MODE_MISSING,
            UffdMode::WriteProtect => MODE_WP,
            UffdMode::Minor => MODE_MINOR,
        }
    });
    // struct uffdio_register: range, mode, ioctls (out)
    let mut argument = [address, length, modes, 0];
    ask(IO_REGISTER, &mut argument, "UFFDIO_REGISTER")
}

pub fn unregister(address: u64, length: u64) -> Result<Outcome, Failure> {
    ask(IO_UNREGISTER, &mut [address, length], "UFFDIO_UNREGISTER")
}

pub fn zeropage(address: u64, length: u64) -> Result<Outcome, Failure> {
    // struct uffdio_zeropage: range, mode, zeropage (out)
    ask(IO_ZEROPAGE, &mut [address, length, 0, 0], "UFFDIO_ZEROPAGE")
}

pub fn exchange(address: u64, source: u64, length: u64) -> Result<Outcome, Failure> {
    // struct uffdio_move: dst, src, len, mode, move (out)
    ask(IO_MOVE, &mut [address, source, length, 0, 0], "UFFDIO_MOVE")
}

/// Moves all pages that a range has; a page that is refused (EBUSY), as it is shared or held, by `mremap()`.
pub fn relocate(source: u64, length: u64, address: u64) -> Result<Outcome, Failure> {
    let page = sys::page_size();
    let (mut done, mut refused, mut tries) = (0, Vec::new(), 0);
    while done < length {
        let (to, from) = (address + done, source + done);
        // struct uffdio_move: dst, src, len, mode (holes are moved too), move (out: bytes, or an errno below 0)
        let mut argument = [to, from, length - done, MOVE_MODE_ALLOW_SRC_HOLES, 0];
        let moved = ask(IO_MOVE, &mut argument, "UFFDIO_MOVE");
        done += u64::try_from(argument[4] as i64).unwrap_or(0);
        match moved {
            Err(failure) if failure.errno() == Some("EBUSY") && done < length => {
                let (to, from) = (address + done, source + done);
                let flags = [MoveFlag::Maymove, MoveFlag::Fixed];
                memory::mremap(from, page, page, &flags, Some(to))?;
                refused.push(to);
                done += page;
            }
            // It ends so when a part was moved, and when the page was in use.
            Err(failure) if failure.errno() == Some("EAGAIN") && tries < TRIES => tries += 1,
            moved => {
                moved?;
            }
        }
    }
    memory::munmap(source, length)?;
    Ok(Outcome::Pages { pages: refused })
}

pub fn writeprotect(address: u64, length: u64, on: bool) -> Result<Outcome, Failure> {
    // UFFDIO_WRITEPROTECT_MODE_WP is 1; struct uffdio_writeprotect: range, mode
    let mut argument = [address, length, u64::from(on)];
    ask(IO_WRITEPROTECT, &mut argument, "UFFDIO_WRITEPROTECT")
}

/// `UFFDIO_CONTINUE`.
pub fn resume(address: u64, length: u64) -> Result<Outcome, Failure> {
    // struct uffdio_continue: range, mode, mapped (out)
    ask(IO_CONTINUE, &mut [address, length, 0, 0], "UFFDIO_CONTINUE")
}

pub fn poison(address: u64, length: u64) -> Result<Outcome, Failure> {
    // struct uffdio_poison: range, mode, updated (out)
    ask(IO_POISON, &mut [address, length, 0, 0], "UFFDIO_POISON")
}

/// Fills one page at a time, from a buffer with the contents that a touch would leave there.
pub fn copy(address: u64, length: u64, salt: u64, write_protect: bool) -> Result<Outcome, Failure> {
    let page = sys::page_size();
    if address % page != 0 || length % page != 0 || address.checked_add(length).is_none() {
        return Err(Failure::bad(
            "address and length must be multiples of the page size",
        ));
    }
    let mut source = vec![0u64; page as usize / 8];
    let mode = if write_protect { COPY_MODE_WP } else { 0 };
    for at in (address..address + length).step_by(page as usize) {
        source[0] = pattern(at, salt);
        // struct uffdio_copy: dst, src, len, mode, copy (out)
        let from = source.as_ptr().expose_provenance() as u64;
        ask(IO_COPY, &mut [at, from, page, mode, 0], "UFFDIO_COPY")?;
    }
    Ok(Outcome::Done {})
}

/// Sends one request to the process's userfaultfd, which is opened on first use.
fn ask(request: u32, argument: &mut [u64], call: &str) -> Result<Outcome, Failure> {
    OPEN.with(
        || start(FEATURE_SIGBUS),
        |fd| request_of(fd, request, argument, call).map(|_| Outcome::Done {}),
    )
}

/// Registers a range with a userfaultfd for write protection.
pub(super) fn protects(fd: &OwnedFd, address: u64, length: u64) -> Result<i64, Failure> {
    let mut argument = [address, length, MODE_WP, 0];
    request_of(fd, IO_REGISTER, &mut argument, "UFFDIO_REGISTER")
}

/// Opens a userfaultfd with these features.
pub(super) fn start(features: u64) -> Result<OwnedFd, Failure> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: the descriptor is used for memory under test alone, to which no reference is ever made.
    let fd = sys::done(unsafe { userfaultfd(flags) }, "userfaultfd")?;
    // struct uffdio_api: api, features, ioctls (out)
    request_of(&fd, IO_API, &mut [API, features, 0], "UFFDIO_API")?;
    Ok(fd)
}

/// Sends one request of `ioctl(2)`, whose argument is an array of words, and returns its result.
pub(super) fn request_of(
    fd: &OwnedFd,
    request: u32,
    argument: &mut [u64],
    call: &str,
) -> Result<i64, Failure> {
    debug_assert_eq!((request >> 16 & 0x3fff) as usize, argument.len() * 8);
    // SAFETY: the argument is as large as the request's number states.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument.as_mut_ptr()) };
    sys::check(i64::from(result), call)
}
