//! The system calls that the standard library lacks.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal as Named};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use rustix::io::Errno;
pub use rustix::mount::MountFlags;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{
    kill_process, kill_process_group, setrlimit, waitpid, Pid, Resource, Rlimit, Signal,
    WaitOptions,
};
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
pub fn child_signals() -> Result<impl AsFd, String> {
    let set = SigSet::from(Named::SIGCHLD);
    set.thread_block()
        .and_then(|()| SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK))
        .map_err(|error| format!("signalfd: {}", io::Error::from(error)))
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
    match waitpid(Pid::from_raw(pid), WaitOptions::NOHANG) {
        Ok(Some((_, status))) => status.as_raw(),
        Ok(None) | Err(_) => 0,
    }
}

/// Sends a signal to a process, or to the group of minus this number. The target may have ended already.
pub fn kill(pid: libc::pid_t, signal: i32) {
    let target = Pid::from_raw(pid.abs()).zip(Signal::from_named_raw(signal));
    let _ = target.map(|(target, signal)| match pid {
        ..0 => kill_process_group(target, signal),
        0.. => kill_process(target, signal),
    });
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
