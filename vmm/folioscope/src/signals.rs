// SPDX-License-Identifier: GPL-2.0-only
//! Signals that are waited for instead of being obeyed.

/// Signals that end a command that serves.
pub const ENDS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Signals for the program that runs in our place.
pub const PASSED: [i32; 6] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Signals that are blocked in this thread and in those that it starts from then on.
#[derive(Clone, Copy)]
pub struct Signals(libc::sigset_t);

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signals")
    }
}

impl Signals {
    /// Returns the blocks them, except for those that were ignored when this program began (SIGHUP under `nohup`,
    /// SIGINT in the background of a script): these stay ignored, where a blocked one would become pending. It must be
    /// called before other threads start.
    #[must_use]
    pub fn block(numbers: &[i32]) -> Self {
        // SAFETY: an all-zero set is a set, and the calls get a valid one.
        let set = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for &number in numbers.iter().filter(|&&number| !ignored(number)) {
                libc::sigaddset(&mut set, number);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            set
        };
        Self(set)
    }

    /// Waits for the next of them.
    #[must_use]
    pub fn wait(&self) -> i32 {
        let mut number = 0;
        // SAFETY: the set is valid, and there is room for a number.
        while unsafe { libc::sigwait(&self.0, &mut number) } != 0 {}
        number
    }
}

/// Returns whether a signal is ignored.
fn ignored(number: i32) -> bool {
    // SAFETY: an all-zero action is one, and the call only writes the present one to it.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &mut present) == 0
            && present.sa_sigaction == libc::SIG_IGN
    }
}

/// Ends this process as the signal ended another one.
pub fn die_of(number: i32) -> ! {
    // SAFETY: plain system calls on valid sets; the process is about to end.
    unsafe {
        // No core of ours: the fault is not ours.
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(number, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(number);
    }
    // The signal does not end every process; a shell would return this status.
    std::process::exit(128 + number)
}
