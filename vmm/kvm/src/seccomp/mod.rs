//! The system calls that the threads which serve the guest may make; at any other the process is killed,
//! after a line on standard error that says which it was.
//!
//! A thread is no border: the others share its memory, so whoever took over one that serves the guest has soon what
//! the whole process may do. That is the filter of [`process`], and [`crate::Reach`]'s rules for files where the host's
//! kernel has them. The threads' own filters make the first step harder. `docs/security.md` says what a hostile guest
//! is kept from, and what not.

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

/// What both kinds of threads need, whatever the arguments.
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
    /// For the threads of CPUs.
    pub(crate) fn cpu() -> Result<Self, KvmError> {
        let requests =
            [KVM_RUN, KVM_GET_ONE_REG].map(|request| argument(1, SeccompCmpOp::Eq, request));
        let requests = requests.map(|condition| rule(vec![condition?]));
        Self::new([(
            libc::SYS_ioctl,
            requests.into_iter().collect::<Result<_, _>>()?,
        )])
    }

    /// For the threads that wait for the host's streams, and for what comes on the console, whose log they cut (`machine::log`).
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
        // A debug build asks whether a descriptor is open before it closes it.
        let asks = argument(1, SeccompCmpOp::Eq, libc::F_GETFD as u64)?;
        rules.insert(libc::SYS_fcntl, vec![rule(vec![asks])?]);
        // A CPU that meets its end, or the ring, kicks the others.
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

    /// Confines the calling thread, for good.
    pub(crate) fn install(&self) -> Result<(), KvmError> {
        apply_filter(&self.0).map_err(refused)
    }
}

/// Confines the calling thread, for good, and whatever it starts from then on: to be called before there are others, by a
/// process that has nothing else to do than what has to do with its guest.
pub(crate) fn confine() -> Result<(), KvmError> {
    process::confine()
}

/// Before it first gives the end of a thread's heap back, glibc reads a file (check_may_shrink_heap() of its
/// malloc-sysdep.h), which a confined thread may not open: so heaps do not shrink. That also ends its own finding of what
/// is too large for a heap: the most that it comes to by itself (DEFAULT_MMAP_THRESHOLD_MAX) is so from the start.
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

/// Says which system call was not allowed, and ends the process.
extern "C" fn violated(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    /// Where `struct siginfo` has `si_syscall`, in bytes.
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
    // SAFETY: the line is as long as it is said to be. The second call is one that no thread may make: within
    // this handler, where the signal is blocked, that ends the process.
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

/// Memory that can be executed is made by nobody.
fn plain_memory() -> Result<SeccompRule, KvmError> {
    let executable = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
    rule(vec![argument(2, executable, 0)?])
}

/// A stream's bytes go to its other end, and to no address.
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
