// SPDX-License-Identifier: GPL-2.0-only
//! Holds signals back, so that none ends us while we have stopped an external QEMU's guest.

use std::mem::MaybeUninit;

/// Signals by which a user or a system ends or stops a program, and that can be held back. SIGKILL cannot.
const HELD_BACK: [libc::c_int; 5] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGTSTP,
];

/// While it lives, these signals are blocked; when it is dropped, pending ones take effect. A signal that was ignored
/// when the program began, as under `nohup`, stays ignored: blocked, it would seem to be pending.
///
/// It applies to the thread that made it and to threads that are started later: make it before any other thread exists.
#[derive(Debug)]
pub(super) struct HeldBack {
    before: Mask,
}

struct Mask(libc::sigset_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

impl HeldBack {
    pub(super) fn new() -> Self {
        let mut before = MaybeUninit::uninit();
        let set = set();
        // SAFETY: both pointers are to signal sets of ours, the second to be written.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, before.as_mut_ptr()) };
        // SAFETY: the call cannot fail with these arguments, and so has written the set.
        let before = Mask(unsafe { before.assume_init() });
        Self { before }
    }

    /// Returns whether one is pending, so that it is time to clean up.
    pub(super) fn any_came(&self) -> bool {
        let mut pending = MaybeUninit::uninit();
        // SAFETY: the pointer is to a signal set of ours, to be written; the call cannot fail.
        let pending = unsafe {
            libc::sigpending(pending.as_mut_ptr());
            pending.assume_init()
        };
        // SAFETY: a signal set that the system has written.
        let came = |&signal: &libc::c_int| unsafe { libc::sigismember(&pending, signal) == 1 };
        HELD_BACK.iter().any(came)
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // SAFETY: the set is the one that `new` returned; the previous one is not asked for.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before.0, std::ptr::null_mut());
        }
    }
}

fn set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is to a signal set of ours; the numbers are signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in HELD_BACK.into_iter().filter(|&signal| !ignored(signal)) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn ignored(signal: libc::c_int) -> bool {
    let mut present = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action the call only writes the present one; one of all zeros is one too.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), present.as_mut_ptr());
        present.assume_init().sa_sigaction == libc::SIG_IGN
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
