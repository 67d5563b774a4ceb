// SPDX-License-Identifier: GPL-2.0-only
//! The system calls that the threads which serve the guest may make. At any other the process is killed, after a line
//! on standard error that names the call.
//!
//! A thread is not a security boundary: the others share its memory. An attacker who controls one that serves the guest
//! soon has all rights of the process. These are limited by the filter of [`process`], and by the file rules of
//! [`crate::Reach`] if the host's kernel has them. The threads' own filters make the first step harder.
//! `docs/security.md` lists the protections against a hostile guest, and their limits.

mod process;
mod requests;

use std::collections::BTreeMap;

use seccompiler::{
    apply_filter, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};
use vmm_sys_util::signal::register_signal_handler;

use self::requests::{KVM_GET_ONE_REG, KVM_RUN};
use crate::parking::kick_signal;
use crate::KvmError;

/// Calls of both kinds of threads, with any arguments.
const COMMON: [libc::c_long; 20] = [
    // Streams and events that are open.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_close,
    // Locks and time.
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // Memory of the allocator, and of the thread at its end.
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    // Signals: the kick, and the end of the thread.
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
];

/// A filter for one kind of thread.
#[derive(Clone, Debug)]
pub(crate) struct Filter(BpfProgram);

impl Filter {
    /// Returns the filter of the CPUs' threads.
    pub(crate) fn cpu() -> Result<Self, KvmError> {
        let requests =
            [KVM_RUN, KVM_GET_ONE_REG].map(|request| argument(1, SeccompCmpOp::Eq, request));
        let requests = requests.map(|condition| rule(vec![condition?]));
        Self::new([(
            libc::SYS_ioctl,
            requests.into_iter().collect::<Result<_, _>>()?,
        )])
    }

    /// Returns the filter of the threads that wait for the host's streams, and for console output, whose log they
    /// truncate (`machine::log`).
    pub(crate) fn io() -> Result<Self, KvmError> {
        Self::new([
            (libc::SYS_ppoll, Vec::new()),
            (libc::SYS_lseek, Vec::new()),
            (libc::SYS_ftruncate, Vec::new()),
        ])
    }

    fn new(
        more: impl IntoIterator<Item = (libc::c_long, Vec<SeccompRule>)>,
    ) -> Result<Self, KvmError> {
        let mut rules: BTreeMap<_, Vec<SeccompRule>> =
            COMMON.into_iter().map(|call| (call, Vec::new())).collect();
        rules.insert(libc::SYS_mmap, vec![plain_memory()?]);
        rules.insert(libc::SYS_mprotect, vec![plain_memory()?]);
        rules.insert(libc::SYS_sendto, vec![to_the_other_end()?]);
        // A debug build checks that a descriptor is open before it closes it.
        let asks = argument(1, SeccompCmpOp::Eq, libc::F_GETFD as u64)?;
        rules.insert(libc::SYS_fcntl, vec![rule(vec![asks])?]);
        // A CPU at its end, or at the awaited ring, kicks the others.
        let kick = rule(vec![
            argument(0, SeccompCmpOp::Eq, u64::from(std::process::id()))?,
            argument(2, SeccompCmpOp::Eq, kick_signal() as u64)?,
        ])?;
        rules.insert(libc::SYS_tgkill, vec![kick]);
        rules.extend(more);
        Self::of(rules)
    }

    fn of(rules: BTreeMap<libc::c_long, Vec<SeccompRule>>) -> Result<Self, KvmError> {
        let architecture = std::env::consts::ARCH.try_into().map_err(refused)?;
        keep_heaps();
        let (violation, allowed) = (SeccompAction::Trap, SeccompAction::Allow);
        register_signal_handler(libc::SIGSYS, violated).map_err(refused)?;
        let filter = SeccompFilter::new(rules, violation, allowed, architecture);
        Ok(Self(filter.map_err(refused)?.try_into().map_err(refused)?))
    }

    /// Confines the calling thread, irreversibly.
    pub(crate) fn install(&self) -> Result<(), KvmError> {
        apply_filter(&self.0).map_err(refused)
    }
}

/// Confines the calling thread irreversibly, and all that it starts from then on. It must be called before there are
/// other threads, by a process that only serves its guest.
pub(crate) fn confine() -> Result<(), KvmError> {
    process::confine()
}

/// Keeps glibc's heaps from shrinking. Before it first returns the end of a thread's heap, glibc reads a file
/// (check_may_shrink_heap() of its malloc-sysdep.h), which a confined thread may not open. This setting also ends
/// glibc's own adaptation of the size that is too large for a heap, so its maximum (DEFAULT_MMAP_THRESHOLD_MAX) is set
/// from the start.
fn keep_heaps() {
    #[cfg(target_env = "gnu")]
    for (option, value) in [
        (libc::M_TRIM_THRESHOLD, -1),
        (libc::M_MMAP_THRESHOLD, 32 << 20),
    ] {
        // SAFETY: numbers alone; it takes malloc's own lock.
        unsafe { libc::mallopt(option, value) };
    }
}

/// Reports the system call that was not allowed, and ends the process.
extern "C" fn violated(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    /// Offset of `si_syscall` in `struct siginfo`, in bytes.
    const SI_SYSCALL: usize = 24;
    // SAFETY: the kernel gives a whole siginfo, which has this number where the signal is SIGSYS.
    let call = unsafe { info.byte_add(SI_SYSCALL).cast::<i32>().read() };
    let mut line = *b"folioscope: a process with a guest made system call ...., which it may not make; this is a bug\n";
    if let Some(place) = line.iter().position(|&byte| byte == b'.') {
        let mut rest = call.unsigned_abs();
        for digit in line[place..place + 4].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
    // SAFETY: the line has the length that is passed. The second call is one that no thread may make: within this
    // handler, where the signal is blocked, that ends the process.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::syscall(libc::SYS_reboot, 0, 0, 0, 0);
        libc::_exit(1);
    }
}

fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, KvmError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value).map_err(refused)
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, KvmError> {
    SeccompRule::new(conditions).map_err(refused)
}

/// Allows mappings that are not executable. No thread makes executable memory.
fn plain_memory() -> Result<SeccompRule, KvmError> {
    let executable = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
    rule(vec![argument(2, executable, 0)?])
}

/// Returns a stream's bytes go to its other end, and to no address.
fn to_the_other_end() -> Result<SeccompRule, KvmError> {
    let whole = SeccompCmpArgLen::Qword;
    let nowhere = SeccompCondition::new(4, whole, SeccompCmpOp::Eq, 0).map_err(refused)?;
    rule(vec![nowhere])
}

fn refused(error: impl std::fmt::Display) -> KvmError {
    KvmError::Seccomp(error.to_string())
}

#[cfg(test)]
mod tests;
