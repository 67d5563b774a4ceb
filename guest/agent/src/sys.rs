//! The system calls that both roles need, and how the program itself fails.

use std::ffi::CString;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use protocol::{Ended, Failure};

use crate::names;

/// Writes a line to the console. Errors are ignored: there is nobody else to tell.
pub fn log(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "folioscope-agent: {line}");
}

/// Makes a panic end what it should: the machine when the agent is its init, else the process.
pub fn fail_loudly() {
    std::panic::set_hook(Box::new(|info| {
        log(format_args!(
            "internal error in process {}: {info}",
            std::process::id()
        ));
        if std::process::id() == 1 {
            log(format_args!("switching the machine off"));
            sleep_ms(50);
            power_off();
        }
        // SAFETY: _exit takes any status and does not return.
        unsafe { libc::_exit(134) }
    }));
}

/// Switches the machine off, or, where that cannot be, lets init end, which is a kernel panic.
pub fn power_off() -> ! {
    // SAFETY: sync and reboot take no memory.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
        libc::_exit(1)
    }
}

/// Sleeps, whatever signals arrive.
pub fn sleep_ms(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

/// The failure that an errno is.
pub fn errno(number: i32, call: impl Into<String>) -> Failure {
    Failure::Errno {
        name: names::errno(number),
        number,
        call: call.into(),
    }
}

/// The failure of the system call that was just made.
pub fn last_errno(call: impl Into<String>) -> Failure {
    errno(io::Error::last_os_error().raw_os_error().unwrap_or(0), call)
}

/// The failure that an I/O error is.
pub fn io_failure(error: &io::Error, call: impl Into<String>) -> Failure {
    match error.raw_os_error() {
        Some(number) => errno(number, call),
        None => Failure::bad(format!("{}: {error}", call.into())),
    }
}

/// The result of a system call that gives -1 on error.
pub fn check(result: i64, call: &str) -> Result<i64, Failure> {
    if result == -1 {
        return Err(last_errno(call));
    }
    Ok(result)
}

/// A path as the kernel takes it.
pub fn c_path(path: &str) -> Result<CString, Failure> {
    CString::new(path).map_err(|_| Failure::bad("a path must not hold a zero byte"))
}

/// `open(2)`, with `O_CLOEXEC`.
pub fn open(path: &str, flags: i32) -> Result<OwnedFd, Failure> {
    let c = c_path(path)?;
    // SAFETY: `c` is a string that ends in a zero byte.
    let fd = unsafe { libc::open(c.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
    check(i64::from(fd), &format!("open {path}"))?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `mkfifo(3)`, in place of what is there.
pub fn make_fifo(path: &Path) -> Result<(), Failure> {
    let text = path.to_string_lossy();
    let _ = std::fs::remove_file(path);
    let c = c_path(&text)?;
    // SAFETY: `c` is a string that ends in a zero byte.
    let result = unsafe { libc::mkfifo(c.as_ptr(), 0o600) };
    check(i64::from(result), &format!("mkfifo {text}")).map(drop)
}

/// Makes reads and writes of a descriptor return at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) {
    // SAFETY: fcntl with these commands takes no memory.
    unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}

/// `read(2)`; `None` when nothing is there now.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the buffer is as long as it says.
    let n = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    later(n)
}

/// `write(2)`; `None` when nothing can be taken now.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    // SAFETY: the bytes are as many as it says.
    let n = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    later(n)
}

fn later(n: isize) -> io::Result<Option<usize>> {
    match usize::try_from(n) {
        Ok(n) => Ok(Some(n)),
        Err(_) => match io::Error::last_os_error() {
            e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(None),
            e => Err(e),
        },
    }
}

/// The CPUs that a process may run on.
pub fn affinity(pid: i32) -> Vec<u32> {
    // SAFETY: an all-zero cpu_set_t is an empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is as large as it says.
    let result = unsafe { libc::sched_getaffinity(pid, size_of::<libc::cpu_set_t>(), &mut set) };
    if result != 0 {
        return vec![0];
    }
    (0..libc::CPU_SETSIZE as u32)
        // SAFETY: the number is below CPU_SETSIZE.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) })
        .collect()
}

/// Lets this process run on these CPUs alone.
pub fn set_affinity(cpus: &[u32]) -> Result<(), Failure> {
    // SAFETY: an all-zero cpu_set_t is an empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        if cpu >= libc::CPU_SETSIZE as u32 {
            return Err(errno(libc::EINVAL, "sched_setaffinity"));
        }
        // SAFETY: the number is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: the set is as large as it says.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    check(i64::from(result), "sched_setaffinity").map(drop)
}

/// `prctl(PR_SET_THP_DISABLE)`. It is inherited by fork and exec.
pub fn disable_thp(on: bool) -> Result<(), Failure> {
    // SAFETY: this option takes numbers alone.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(on), 0, 0, 0) };
    check(i64::from(result), "prctl PR_SET_THP_DISABLE").map(drop)
}

/// How a process ended, from its wait status.
pub fn ended(status: i32) -> Ended {
    if libc::WIFSIGNALED(status) {
        let number = libc::WTERMSIG(status);
        return Ended::Signal {
            name: names::signal(number),
            number,
        };
    }
    Ended::Exit {
        status: libc::WEXITSTATUS(status),
    }
}

/// The page size in bytes.
pub fn page_size() -> u64 {
    // SAFETY: sysconf takes no memory.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// Milliseconds since the kernel started.
pub fn uptime_ms() -> u64 {
    clock(libc::CLOCK_BOOTTIME) / 1_000_000
}

/// Nanoseconds of a clock that never jumps.
pub fn now_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

fn clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is there.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
