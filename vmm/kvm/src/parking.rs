// SPDX-License-Identifier: GPL-2.0-only
//! Stops the CPUs, and lets them run again.
//!
//! ```text
//!   controller                         CPU's thread
//!   stop(): immediate_exit = 1,        KVM_RUN ... EINTR
//!           signal         ----------> park(): standing,
//!   wait_still()           <---------- its registers read
//!   ...                                waits
//!   go()                   ----------> immediate_exit = 0, KVM_RUN
//! ```
//!
//! No kick is lost, whenever it comes: `immediate_exit` is set before the signal is sent, and stays set until the
//! thread has passed [`Parking::park`]. It makes KVM_RUN return at once, after it has completed the last exit (a load's
//! register, the PC behind the access).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvm_ioctls::KvmRunWrapper;
use rustix::event::{eventfd, EventfdFlags};
use snapshot::Cpu;
use vmm_sys_util::signal::{register_signal_handler, SIGRTMIN};

use crate::KvmError;

/// Returns the signal that takes a thread out of KVM_RUN.
pub(crate) fn kick_signal() -> libc::c_int {
    SIGRTMIN() + 1
}

/// The reason why the guest no longer runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It powered off or requested a reset.
    Ended { reset: bool },
    /// It reported a crash.
    Crashed,
    /// It did something that cannot be handled, in a sentence.
    Lost(String),
}

/// State that the controller and the CPUs' threads share.
#[derive(Debug)]
pub(crate) struct Parking {
    state: Mutex<State>,
    /// For the controller: all CPUs are stopped and were read, the doorbell rang, or the guest ended.
    told: Condvar,
    /// For the CPUs: they may run on, or are to end. It is a separate condition, since a needless wake-up of a thread
    /// prolongs the guest's stop.
    opened: Condvar,
    /// Can be read from the guest's end on.
    ended: OwnedFd,
}

#[derive(Debug)]
struct State {
    stop: bool,
    quit: bool,
    end: Option<End>,
    /// The nonce whose ring stops all CPUs.
    armed: Option<u64>,
    /// Time of the last such ring.
    rung: Option<Instant>,
    /// True if the doorbell ever rang.
    heard: bool,
    /// Time at which the last CPU stopped.
    still: Option<Instant>,
    cpus: Vec<Member>,
}

/// A CPU's thread.
#[derive(Debug)]
struct Member {
    /// A mapping of its `kvm_run` that only we use.
    run: KvmRunWrapper,
    /// While it runs.
    thread: Option<libc::pthread_t>,
    /// True if its thread has ended without a result, so that its CPU's state stays unknown.
    gone: bool,
    /// True if it is out of KVM_RUN and stays so.
    standing: bool,
    /// The registers that were read since it stopped.
    registers: Option<Result<Cpu, KvmError>>,
}

impl State {
    fn must_park(&self) -> bool {
        !self.quit && (self.stop || self.end.is_some())
    }

    /// Returns whether all CPUs are stopped and their registers were read, well or not, as far as their threads live.
    fn was_read(&self) -> bool {
        let read = |member: &Member| member.gone || member.registers.is_some();
        self.cpus.iter().all(read)
    }

    /// Gets every CPU out of KVM_RUN; `outside` is the one known to be out already.
    fn kick(&mut self, outside: Option<usize>) {
        let members = self.cpus.iter_mut().enumerate();
        for (index, member) in members.filter(|(_, member)| !member.standing) {
            member.run.as_mut_ref().immediate_exit = 1;
            if outside == Some(index) {
                continue;
            }
            if let Some(thread) = member.thread {
                // SAFETY: the thread takes its handle out, under the lock that we hold, before it
                // ends; and the signal has a handler, which does nothing.
                unsafe { libc::pthread_kill(thread, kick_signal()) };
            }
        }
    }
}

impl Parking {
    /// Creates the state for CPUs that begin parked, with these mappings of their `kvm_run`.
    pub(crate) fn new(runs: Vec<KvmRunWrapper>) -> Result<Self, KvmError> {
        extern "C" fn nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
        let system = |what| move |source| KvmError::System { what, source };
        register_signal_handler(kick_signal(), nothing)
            .map_err(|error| error.into())
            .map_err(system("take a real-time signal"))?;
        let ended = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let member = |run| Member {
            run,
            thread: None,
            gone: false,
            standing: false,
            registers: None,
        };
        let state = State {
            stop: true,
            quit: false,
            end: None,
            armed: None,
            rung: None,
            heard: false,
            still: None,
            cpus: runs.into_iter().map(member).collect(),
        };
        Ok(Self {
            state: Mutex::new(state),
            told: Condvar::new(),
            opened: Condvar::new(),
            ended: ended
                .map_err(io::Error::from)
                .map_err(system("make an event"))?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain data, changed in one piece at a time: a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what can be read from the guest's end on.
    pub(crate) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Returns how the guest ended, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        self.lock().end.clone()
    }

    /// Returns whether the CPUs were told to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().stop
    }

    // The controller's part.

    /// Tells all CPUs to stop.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stop = true;
        state.kick(None);
    }

    /// Lets the CPUs run on, unless the guest has ended.
    pub(crate) fn go(&self) {
        self.lock().stop = false;
        self.opened.notify_all();
    }

    /// Waits for a ring of `nonce`, which stops all CPUs: for at most `timeout`, or `unheard` if the doorbell has never
    /// rung. Returns the instant of the ring.
    pub(crate) fn await_ring(
        &self,
        nonce: u64,
        timeout: Duration,
        unheard: Duration,
    ) -> Option<Instant> {
        let mut state = self.lock();
        state.armed = Some(nonce);
        state.rung = None;
        let since = Instant::now();
        let wait = |state, most: Duration, until_heard: bool| {
            let left = most.saturating_sub(since.elapsed());
            let waiting = |state: &mut State| {
                state.armed.is_some() && !state.must_park() && !(until_heard && state.heard)
            };
            let result = self.told.wait_timeout_while(state, left, waiting);
            result.unwrap_or_else(PoisonError::into_inner).0
        };
        state = wait(state, unheard, true);
        if state.heard {
            state = wait(state, timeout, false);
        }
        state.armed = None;
        state.rung
    }

    /// Waits until all CPUs are stopped and their registers were read. Returns the time of the stop, and the registers.
    ///
    /// A guest that has ended may have CPUs without a thread, whose state is unknown. The readable ones are returned
    /// then, without waiting for the others.
    pub(crate) fn still(&self, waited: Duration) -> Result<(Instant, Vec<Cpu>), KvmError> {
        let waiting = |state: &mut State| !state.was_read();
        let result = self.told.wait_timeout_while(self.lock(), waited, waiting);
        let mut state = result.unwrap_or_else(PoisonError::into_inner).0;
        if !state.was_read() {
            let running = |member: &&Member| !member.gone && member.registers.is_none();
            return Err(KvmError::NotStill {
                waited,
                running: state.cpus.iter().filter(running).count(),
                cpus: state.cpus.len(),
            });
        }
        let since = state.still.unwrap_or_else(Instant::now);
        let ended = state.end.is_some();
        let all = state.cpus.iter_mut().filter(|member| !member.gone);
        let all = all.filter_map(|member| match &member.registers {
            Some(Ok(cpu)) => Some(Ok(*cpu)),
            _ if ended => None,
            // An error is reported once; the next stop tries again.
            _ => Some(member.registers.take().unwrap_or(Err(KvmError::Killed))),
        });
        Ok((since, all.collect::<Result<_, _>>()?))
    }

    /// Tells all threads to end.
    pub(crate) fn quit(&self) {
        let mut state = self.lock();
        state.quit = true;
        state.kick(None);
        drop(state);
        self.opened.notify_all();
    }

    // The part of a CPU's thread.

    /// Returns the calling thread serves CPU `index`, until the result is dropped.
    pub(crate) fn join(&self, index: usize) -> Membership<'_> {
        // SAFETY: plain call, which cannot fail.
        let thread = unsafe { libc::pthread_self() };
        self.lock().cpus[index].thread = Some(thread);
        Membership {
            parking: self,
            index,
        }
    }

    /// Records that the guest ended: all CPUs stop, and none runs on.
    pub(crate) fn set_end(&self, end: End) {
        let mut state = self.lock();
        // The first end is the cause of the others.
        state.end.get_or_insert(end);
        state.kick(None);
        drop(state);
        self.told.notify_all();
        // It can fail only where it was written to 2^64 - 2 times.
        let _ = rustix::io::write(&self.ended, &1_u64.to_ne_bytes());
    }

    /// Handles a store of `value` to the doorbell by CPU `index`, whose thread calls this. If it is the awaited ring,
    /// it stops all CPUs, including this one.
    pub(crate) fn ring(&self, index: usize, value: u64) {
        let mut state = self.lock();
        let first = !std::mem::replace(&mut state.heard, true);
        if state.armed == Some(value) {
            state.armed = None;
            state.rung = Some(Instant::now());
            state.stop = true;
            state.kick(Some(index));
            // The waiting controller is notified when all CPUs are stopped: before that it has nothing to do.
        } else if first {
            drop(state);
            self.told.notify_all();
        }
    }
}

/// Membership of a thread that serves a CPU.
#[derive(Debug)]
pub(crate) struct Membership<'g> {
    parking: &'g Parking,
    index: usize,
}

impl Membership<'_> {
    /// Waits, outside of KVM_RUN, while the CPU is to be stopped, and lets `read` read its registers meanwhile. Returns
    /// false if the thread is to end.
    pub(crate) fn park(&self, read: impl FnOnce() -> Result<Cpu, KvmError>) -> bool {
        let parking = self.parking;
        let mut state = parking.lock();
        if state.must_park() {
            state.cpus[self.index].standing = true;
            if state.cpus.iter().all(|member| member.standing) {
                state.still = Some(Instant::now());
            }
            drop(state);
            let registers = read();
            state = parking.lock();
            state.cpus[self.index].registers = Some(registers);
            if state.was_read() {
                parking.told.notify_all();
            }
            let waited = parking.opened.wait_while(state, |state| state.must_park());
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let quit = state.quit;
        let member = &mut state.cpus[self.index];
        member.standing = false;
        member.registers = None;
        member.run.as_mut_ref().immediate_exit = 0;
        !quit
    }
}

impl Drop for Membership<'_> {
    /// Handles the end of a thread. One that ends before it was told to has panicked, which ends the machine.
    fn drop(&mut self) {
        let mut state = self.parking.lock();
        let member = &mut state.cpus[self.index];
        member.thread = None;
        member.gone = true;
        member.standing = true;
        member.registers = None;
        let told = state.quit;
        drop(state);
        // The end first: the controller that waits for this CPU must find it.
        if !told {
            let what = format!("the monitor's thread of CPU {} has failed", self.index);
            self.parking.set_end(End::Lost(what));
        }
        self.parking.told.notify_all();
    }
}

#[cfg(test)]
mod tests;
