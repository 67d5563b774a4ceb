// SPDX-License-Identifier: GPL-2.0-only
//! Signals that this program takes when it wants to.

use std::mem::MaybeUninit;

use nix::sys::signal::{SigSet, Signal};

/// Returns those of `signals` that are not ignored. What was ignored when the program began (SIGHUP under `nohup`,
/// SIGINT in the background of a script) stays ignored: blocked, it would become pending.
#[must_use]
pub fn heeded(signals: &[Signal]) -> SigSet {
    let heeded = signals.iter().copied();
    heeded.filter(|&signal| !ignored(signal)).collect()
}

/// Returns the signals that are pending for this thread or its process.
pub(crate) fn pending() -> SigSet {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: the pointer is to a signal set of ours, which the call writes; it cannot fail.
    unsafe {
        libc::sigpending(pending.as_mut_ptr());
        SigSet::from_sigset_t_unchecked(pending.assume_init())
    }
}

fn ignored(signal: Signal) -> bool {
    let mut present = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action the call only writes the present one; one of all zeros is one too.
    unsafe {
        libc::sigaction(signal as i32, std::ptr::null(), present.as_mut_ptr());
        present.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
