// SPDX-License-Identifier: GPL-2.0-only
//! Further rights of a process with a guest on KVM: files, threads, Unix sockets, a terminal. It starts no program,
//! connects to nothing, makes no memory executable, and sends no signal to another process.
//!
//! A filter sees numbers and no paths. [`crate::Reach`] decides which files may be opened, if the host's kernel has
//! Landlock. An operation that Landlock does not control either is denied for files by name: changes of permissions and
//! times.

use std::collections::BTreeMap;

use seccompiler::{SeccompAction, SeccompCmpOp, SeccompFilter, SeccompRule};

use super::{argument, plain_memory, refused, requests, rule, to_the_other_end, Filter};
use crate::KvmError;

/// Calls that are allowed with any arguments.
const CALLS: [libc::c_long; 96] = [
    // Files and directories by name.
    libc::SYS_openat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_umask,
    // Files that are open.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_fchmod,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_close,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    // Events and pipes.
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_signalfd4,
    libc::SYS_pipe2,
    // Sockets that are open already.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_membarrier,
    // Threads; clone3() has its own answer.
    libc::SYS_clone3,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Each filter more is one that confines more.
    libc::SYS_seccomp,
    // Signals to ourselves.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    // Calls that identify us and the host.
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_getcpu,
];

/// Namespaces that a new thread could enter by itself, if its process has the capability.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;
/// The bits of a socket's type without the flags (`SOCK_TYPE_MASK` of `linux/net.h`).
const TYPE: u64 = 0xf;
/// `PR_GET_AUXV`: values that the kernel gave this process at its start, such as the size of a page.
const PR_GET_AUXV: u64 = 0x4155_5856;
/// Operations of `prctl`: the names of threads and of memory, the signal at the parent's end, and the preparation of a
/// filter.
const PRCTL: [u64; 5] = [
    PR_GET_AUXV,
    libc::PR_SET_NAME as u64,
    libc::PR_SET_VMA as u64,
    libc::PR_SET_PDEATHSIG as u64,
    libc::PR_SET_NO_NEW_PRIVS as u64,
];

/// Confines the calling thread, and all that it starts from now on.
pub(super) fn confine() -> Result<(), KvmError> {
    // Its flags lie in memory, which no filter sees. The C library uses clone() if the call does not exist.
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let architecture = std::env::consts::ARCH.try_into().map_err(refused)?;
    let clone3 = SeccompFilter::new(clone3, SeccompAction::Allow, unknown, architecture);
    let clone3 = Filter(clone3.map_err(refused)?.try_into().map_err(refused)?);
    let process = Filter::of(rules()?)?;
    process.install()?;
    clone3.install()
}

fn rules() -> Result<BTreeMap<libc::c_long, Vec<SeccompRule>>, KvmError> {
    let mut rules: BTreeMap<_, _> = CALLS.into_iter().map(|call| (call, Vec::new())).collect();
    let us = u64::from(std::process::id());
    let streams = || {
        let unix = argument(0, SeccompCmpOp::Eq, libc::AF_UNIX as u64)?;
        // A datagram socket would reach any address that it is given, without connect().
        let stream = argument(1, SeccompCmpOp::MaskedEq(TYPE), libc::SOCK_STREAM as u64)?;
        rule(vec![unix, stream])
    };
    let thread = SeccompCmpOp::MaskedEq((libc::CLONE_THREAD | NAMESPACES) as u32 as u64);
    let thread = argument(0, thread, libc::CLONE_THREAD as u64)?;
    rules.extend([
        (libc::SYS_mmap, vec![plain_memory()?]),
        (libc::SYS_mprotect, vec![plain_memory()?]),
        (libc::SYS_clone, vec![rule(vec![thread])?]),
        // A thread makes a directory or a socket without the umask of the others.
        (libc::SYS_unshare, one_of(0, &[libc::CLONE_FS as u64])?),
        (libc::SYS_socket, vec![streams()?]),
        (libc::SYS_socketpair, vec![streams()?]),
        (libc::SYS_sendto, vec![to_the_other_end()?]),
        (libc::SYS_setsockopt, options()?),
        (libc::SYS_ioctl, one_of(1, &requests::IOCTL)?),
        (libc::SYS_fcntl, commands()?),
        (libc::SYS_tgkill, one_of(0, &[us])?),
        // Limits of this process, which is 0 too.
        (libc::SYS_prlimit64, one_of(0, &[0, us])?),
        (libc::SYS_prctl, one_of(0, &PRCTL)?),
    ]);
    Ok(rules)
}

/// Returns rules that allow these values of an argument.
fn one_of(index: u8, values: &[u64]) -> Result<Vec<SeccompRule>, KvmError> {
    let equal = |&value| rule(vec![argument(index, SeccompCmpOp::Eq, value)?]);
    values.iter().map(equal).collect()
}

/// Returns rules for the commands of `fcntl()` that change a descriptor alone. `O_ASYNC` sends signals, for a terminal
/// even to its foreground processes (`__tty_fasync()` of the kernel's `tty_io.c`).
fn commands() -> Result<Vec<SeccompRule>, KvmError> {
    let quiet = SeccompCmpOp::MaskedEq(libc::O_ASYNC as u64);
    let mut rules = one_of(1, &requests::FCNTL.map(|command| command as u64))?;
    rules.push(rule(vec![
        argument(1, SeccompCmpOp::Eq, libc::F_SETFL as u64)?,
        argument(2, quiet, 0)?,
    ])?);
    Ok(rules)
}

/// Returns rules for the options of `setsockopt()`.
fn options() -> Result<Vec<SeccompRule>, KvmError> {
    let option = |option: libc::c_int| {
        rule(vec![
            argument(1, SeccompCmpOp::Eq, libc::SOL_SOCKET as u64)?,
            argument(2, SeccompCmpOp::Eq, option as u64)?,
        ])
    };
    requests::SETSOCKOPT.into_iter().map(option).collect()
}
