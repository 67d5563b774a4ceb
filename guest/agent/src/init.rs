//! Work of an init before anything else can run.

use std::ffi::CString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process::{setrlimit, setsid, umask, Resource, Rlimit};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

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

/// The switch of the kernel's order records.
const RECORD: &str = "/sys/kernel/mm/transparent_hugepage/anon_order/record";

/// Executes the same program again without huge pages, unless that is done: the agent's memory from before would show in
/// the machine's counters of large folios, and each helper's copies of it too. A kernel without the call goes on.
pub fn start_without_huge_pages(arguments: &[String]) {
    let [program, arguments @ ..] = arguments else {
        return;
    };
    let has = rustix::thread::transparent_huge_pages_are_disabled();
    if has != Ok(false) || sys::disable_thp(true).is_err() {
        return;
    }
    let failed = Command::new(program).args(arguments).exec();
    sys::log(format_args!("cannot execute {program} again: {failed}"));
}

/// Mounts the kernel's file systems, switches order records on, opens the console, raises limits. Returns the mount
/// points.
pub fn set_up() -> Vec<String> {
    let mut mounted = Vec::new();
    let mut problems = Vec::new();
    for &(kind, target, options) in MOUNTS {
        match mount(kind, target, options) {
            Ok(()) => mounted.push(target.to_owned()),
            // Not in this kernel, or without a place in sysfs: the hello lists the existing ones.
            Err(Errno::NODEV | Errno::NOENT) => {}
            Err(Errno::BUSY) => mounted.push(target.to_owned()),
            Err(error) => problems.push(format!(
                "{kind} on {target}: {}",
                crate::names::errno(error.raw_os_error())
            )),
        }
    }
    take_console();
    for problem in problems {
        sys::log(format_args!("cannot mount {problem}"));
    }
    // Not there without the project's kernel patches, nor on their older series, which always records.
    let _ = fs::write(RECORD, "1");
    raise_limits();
    umask(Mode::WGRP | Mode::WOTH);
    let _ = setsid();
    std::env::set_var("PATH", "/bin:/sbin:/usr/bin:/usr/sbin:/usr/local/bin");
    std::env::set_var("HOME", "/root");
    mounted
}

fn mount(kind: &str, target: &str, options: &str) -> Result<(), Errno> {
    // In sysfs this fails, and then the mount reports the reason.
    let _ = fs::create_dir_all(target);
    let options = CString::new(options).expect("the table holds no zero bytes");
    rustix::mount::mount(kind, target, kind, MountFlags::empty(), &*options)
}

/// Opens the console. An initramfs without /dev/console starts init with no open descriptor; the device exists now.
fn take_console() {
    if let Ok(console) = sys::open("/dev/console", libc::O_RDWR | libc::O_NOCTTY) {
        // There is no place to report an error.
        let _ = dup2_stdin(&console);
        let _ = dup2_stdout(&console);
        let _ = dup2_stderr(&console);
    }
}

fn raise_limits() {
    let limits = [
        (Resource::Memlock, None),
        (Resource::Nofile, Some(65536)),
        (Resource::Core, Some(0)),
    ];
    for (what, value) in limits {
        let limit = Rlimit {
            current: value,
            maximum: value,
        };
        if let Err(failure) = sys::done(setrlimit(what, limit), "setrlimit") {
            sys::log(format_args!("{failure}"));
        }
    }
}
