//! Operations that change mappings.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};

use protocol::{
    Advice, Backing, Failure, LockFlag, MapFlag, MoveFlag, Outcome, Placement, Protection,
};
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::process::{pidfd_open, Pid, PidfdFlags};

use super::{place, probe};
use crate::sys;

pub fn madvise(address: u64, length: u64, advice: Advice) -> Result<Outcome, Failure> {
    let call = || {
        let number = number(advice) as usize;
        on_range(libc::SYS_madvise, address, length, number, "madvise")
    };
    match advice {
        // The kernel tells the caller of the page by SIGBUS too.
        Advice::Hwpoison => probe::without_poison_signals(call),
        _ => call(),
    }
}

pub fn mprotect(address: u64, length: u64, prot: &[Protection]) -> Result<Outcome, Failure> {
    let prot = protection(prot) as usize;
    on_range(libc::SYS_mprotect, address, length, prot, "mprotect")
}

pub fn mremap(
    address: u64,
    length: u64,
    new_length: u64,
    flags: &[MoveFlag],
    new_address: Option<u64>,
) -> Result<Outcome, Failure> {
    let flags = flags.iter().fold(0, |bits, flag| bits | move_flag(*flag));
    let to = at(new_address.unwrap_or(0));
    let (old, new) = (length as usize, new_length as usize);
    // SAFETY: see `at`.
    let address = unsafe { libc::mremap(at(address), old, new, flags, to) };
    mapped(address, new_length, "mremap")
}

pub fn munmap(address: u64, length: u64) -> Result<Outcome, Failure> {
    on_range(libc::SYS_munmap, address, length, 0, "munmap")
}

pub fn mlock(address: u64, length: u64, flags: &[LockFlag]) -> Result<Outcome, Failure> {
    // MLOCK_ONFAULT is 1.
    let onfault = usize::from(flags.contains(&LockFlag::Onfault));
    on_range(libc::SYS_mlock2, address, length, onfault, "mlock2")
}

pub fn munlock(address: u64, length: u64) -> Result<Outcome, Failure> {
    on_range(libc::SYS_munlock, address, length, 0, "munlock")
}

pub fn mseal(address: u64, length: u64) -> Result<Outcome, Failure> {
    on_range(libc::SYS_mseal, address, length, 0, "mseal")
}

/// Converts an address of the host's. The host is responsible for changes of mappings that no operation made, which may
/// end this process; no reference is ever made to such memory.
fn at(address: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(address as usize)
}

/// Makes one of the system calls that take an address, a length and at most one number. The C library's functions of
/// their names do no more.
fn on_range(
    call: libc::c_long,
    address: u64,
    length: u64,
    number: usize,
    name: &str,
) -> Result<Outcome, Failure> {
    on_memory(
        call,
        [address as usize, length as usize, number, 0, 0, 0],
        name,
    )
}

/// Makes a system call on memory: of addresses as of [`at`], numbers, and lists that outlive it, which the kernel reads.
pub(super) fn on_memory(
    call: libc::c_long,
    [a, b, c, d, e, f]: [usize; 6],
    name: &str,
) -> Result<Outcome, Failure> {
    // SAFETY: see `at`; the callers are the modules of operations on memory.
    let result = unsafe { libc::syscall(call, a, b, c, d, e, f) };
    sys::check(result, name).map(|_| Outcome::Done {})
}

pub fn process_madvise(
    pid: i32,
    address: u64,
    length: u64,
    advice: Advice,
) -> Result<Outcome, Failure> {
    let Some(pid) = Pid::from_raw(pid) else {
        return Err(Failure::bad("a pid is a number above 0"));
    };
    let process = sys::done(pidfd_open(pid, PidfdFlags::empty()), "pidfd_open")?;
    let range = libc::iovec {
        iov_base: at(address),
        iov_len: length as usize,
    };
    let (fd, list) = (
        process.as_raw_fd() as usize,
        (&raw const range).expose_provenance(),
    );
    let words = [fd, list, 1, number(advice) as usize, 0, 0];
    on_memory(libc::SYS_process_madvise, words, "process_madvise")
}

fn mapped(address: *mut c_void, length: u64, call: &str) -> Result<Outcome, Failure> {
    if address == libc::MAP_FAILED {
        return Err(sys::last_errno(call));
    }
    Ok(Outcome::Mapped {
        address: address as u64,
        length,
    })
}

pub fn map(
    length: u64,
    backing: &Backing,
    prot: &[Protection],
    flags: &[MapFlag],
    place: &Placement,
) -> Result<Outcome, Failure> {
    let mut bits = flags.iter().fold(0, |bits, flag| bits | map_flag(*flag));
    if bits & libc::MAP_TYPE == 0 {
        bits |= libc::MAP_PRIVATE;
    }
    let fixed = bits & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    let source = Source::open(backing, bits, length)?;
    let (address, more) = place::choose(place, length, source.align, fixed)?;
    let fd = source.file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: see `at`; MAP_FIXED is the host's choice.
    let address = unsafe {
        libc::mmap(
            at(address),
            length as usize,
            protection(prot),
            bits | source.flags | more,
            fd,
            source.offset,
        )
    };
    mapped(address, length, "mmap")
}

/// The memory behind a mapping.
struct Source {
    file: Option<OwnedFd>,
    offset: i64,
    flags: i32,
    /// The least alignment that the mapping can have.
    align: u64,
}

impl Source {
    fn open(backing: &Backing, flags: i32, length: u64) -> Result<Self, Failure> {
        let mut source = Self {
            file: None,
            offset: 0,
            flags: 0,
            align: 0,
        };
        match backing {
            Backing::Anonymous => source.flags = libc::MAP_ANONYMOUS,
            Backing::File { path, offset } => {
                let private = flags & libc::MAP_TYPE == libc::MAP_PRIVATE;
                let file = if private {
                    sys::open(path, libc::O_RDONLY)
                } else {
                    sys::open(path, libc::O_RDWR).or_else(|_| sys::open(path, libc::O_RDONLY))
                };
                source.file = Some(file?);
                source.offset = i64::try_from(*offset)
                    .map_err(|_| Failure::bad("the offset is beyond any file"))?;
            }
            Backing::Hugetlb { size_kib } => {
                let log2 = log2_bytes(*size_kib)?;
                source.align = 1 << log2;
                source.flags = libc::MAP_ANONYMOUS
                    | libc::MAP_HUGETLB
                    | ((log2 as i32) << libc::MAP_HUGE_SHIFT);
            }
            Backing::Memfd { size, hugetlb_kib } => {
                let mut flags = libc::MFD_CLOEXEC;
                if let Some(kib) = hugetlb_kib {
                    let log2 = log2_bytes(*kib)?;
                    source.align = 1 << log2;
                    flags |= libc::MFD_HUGETLB | (log2 << libc::MAP_HUGE_SHIFT);
                }
                source.file = Some(memfd(flags, size.unwrap_or(length))?);
            }
        }
        Ok(source)
    }
}

fn log2_bytes(kib: u64) -> Result<u32, Failure> {
    if !kib.is_power_of_two() || kib > 1 << 40 {
        return Err(Failure::bad(format!(
            "{kib} KiB is no size of a huge page: a power of two is"
        )));
    }
    Ok(kib.trailing_zeros() + 10)
}

fn memfd(flags: u32, size: u64) -> Result<OwnedFd, Failure> {
    let flags = MemfdFlags::from_bits_retain(flags);
    let file = sys::done(memfd_create(c"folioscope", flags), "memfd_create")?;
    sys::done(ftruncate(&file, size), "ftruncate")?;
    Ok(file)
}

fn protection(prot: &[Protection]) -> i32 {
    prot.iter().fold(libc::PROT_NONE, |bits, one| {
        bits | match one {
            Protection::Read => libc::PROT_READ,
            Protection::Write => libc::PROT_WRITE,
            Protection::Exec => libc::PROT_EXEC,
            // arch/arm64/include/uapi/asm/mman.h
            Protection::Bti => 0x10,
            Protection::Mte => 0x20,
        }
    })
}

fn map_flag(flag: MapFlag) -> i32 {
    match flag {
        MapFlag::Private => libc::MAP_PRIVATE,
        MapFlag::Shared => libc::MAP_SHARED,
        MapFlag::SharedValidate => libc::MAP_SHARED_VALIDATE,
        MapFlag::Fixed => libc::MAP_FIXED,
        MapFlag::FixedNoreplace => libc::MAP_FIXED_NOREPLACE,
        MapFlag::Populate => libc::MAP_POPULATE,
        MapFlag::Nonblock => libc::MAP_NONBLOCK,
        MapFlag::Noreserve => libc::MAP_NORESERVE,
        MapFlag::Growsdown => libc::MAP_GROWSDOWN,
        MapFlag::Locked => libc::MAP_LOCKED,
        MapFlag::Stack => libc::MAP_STACK,
        MapFlag::Sync => libc::MAP_SYNC,
    }
}

fn move_flag(flag: MoveFlag) -> i32 {
    match flag {
        MoveFlag::Maymove => libc::MREMAP_MAYMOVE,
        MoveFlag::Fixed => libc::MREMAP_FIXED,
        MoveFlag::Dontunmap => 4, // include/uapi/linux/mman.h
    }
}

/// Returns the advice's number (include/uapi/asm-generic/mman-common.h).
fn number(advice: Advice) -> i32 {
    match advice {
        Advice::Normal => 0,
        Advice::Random => 1,
        Advice::Sequential => 2,
        Advice::Willneed => 3,
        Advice::Dontneed => 4,
        Advice::Free => 8,
        Advice::Remove => 9,
        Advice::Dontfork => 10,
        Advice::Dofork => 11,
        Advice::Hwpoison => 100,
        Advice::SoftOffline => 101,
        Advice::Mergeable => 12,
        Advice::Unmergeable => 13,
        Advice::Hugepage => 14,
        Advice::Nohugepage => 15,
        Advice::Dontdump => 16,
        Advice::Dodump => 17,
        Advice::Wipeonfork => 18,
        Advice::Keeponfork => 19,
        Advice::Cold => 20,
        Advice::Pageout => 21,
        Advice::PopulateRead => 22,
        Advice::PopulateWrite => 23,
        Advice::DontneedLocked => 24,
        Advice::Collapse => 25,
        Advice::GuardInstall => 102,
        Advice::GuardRemove => 103,
    }
}
