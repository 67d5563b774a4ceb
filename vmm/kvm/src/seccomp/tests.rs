// SPDX-License-Identifier: GPL-2.0-only
//! The filters allow their calls, and any other call ends the process.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::*;

const VARIABLE: &str = "FOLIOSCOPE_TEST_SECCOMP";

/// Runs one test of this program in a process of its own.
fn again(test: &str, value: &str) -> std::process::ExitStatus {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command
        .args(["--exact", test, "--nocapture"])
        .env(VARIABLE, value);
    command
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap()
}

/// Actions of a confined thread in the process that is started for it.
fn act(value: &str) {
    let value = value.to_owned();
    // Of another process: this one's parent.
    let pid = std::os::unix::process::parent_id() as libc::pid_t;
    let thread = std::thread::spawn(move || {
        match value.split(' ').next().unwrap() {
            "io" => Filter::io().unwrap().install().unwrap(),
            "cpu" => Filter::cpu().unwrap().install().unwrap(),
            _ => confine().unwrap(),
        }
        let null = std::ptr::null_mut::<u8>();
        match value.split_once(' ').unwrap().1 {
            "nothing" => drop(vec![0_u8; 16 << 20]),
            "open" => drop(std::fs::File::open("/dev/null")),
            // All of it at the end of the thread's own heap.
            "free" => drop(vec![vec![1_u8; 64 << 10]; 64]),
            "fork" => {
                // SAFETY: a call without pointers.
                let _ = unsafe { libc::fork() };
            }
            "ioctl" => {
                // SAFETY: a null pointer is refused.
                let _ = unsafe { libc::ioctl(0, libc::TCGETS as _, null) };
            }
            "kill" => {
                let pid = std::process::id();
                // SAFETY: signal 0 does nothing.
                let _ = unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, 0) };
            }
            "start" => drop(Command::new("/bin/true").status()),
            "network" => drop(std::net::TcpListener::bind("127.0.0.1:0")),
            "execute" => {
                let protection = libc::PROT_READ | libc::PROT_EXEC;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                // SAFETY: a mapping of no file, wherever there is room.
                let _ = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
            }
            // SAFETY: the pointer is to a key.
            "type" => unsafe {
                let _ = libc::ioctl(0, libc::TIOCSTI as _, b"x".as_ptr());
            },
            // Pastes the console's selection, on a kernel that allows it.
            // SAFETY: the pointer is to a subcode that does not exist.
            "paste" => unsafe {
                let _ = libc::ioctl(0, libc::TIOCLINUX as _, b"\xff".as_ptr());
            },
            // SAFETY: numbers alone, for a descriptor that is there.
            "owner" => unsafe {
                let _ = libc::fcntl(0, libc::F_SETOWN, pid);
            },
            // SAFETY: as above; 10 is F_SETSIG.
            "signal" => unsafe {
                let _ = libc::fcntl(0, 10, libc::SIGKILL);
            },
            // SAFETY: as above.
            "async" => unsafe {
                let _ = libc::fcntl(0, libc::F_SETFL, libc::O_ASYNC);
            },
            // SAFETY: the pointer is to a pid.
            "socket-owner" => unsafe {
                const FIOSETOWN: u64 = 0x8901;
                let _ = libc::ioctl(0, FIOSETOWN as _, &raw const pid);
            },
            // SAFETY: no new limit, and room for the old one.
            "limit" => unsafe {
                let mut old: libc::rlimit = std::mem::zeroed();
                let none = std::ptr::null();
                let _ = libc::prlimit(pid, libc::RLIMIT_NOFILE, none, &raw mut old);
            },
            // SAFETY: a set that is there.
            "affinity" => unsafe {
                let set: libc::cpu_set_t = std::mem::zeroed();
                let _ = libc::sched_setaffinity(pid, size_of_val(&set), &raw const set);
            },
            "connect" => drop(std::os::unix::net::UnixStream::connect("/nowhere")),
            "datagram" => drop(std::os::unix::net::UnixDatagram::unbound()),
            "datagrams" => drop(std::os::unix::net::UnixDatagram::pair()),
            "address" => {
                let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
                let fd = std::os::fd::AsRawFd::as_raw_fd(&one);
                // SAFETY: the address is there in its length.
                unsafe {
                    let to: libc::sockaddr_un = std::mem::zeroed();
                    let (at, length) = ((&raw const to).cast(), size_of_val(&to));
                    libc::sendto(fd, null.cast(), 0, 0, at, length as u32);
                }
            }
            "filter" => {
                let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
                let fd = std::os::fd::AsRawFd::as_raw_fd(&one);
                // SAFETY: a null pointer of no length is refused.
                unsafe {
                    libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, null.cast(), 0);
                }
            }
            "rights" => {
                use std::os::unix::fs::PermissionsExt as _;
                let rights = std::fs::Permissions::from_mode(0o777);
                drop(std::fs::set_permissions("/nowhere", rights));
            }
            // SAFETY: numbers alone; the new thread, if there is one, does nothing.
            "namespace" => unsafe {
                let flags = libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM;
                let flags = flags | libc::CLONE_NEWNET;
                libc::syscall(libc::SYS_clone, flags, null, null, null, null);
            },
            // SAFETY: a flag alone; no descriptor is used afterwards.
            "unshare" => unsafe {
                let _ = libc::unshare(libc::CLONE_FILES);
            },
            "serve" => {
                std::fs::read("/proc/self/stat").unwrap();
                // A file that is made without a umask.
                let name = format!("folioscope-confined-{}", std::process::id());
                let place = std::env::temp_dir().join(name);
                machine::private::directory(&place).unwrap();
                drop(machine::private::listen(&place.join("control.sock")).unwrap());
                std::fs::remove_dir_all(place).unwrap();
                assert!(rustix::param::page_size() >= 4096);
                let pair = std::os::unix::net::UnixStream::pair().unwrap();
                let thread = std::thread::Builder::new().name("another".into());
                pair.0
                    .set_read_timeout(Some(std::time::Duration::from_secs(1)))
                    .unwrap();
                pair.0.set_nonblocking(true).unwrap();
                let copy = pair.1.try_clone().unwrap();
                let file = std::fs::File::open("/proc/self/stat").unwrap();
                rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::NONBLOCK).unwrap();
                assert_eq!(rustix::io::ioctl_fionread(&copy).unwrap(), 0);
                assert!(std::thread::available_parallelism().is_ok());
                let _ = std::io::IsTerminal::is_terminal(&std::io::stdin());
                // SAFETY: room for the limit of this process.
                let limited = unsafe {
                    let mut limit: libc::rlimit = std::mem::zeroed();
                    libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0
                        && libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0
                };
                assert!(limited);
                thread.spawn(move || drop(pair)).unwrap().join().unwrap();
                // One that is confined more.
                let cpu = || Filter::cpu().unwrap().install();
                std::thread::spawn(cpu).join().unwrap().unwrap();
            }
            other => panic!("{other}"),
        }
    });
    thread.join().unwrap();
}

#[test]
fn other_system_calls_end_the_process() {
    if let Ok(value) = std::env::var(VARIABLE) {
        return act(&value);
    }
    let name = "seccomp::tests::other_system_calls_end_the_process";
    let confined = &["open", "fork", "ioctl", "kill"][..];
    let process = &[
        "fork",
        "start",
        "namespace",
        "unshare",
        "network",
        "execute",
        "type",
        "paste",
        "owner",
        "signal",
        "async",
        "socket-owner",
        "limit",
        "affinity",
        "connect",
        "datagram",
        "datagrams",
        "address",
        "filter",
        "rights",
    ][..];
    assert!(again(name, "process serve").success());
    for (kind, calls) in [("cpu", confined), ("io", confined), ("process", process)] {
        for harmless in ["nothing", "free"] {
            let status = again(name, &format!("{kind} {harmless}"));
            assert!(status.success(), "{kind} {harmless}: {status}");
        }
        for call in calls {
            let status = again(name, &format!("{kind} {call}"));
            assert_eq!(
                status.signal(),
                Some(libc::SIGSYS),
                "{kind} {call}: {status}"
            );
        }
    }
}
