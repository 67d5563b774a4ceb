//! The system calls that the threads which serve the guest may make; at any other the process is killed,
//! after a line on standard error that says which it was.
//!
//! They open nothing and start nothing: a guest that took over one of them would have the descriptors
//! that are there, and no more. The process around them starts nothing either: see [`process`].

mod process;

use std::collections::BTreeMap;

use seccompiler::{
    apply_filter, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};
use vmm_sys_util::signal::register_signal_handler;

use crate::parking::kick_signal;
use crate::KvmError;

/// `KVM_RUN`.
const KVM_RUN: u64 = 0xae80;
/// `KVM_GET_ONE_REG`.
const KVM_GET_ONE_REG: u64 = 0x4010_aeab;

/// What both kinds of threads need, whatever the arguments.
const COMMON: [libc::c_long; 21] = [
    // Streams and events that are open.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
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

fn refused(error: impl std::fmt::Display) -> KvmError {
    KvmError::Seccomp(error.to_string())
}

#[cfg(test)]
mod tests {
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

    /// What a confined thread does in the process that is started for it.
    fn act(value: &str) {
        let value = value.to_owned();
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
                    let _ =
                        unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
                }
                "type" => {
                    // SAFETY: the pointer is to a key.
                    let _ = unsafe { libc::ioctl(0, libc::TIOCSTI as _, b"x".as_ptr()) };
                }
                "serve" => {
                    std::fs::read("/proc/self/stat").unwrap();
                    assert!(rustix::param::page_size() >= 4096);
                    let pair = std::os::unix::net::UnixStream::pair().unwrap();
                    let thread = std::thread::Builder::new().name("another".into());
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
        let process = &["fork", "start", "network", "execute", "type"][..];
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
}
