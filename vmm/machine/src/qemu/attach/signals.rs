// SPDX-License-Identifier: GPL-2.0-only
//! Holds signals back, so that none ends us while we have stopped an external QEMU's guest.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::signals::{heeded, pending};

/// Signals by which a user or a system ends or stops a program, and that can be held back. SIGKILL cannot.
const HELD_BACK: [Signal; 5] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
];

/// While it lives, these signals are blocked; when it is dropped, pending ones take effect. A signal that was ignored
/// when the program began, as under `nohup`, stays ignored.
///
/// It applies to the thread that made it and to threads that are started later: make it before any other thread exists.
#[derive(Debug)]
pub(super) struct HeldBack {
    before: SigSet,
}

impl HeldBack {
    pub(super) fn new() -> Self {
        let before = heeded(&HELD_BACK).thread_swap_mask(SigmaskHow::SIG_BLOCK);
        Self {
            before: before.expect("signals that exist can be blocked"),
        }
    }

    /// Returns whether one is pending, so that it is time to clean up.
    pub(super) fn any_came(&self) -> bool {
        let pending = pending();
        HELD_BACK.iter().any(|&signal| pending.contains(signal))
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // The mask is one that the system has returned, which it takes back.
        let _ = self.before.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_waits_until_the_end() {
        // A handler that only returns, so that the signal has no effect once it is unblocked.
        extern "C" fn nothing(_: libc::c_int) {}
        let handler = nothing as extern "C" fn(libc::c_int);
        // SAFETY: the handler makes no calls; no other test uses this signal.
        unsafe { libc::signal(libc::SIGTSTP, handler as libc::sighandler_t) };
        let held = HeldBack::new();
        assert!(!held.any_came());
        // SAFETY: plain system call that sends to this thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTSTP) };
        assert!(held.any_came());
        drop(held);
        assert!(!HeldBack::new().any_came());
    }

    #[test]
    fn what_was_ignored_does_not_come() {
        // SAFETY: no other test uses this signal.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        let held = HeldBack::new();
        // SAFETY: plain system call that sends to this thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGHUP) };
        assert!(!held.any_came());
    }
}
