//! What an init has to do before anything else works.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd;

use crate::sys;

/// File system, mount point and options, in the order in which they are mounted.
const MOUNTS: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("tmpfs", "/run", "mode=0755"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("devpts", "/dev/pts", ""),
    ("hugetlbfs", "/dev/hugepages", ""),
    ("debugfs", "/sys/kernel/debug", ""),
    ("tracefs", "/sys/kernel/tracing", ""),
    ("cgroup2", "/sys/fs/cgroup", ""),
];

/// Mounts what the kernel has, takes the console, raises limits. Gives the mount points.
pub fn set_up() -> Vec<String> {
    let mut mounted = Vec::new();
    let mut problems = Vec::new();
    for &(kind, target, options) in MOUNTS {
        match mount(kind, target, options) {
            Ok(()) => mounted.push(target.to_owned()),
            // Not in this kernel, or no place for it in sysfs: the hello says what there is.
            Err(libc::ENODEV | libc::ENOENT) => {}
            Err(libc::EBUSY) => mounted.push(target.to_owned()),
            Err(number) => problems.push(format!(
                "{kind} on {target}: {}",
                crate::names::errno(number)
            )),
        }
    }
    take_console();
    for problem in problems {
        sys::log(format_args!("cannot mount {problem}"));
    }
    raise_limits();
    // SAFETY: umask and setsid take no memory.
    unsafe {
        libc::umask(0o022);
        libc::setsid();
    }
    std::env::set_var("PATH", "/bin:/sbin:/usr/bin:/usr/sbin:/usr/local/bin");
    std::env::set_var("HOME", "/root");
    mounted
}

fn mount(kind: &str, target: &str, options: &str) -> Result<(), i32> {
    // In sysfs this fails, and then the mount says why.
    let _ = fs::create_dir_all(target);
    let c = |text: &str| CString::new(text).expect("the table holds no zero bytes");
    let (kind, target, options) = (c(kind), c(target), c(options));
    // SAFETY: all four are strings that end in a zero byte.
    let result = unsafe {
        libc::mount(
            kind.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            0,
            options.as_ptr().cast(),
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// An initramfs without /dev/console starts init with nothing open; there is one now.
fn take_console() {
    if let Ok(console) = sys::open("/dev/console", libc::O_RDWR | libc::O_NOCTTY) {
        for fd in 0..3 {
            // SAFETY: dup2 takes descriptors alone.
            unsafe { libc::dup2(console.as_raw_fd(), fd) };
        }
    }
}

fn raise_limits() {
    let limits = [
        (libc::RLIMIT_MEMLOCK, libc::RLIM_INFINITY),
        (libc::RLIMIT_NOFILE, 65536),
        (libc::RLIMIT_CORE, 0),
    ];
    for (what, value) in limits {
        let limit = libc::rlimit {
            rlim_cur: value,
            rlim_max: value,
        };
        // SAFETY: the structure is there.
        if unsafe { libc::setrlimit(what, &limit) } != 0 {
            sys::log(format_args!("{}", sys::last_errno("setrlimit")));
        }
    }
}
