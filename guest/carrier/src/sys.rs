//! The system calls that the standard library lacks.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `mount(2)`.
pub fn mount(
    source: &str,
    target: &str,
    kind: &str,
    flags: libc::c_ulong,
    options: &str,
) -> Result<(), String> {
    let c = |text: &str| {
        CString::new(text).map_err(|_| format!("cannot mount {text:?}: a path has a zero byte"))
    };
    let (source_c, target_c, kind_c, options_c) = (c(source)?, c(target)?, c(kind)?, c(options)?);
    // SAFETY: all four are strings that end in a zero byte.
    let result = unsafe {
        libc::mount(
            source_c.as_ptr(),
            target_c.as_ptr(),
            kind_c.as_ptr(),
            flags,
            options_c.as_ptr().cast(),
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(format!(
        "cannot mount {source} at {target} ({kind} {options}): {}",
        io::Error::last_os_error()
    ))
}

/// A pipe whose ends no child inherits: the end to read, the end to write.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are new and nobody else's.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Makes reads and writes return at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) {
    // SAFETY: fcntl with these commands takes no memory.
    unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}

/// What a read or write of a descriptor that does not block came to.
#[derive(Debug)]
pub enum Moved {
    /// So many bytes; 0 from a read is the end.
    Bytes(usize),
    /// Nothing can be moved now.
    Later,
    /// Nothing ever will.
    Broken,
}

/// `read(2)`.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Moved {
    // SAFETY: the buffer is as long as it says.
    moved(unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) })
}

/// `write(2)`.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> Moved {
    // SAFETY: the bytes are as many as it says.
    moved(unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) })
}

fn moved(count: isize) -> Moved {
    match usize::try_from(count) {
        Ok(count) => Moved::Bytes(count),
        Err(_) => match io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Moved::Later,
            _ => Moved::Broken,
        },
    }
}

/// A descriptor that is readable while a child has ended. SIGCHLD is blocked from then on.
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
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A child that has ended and is not reaped yet.
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

/// Sends a signal to a process, or to the group of minus this number; one that is gone is no error.
pub fn kill(pid: libc::pid_t, signal: i32) {
    // SAFETY: plain system call.
    unsafe { libc::kill(pid, signal) };
}

/// As much locked memory and as many files as a program may want: the outside sets the limits here.
pub fn raise_limits() {
    for (what, value) in [
        (libc::RLIMIT_MEMLOCK, libc::RLIM_INFINITY),
        (libc::RLIMIT_NOFILE, 65536),
        (libc::RLIMIT_CORE, 0),
    ] {
        let limit = libc::rlimit {
            rlim_cur: value,
            rlim_max: value,
        };
        // SAFETY: the structure is there.
        unsafe { libc::setrlimit(what, &limit) };
    }
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
