// SPDX-License-Identifier: GPL-2.0-only
//! Signals that are waited for instead of being obeyed.

use machine::signals::heeded;
use nix::sys::signal::{SigSet, Signal};

/// Signals that end a command that serves.
pub const ENDS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Signals for the program that runs in our place.
pub const PASSED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Signals that are blocked in this thread and in those that it starts from then on.
#[derive(Clone, Copy, Debug)]
pub struct Signals(SigSet);

impl Signals {
    /// Blocks these signals, except for those that were ignored when this program began. It must be called before other
    /// threads start.
    ///
    /// # Panics
    /// Never: signals that exist can be blocked.
    #[must_use]
    pub fn block(signals: &[Signal]) -> Self {
        let set = heeded(signals);
        set.thread_block()
            .expect("signals that exist can be blocked");
        Self(set)
    }

    /// Waits for the next of them, and returns its number.
    #[must_use]
    pub fn wait(&self) -> i32 {
        loop {
            if let Ok(signal) = self.0.wait() {
                return signal as i32;
            }
        }
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
