//! The system calls that the standard library lacks.

use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use rustix::io::Errno;
pub use rustix::mount::MountFlags;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{setrlimit, Resource, Rlimit};
use rustix::system::{reboot, RebootCommand};

/// Calls `mount(2)`.
pub fn mount(
    source: &str,
    target: &str,
    kind: &str,
    flags: MountFlags,
    options: &str,
) -> Result<(), String> {
    let data = CString::new(options)
        .map_err(|_| format!("cannot mount {target:?}: an option has a zero byte"))?;
    rustix::mount::mount(source, target, kind, flags, &*data).map_err(|error| {
        let error = io::Error::from(error);
        format!("cannot mount {source} at {target} ({kind} {options}): {error}")
    })
}

/// Creates a pipe whose ends no child inherits: the end to read, the end to write.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// Makes reads and writes return at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) {
    // It cannot fail on a descriptor that is open.
    let _ = fcntl_getfl(fd).and_then(|flags| fcntl_setfl(fd, flags | OFlags::NONBLOCK));
}

/// Result of a read or write of a nonblocking descriptor.
#[derive(Debug)]
pub enum Moved {
    /// Number of bytes; 0 from a read is the end.
    Bytes(usize),
    /// No bytes can be moved now.
    Later,
    /// No bytes can ever be moved again.
    Broken,
}

/// Calls `read(2)`.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Moved {
    moved(rustix::io::read(fd, buffer))
}

/// Calls `write(2)`.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> Moved {
    moved(rustix::io::write(fd, bytes))
}

fn moved(count: Result<usize, Errno>) -> Moved {
    match count {
        Ok(count) => Moved::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Moved::Later,
        Err(_) => Moved::Broken,
    }
}

/// Returns a descriptor that is readable while a child has ended. SIGCHLD is blocked from then on.
pub fn child_signals() -> Result<OwnedFd, String> {
    // SAFETY: an all-zero set is a set, and the calls get a valid one.
    let fd = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(format!("signalfd: {}", io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is new, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns a child that has ended and is not reaped yet.
pub fn ended_child() -> Option<libc::pid_t> {
    // SAFETY: all-zero is a valid siginfo_t, and the pointer is to ours.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let result = libc::waitid(libc::P_ALL, 0, &mut info, flags);
        (result == 0 && info.si_pid() != 0).then(|| info.si_pid())
    }
}

/// Reaps a child that has ended, and gives its wait status.
pub fn reap(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: there is room for a status.
    unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
    status
}

/// Sends a signal to a process, or to the group of minus this number. The target may have ended already.
pub fn kill(pid: libc::pid_t, signal: i32) {
    // SAFETY: plain system call.
    unsafe { libc::kill(pid, signal) };
}

/// Raises the limits of locked memory and open files to the maximum: the outside sets a program's own limits.
pub fn raise_limits() {
    for (what, value) in [
        (Resource::Memlock, None),
        (Resource::Nofile, Some(65536)),
        (Resource::Core, Some(0)),
    ] {
        let limit = Rlimit {
            current: value,
            maximum: value,
        };
        // The existing limits suffice too.
        let _ = setrlimit(what, limit);
    }
}

/// Switches the machine off or, if that fails, lets init end, which is a kernel panic.
pub fn power_off() -> ! {
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    std::process::exit(1)
}
