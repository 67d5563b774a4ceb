//! What a process with a guest on KVM may do besides: files, threads, Unix sockets, a terminal. It starts no program, speaks to
//! no network, makes no memory executable, and changes nothing of the system or of other processes.

use std::collections::BTreeMap;

use seccompiler::{SeccompAction, SeccompCmpOp, SeccompFilter, SeccompRule};

use super::{argument, plain_memory, refused, rule, Filter};
use crate::KvmError;

/// What is allowed whatever the arguments.
const CALLS: [libc::c_long; 107] = [
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
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmodat,
    libc::SYS_utimensat,
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
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_close,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_memfd_create,
    // Events and pipes.
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_signalfd4,
    libc::SYS_pipe2,
    // Sockets of which there is a descriptor.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
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
    libc::SYS_sched_setaffinity,
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
    // What we and the host are.
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_getcpu,
];

/// Types a key at the terminal, for whoever reads there next.
const TIOCSTI: u64 = 0x5412;
/// `PR_GET_AUXV`: what the kernel gave this process at its start, such as the size of a page.
const PR_GET_AUXV: u64 = 0x4155_5856;
/// Of `prctl`: the names of threads and of memory, the signal at the parent's end, and what goes before a filter.
const PRCTL: [u64; 5] = [
    PR_GET_AUXV,
    libc::PR_SET_NAME as u64,
    libc::PR_SET_VMA as u64,
    libc::PR_SET_PDEATHSIG as u64,
    libc::PR_SET_NO_NEW_PRIVS as u64,
];

/// Confines the calling thread, and all that it starts from now on.
pub(super) fn confine() -> Result<(), KvmError> {
    // Its flags lie in memory, which no filter sees. The C library takes clone() where it is told that there is no other.
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
    let equal = |index, value| rule(vec![argument(index, SeccompCmpOp::Eq, value)?]);
    let threads = libc::CLONE_THREAD as u64;
    let names: Result<_, _> = PRCTL.iter().map(|&option| equal(0, option)).collect();
    let mut rules: BTreeMap<_, _> = CALLS.into_iter().map(|call| (call, Vec::new())).collect();
    rules.extend([
        (libc::SYS_mmap, vec![plain_memory()?]),
        (libc::SYS_mprotect, vec![plain_memory()?]),
        (
            libc::SYS_clone,
            vec![rule(vec![argument(
                0,
                SeccompCmpOp::MaskedEq(threads),
                threads,
            )?])?],
        ),
        (libc::SYS_socket, vec![equal(0, libc::AF_UNIX as u64)?]),
        (libc::SYS_socketpair, vec![equal(0, libc::AF_UNIX as u64)?]),
        (
            libc::SYS_ioctl,
            vec![rule(vec![argument(1, SeccompCmpOp::Ne, TIOCSTI)?])?],
        ),
        (
            libc::SYS_tgkill,
            vec![equal(0, u64::from(std::process::id()))?],
        ),
        (libc::SYS_prctl, names?),
    ]);
    Ok(rules)
}
