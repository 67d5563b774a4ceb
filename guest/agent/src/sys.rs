//! The system calls that both roles need, and the end of the program on an error.

use std::ffi::CString;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use protocol::{Ended, Failure};
use rustix::fs::{fcntl_getfl, fcntl_setfl, mkfifoat, Mode, OFlags, CWD};
use rustix::io::Errno;
use rustix::process::{kill_process, Pid, Signal};
use rustix::system::{reboot, RebootCommand};
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use rustix::time::{clock_gettime, ClockId};

use crate::names;

/// Writes a line to the console. Errors are ignored: there is no other place to report them.
pub fn log(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "folioscope-agent: {line}");
}

/// Makes a panic end the machine if the agent is its init, else the process.
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
        exit(134)
    }));
}

/// Switches the machine off or, if that fails, lets init end, which is a kernel panic.
pub fn power_off() -> ! {
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    exit(1)
}

/// Ends this process alone and at once, without touching what it shares with others, such as output buffers.
pub fn exit(status: i32) -> ! {
    // SAFETY: _exit takes any status and does not return.
    unsafe { libc::_exit(status) }
}

/// Kills a child that was not reaped, whose number is therefore still its own.
pub fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It has ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Sleeps, whatever signals arrive.
pub fn sleep_ms(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

/// Returns the failure that an errno is.
pub fn errno(number: i32, call: impl Into<String>) -> Failure {
    Failure::Errno {
        name: names::errno(number),
        number,
        call: call.into(),
    }
}

/// Returns the failure of the system call that was just made.
pub fn last_errno(call: impl Into<String>) -> Failure {
    errno(io::Error::last_os_error().raw_os_error().unwrap_or(0), call)
}

/// Returns the failure that an I/O error is.
pub fn io_failure(error: &io::Error, call: impl Into<String>) -> Failure {
    match error.raw_os_error() {
        Some(number) => errno(number, call),
        None => Failure::bad(format!("{}: {error}", call.into())),
    }
}

/// Returns the result of a system call, as a failure that names it.
pub fn done<T>(result: rustix::io::Result<T>, call: impl Into<String>) -> Result<T, Failure> {
    result.map_err(|error| errno(error.raw_os_error(), call))
}

/// Returns the result of a system call that gives -1 on error.
pub fn check(result: i64, call: &str) -> Result<i64, Failure> {
    if result == -1 {
        return Err(last_errno(call));
    }
    Ok(result)
}

/// Returns a path as the kernel takes it.
pub fn c_path(path: &str) -> Result<CString, Failure> {
    CString::new(path).map_err(|_| Failure::bad("a path must not hold a zero byte"))
}

/// Calls `open(2)`, with `O_CLOEXEC`.
pub fn open(path: &str, flags: i32) -> Result<OwnedFd, Failure> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
    let opened = rustix::fs::open(c_path(path)?, flags, Mode::RUSR | Mode::WUSR);
    done(opened, format!("open {path}"))
}

/// Calls `mkfifo(3)`, and replaces an existing file.
pub fn make_fifo(path: &Path) -> Result<(), Failure> {
    let text = path.to_string_lossy();
    let _ = std::fs::remove_file(path);
    let made = mkfifoat(CWD, c_path(&text)?, Mode::RUSR | Mode::WUSR);
    done(made, format!("mkfifo {text}"))
}

/// Makes reads and writes of a descriptor return at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) {
    // It can fail only for a number that is no descriptor.
    let _ = fcntl_getfl(fd).and_then(|flags| fcntl_setfl(fd, flags | OFlags::NONBLOCK));
}

/// Calls `read(2)`; returns `None` if no bytes are available now.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    later(rustix::io::read(fd, buffer))
}

/// Calls `write(2)`; returns `None` if no bytes can be taken now.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    later(rustix::io::write(fd, bytes))
}

fn later(result: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the CPUs that a process may run on.
pub fn affinity(pid: i32) -> Vec<u32> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(pid)) else {
        return vec![0];
    };
    (0..CpuSet::MAX_CPU as u32)
        .filter(|&cpu| set.is_set(cpu as usize))
        .collect()
}

/// Restricts this process to these CPUs.
pub fn set_affinity(cpus: &[u32]) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(errno(libc::EINVAL, "sched_setaffinity"));
        }
        set.set(cpu as usize);
    }
    done(sched_setaffinity(None, &set), "sched_setaffinity")
}

/// Moves this thread to CPUs other than these.
pub fn leave(cpus: &[u32]) -> Result<(), Failure> {
    let all = 0..CpuSet::MAX_CPU as u32;
    let others: Vec<u32> = all.filter(|cpu| !cpus.contains(cpu)).collect();
    set_affinity(&others)
}

/// Calls `prctl(PR_SET_THP_DISABLE)`. The setting is inherited by fork and exec.
pub fn disable_thp(on: bool) -> Result<(), Failure> {
    let result = rustix::thread::disable_transparent_huge_pages(on);
    done(result, "prctl PR_SET_THP_DISABLE")
}

/// Returns how a process ended, from its wait status.
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

/// Returns the page size in bytes.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Returns the milliseconds since the kernel started.
pub fn uptime_ms() -> u64 {
    clock(ClockId::Boottime) / 1_000_000
}

/// Returns the nanoseconds of a clock that never jumps.
pub fn now_ns() -> u64 {
    clock(ClockId::Monotonic)
}

fn clock(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
