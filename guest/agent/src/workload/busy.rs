// SPDX-License-Identifier: GPL-2.0-only
//! A second thread that loads or stores words over and over while the process does other operations.
//!
//! No one else stores to its words, so each must hold what the thread stored last, whatever the kernel does to the page
//! meanwhile. A store is lost where a page is copied before all mappings of it are gone, or where a TLB still has the page of
//! before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use protocol::{pattern, Access, Failure, Mismatch, Outcome, Verified};

use super::probe;
use super::touch::{wait_until, Steps, SHOWN, STACK};
use crate::sys;

/// Maximum number of words of a range, which are remembered.
const MOST: u64 = 1 << 20;

/// The thread of this process.
static BUSY: Mutex<Option<Busy>> = Mutex::new(None);

struct Busy {
    /// A child inherits this, and no thread.
    process: u32,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    ranges: Mutex<Vec<Range>>,
    /// The first thread wants the ranges.
    wanted: AtomicBool,
    ended: AtomicBool,
}

/// A range, and what the thread knows of it. All its memory is taken before the thread sees it.
struct Range {
    steps: Steps,
    stores: bool,
    may_drop: bool,
    passes: u64,
    /// The word that was loaded or stored last, by step.
    words: Vec<u64>,
    found: Verified,
    failure: Option<Failure>,
}

/// Has the thread access the words of a range from now on; it has done so once when this returns.
pub fn keep(
    address: u64,
    length: u64,
    stride: Option<u64>,
    access: Access,
    may_drop: bool,
) -> Result<Outcome, Failure> {
    let steps = Steps::new(address, length, stride)?;
    if steps.count > MOST {
        return Err(Failure::bad(format!("at most {MOST} words of a range")));
    }
    let words = vec![0; steps.count as usize];
    let mut holder = lock(&BUSY);
    if let Some(parents) = holder.take_if(|it| it.process != std::process::id()) {
        std::mem::forget(parents);
    }
    let busy = match &mut *holder {
        Some(busy) => busy,
        none => none.insert(Busy::start()?),
    };
    if busy.passes(address).is_some() {
        return Err(Failure::bad(format!(
            "a second thread accesses a range at {address:#x} already: stop_accessing first"
        )));
    }
    busy.with(|ranges| {
        ranges.push(Range {
            steps,
            stores: access != Access::Read,
            may_drop,
            passes: 0,
            words,
            found: Verified {
                words: 0,
                wrong: 0,
                first: Vec::with_capacity(SHOWN),
            },
            failure: None,
        });
    });
    busy.wait_for_pass(address)?;
    Ok(Outcome::Done {})
}

/// Ends that, after another pass; then compares the words on this thread's CPU, and stores the pattern where the thread
/// stored.
pub fn stop(address: u64, salt: u64) -> Result<Outcome, Failure> {
    let mut holder = lock(&BUSY);
    let own = holder
        .as_mut()
        .filter(|it| it.process == std::process::id());
    let busy = own.ok_or_else(|| none_at(address))?;
    busy.wait_for_pass(address)?;
    let (mut range, last) = busy.with(|ranges| {
        let at = ranges.iter().position(|it| it.steps.address(0) == address);
        let range = ranges.swap_remove(at.expect("its pass was waited for"));
        (range, ranges.is_empty())
    });
    if last {
        busy.shared.ended.store(true, Ordering::SeqCst);
        let ended = holder.take().map(|busy| busy.thread.join());
        if ended.is_some_and(|ended| ended.is_err()) {
            return Err(Failure::bad("the second thread panicked"));
        }
    }
    if let Some(failure) = range.failure {
        return Err(failure);
    }
    range.may_drop = false;
    for step in 0..range.steps.count {
        range.compare(step)?;
        if range.stores {
            let address = range.steps.address(step);
            probe::store(address, pattern(address, salt), step)?;
        }
    }
    Ok(Outcome::Verified(range.found))
}

fn none_at(address: u64) -> Failure {
    Failure::bad(format!(
        "no second thread accesses a range at {address:#x}: keep_accessing first"
    ))
}

/// A thread that panicked leaves the ranges as they were before its step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Busy {
    fn start() -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let own = sys::affinity(0);
        let thread = std::thread::Builder::new().stack_size(STACK);
        let thread = thread.spawn(move || {
            // A guest of one CPU gives each thread its turns.
            let _ = sys::leave(&own);
            its.run();
        });
        Ok(Self {
            process: std::process::id(),
            shared,
            thread: thread.map_err(|error| sys::io_failure(&error, "a second thread"))?,
        })
    }

    /// Lets the first thread have the ranges between two passes.
    fn with<T>(&self, act: impl FnOnce(&mut Vec<Range>) -> T) -> T {
        self.shared.wanted.store(true, Ordering::SeqCst);
        let done = act(&mut lock(&self.shared.ranges));
        self.shared.wanted.store(false, Ordering::SeqCst);
        done
    }

    /// The passes over the range at an address, and whether one failed.
    fn passes(&self, address: u64) -> Option<(u64, bool)> {
        self.with(|ranges| {
            let range = ranges.iter().find(|it| it.steps.address(0) == address);
            range.map(|range| (range.passes, range.failure.is_some()))
        })
    }

    /// Waits until the thread has passed once more over the whole range, or has failed to.
    fn wait_for_pass(&self, address: u64) -> Result<(), Failure> {
        let (before, _) = self.passes(address).ok_or_else(|| none_at(address))?;
        wait_until(|| {
            let passes = self.passes(address);
            passes.is_none_or(|(now, failed)| now > before || failed)
        });
        Ok(())
    }
}

impl Shared {
    /// Passes over one range after the other. The newest is the first, as the other thread waits for it.
    fn run(&self) {
        let mut next = 0;
        while !self.ended.load(Ordering::SeqCst) {
            wait_until(|| !self.wanted.load(Ordering::SeqCst));
            let mut ranges = lock(&self.ranges);
            let newest = ranges.iter().position(|range| range.passes == 0);
            let at = newest.unwrap_or(next);
            next = if at + 1 < ranges.len() { at + 1 } else { 0 };
            if let Some(range) = ranges.get_mut(at) {
                range.pass();
            }
        }
    }
}

impl Range {
    fn pass(&mut self) {
        if self.failure.is_some() {
            return;
        }
        for step in 0..self.steps.count {
            if let Err(failure) = self.step(step) {
                self.failure = Some(failure);
                return;
            }
        }
        self.passes += 1;
    }

    /// A store's word does not depend on the address: pages that are equal otherwise stay so, and KSM can merge them.
    fn step(&mut self, step: u64) -> Result<(), Failure> {
        let address = self.steps.address(step);
        match (self.passes, self.stores) {
            (0, true) => {}
            (0, false) => self.words[step as usize] = probe::load(address, step)?,
            _ => self.compare(step)?,
        }
        if self.stores {
            let word = pattern(0, self.passes);
            probe::store(address, word, step)?;
            self.words[step as usize] = word;
        }
        Ok(())
    }

    fn compare(&mut self, step: u64) -> Result<(), Failure> {
        let (address, expected) = (self.steps.address(step), self.words[step as usize]);
        let found = probe::load(address, step)?;
        self.found.words += 1;
        if found != expected && !(self.may_drop && found == 0) {
            self.found.wrong += 1;
            if self.found.first.len() < SHOWN {
                self.found.first.push(Mismatch {
                    address,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }
}
