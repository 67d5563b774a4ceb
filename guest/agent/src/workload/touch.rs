//! Operations that access memory word by word.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::resource::{getrusage, UsageWho};
use protocol::{pattern, Access, Expect, Failure, Mismatch, Order, Outcome, Touched, Verified};

use super::probe;
use crate::sys;

/// Number of wrong words that a verification shows.
pub(super) const SHOWN: usize = 16;

/// Steps before which two threads wait for each other: on a busy host each may take a turn of its scheduler.
const MEETINGS: u64 = 64;

/// Looks at the other thread between two short sleeps.
const TURN: u64 = 2000;

/// Bytes of a second thread's stack.
pub(super) const STACK: usize = 64 << 10;

/// Maximum number of words of a peek, so that the answer fits in a line.
const MAX_PEEK: u64 = 1 << 18;

pub fn touch(
    address: u64,
    length: u64,
    stride: Option<u64>,
    access: Access,
    order: &Order,
    salt: u64,
) -> Result<Outcome, Failure> {
    let steps = Steps::new(address, length, stride)?;
    if let Order::List { steps: list } = order {
        if let Some(beyond) = list.iter().find(|&&step| step >= steps.count) {
            return Err(Failure::bad(format!(
                "step {beyond} is beyond the range, which has {} steps",
                steps.count
            )));
        }
    }
    counted(&steps, access, order, salt).map(Outcome::Touched)
}

/// Has two threads access the same steps at once, each its own words, the second one on another CPU where there is one.
pub fn race(
    range: (u64, u64),
    stride: Option<u64>,
    beside: u64,
    accesses: [Access; 2],
    salt: u64,
) -> Result<Outcome, Failure> {
    let (address, length) = range;
    let other = address
        .checked_add(beside)
        .ok_or_else(|| Failure::bad("the other words lie beyond the last address"))?;
    let both = [
        Steps::new(address, length, stride)?,
        Steps::new(other, length, stride)?,
    ];
    // They wait for each other before each step, so that both are at the same page whichever CPU is given less time.
    let steps_begun = AtomicU64::new(0);
    let meet = |step: u64| {
        steps_begun.fetch_add(1, Ordering::SeqCst);
        wait_until(|| step >= MEETINGS || steps_begun.load(Ordering::SeqCst) >= 2 * (step + 1));
    };
    let run = |steps: &Steps, access: Access| -> Result<(), Failure> {
        for i in 0..steps.count {
            meet(i);
            let address = steps.address(i);
            let done = match access {
                Access::Read => probe::load(address, i).map(drop),
                Access::Write => probe::store(address, pattern(address, salt), i),
                Access::ReadWrite => probe::load(address, i)
                    .and_then(|_| probe::store(address, pattern(address, salt), i)),
            };
            if done.is_err() {
                // The other one goes on alone.
                steps_begun.store(2 * MEETINGS, Ordering::SeqCst);
                return done;
            }
        }
        Ok(())
    };
    let own = sys::affinity(0);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let thread = thread
            .spawn_scoped(scope, || {
                // On one CPU they would wait for each other's turns, and never meet.
                if sys::leave(&own).is_err() {
                    steps_begun.store(2 * MEETINGS, Ordering::SeqCst);
                }
                run(&both[1], accesses[1])
            })
            .map_err(|error| sys::io_failure(&error, "a second thread"))?;
        let first = run(&both[0], accesses[0]);
        let second = thread
            .join()
            .unwrap_or_else(|_| Err(Failure::bad("the second thread panicked")));
        first.and(second)
    })?;
    Ok(Outcome::Done {})
}

/// Waits for what another thread does.
pub(super) fn wait_until(is_so: impl Fn() -> bool) {
    let mut waited = 0;
    while !is_so() {
        waited += 1;
        match waited % TURN {
            // An idle virtual CPU lets another one run where they share one thread.
            0 => std::thread::sleep(Duration::from_micros(1)),
            _ => std::hint::spin_loop(),
        }
    }
}

pub fn verify(
    address: u64,
    length: u64,
    stride: Option<u64>,
    expect: &Expect,
) -> Result<Outcome, Failure> {
    let steps = Steps::new(address, length, stride)?;
    compared(&steps, |step| steps.expected(expect, step)).map(Outcome::Verified)
}

pub fn peek(address: u64, words: u64) -> Result<Outcome, Failure> {
    if words > MAX_PEEK {
        return Err(Failure::bad(format!("at most {MAX_PEEK} words at once")));
    }
    let steps = Steps::new(address, words.saturating_mul(8), Some(8))?;
    let words = (0..steps.count).map(|i| probe::load(steps.address(i), i));
    words
        .collect::<Result<_, _>>()
        .map(|words| Outcome::Words { words })
}

pub fn poke(address: u64, words: &[u64]) -> Result<Outcome, Failure> {
    let steps = Steps::new(address, words.len() as u64 * 8, Some(8))?;
    for (i, &word) in (0..).zip(words) {
        probe::store(steps.address(i), word, i)?;
    }
    Ok(Outcome::Done {})
}

pub fn force(
    address: u64,
    length: u64,
    stride: Option<u64>,
    salt: u64,
) -> Result<Outcome, Failure> {
    let steps = Steps::new(address, length, stride)?;
    let memory = OpenOptions::new().write(true).open("/proc/self/mem");
    let memory = memory.map_err(|error| sys::io_failure(&error, "open /proc/self/mem"))?;
    for i in 0..steps.count {
        let address = steps.address(i);
        memory
            .write_all_at(&pattern(address, salt).to_ne_bytes(), address)
            .map_err(|error| sys::io_failure(&error, "write /proc/self/mem"))?;
    }
    Ok(Outcome::Done {})
}

/// The words of a range, one per stride.
pub(super) struct Steps {
    start: u64,
    stride: u64,
    pub(super) count: u64,
}

impl Steps {
    pub(super) fn new(start: u64, length: u64, stride: Option<u64>) -> Result<Self, Failure> {
        let stride = stride.unwrap_or_else(sys::page_size);
        if start % 8 != 0 || stride % 8 != 0 || stride == 0 {
            return Err(Failure::bad(
                "the address and the stride must be multiples of 8, the stride not 0",
            ));
        }
        if start.checked_add(length).is_none() {
            return Err(Failure::bad("the range ends beyond the last address"));
        }
        Ok(Self {
            start,
            stride,
            count: length.div_ceil(stride),
        })
    }

    pub(super) fn address(&self, step: u64) -> u64 {
        self.start + step * self.stride
    }

    /// The word that is expected at a step.
    pub(super) fn expected(&self, expect: &Expect, step: u64) -> u64 {
        match expect {
            Expect::Zero => 0,
            Expect::Pattern { salt, origin } => {
                let origin = origin.unwrap_or(self.start);
                pattern(origin.wrapping_add(step * self.stride), *salt)
            }
        }
    }
}

fn counted(steps: &Steps, access: Access, order: &Order, salt: u64) -> Result<Touched, Failure> {
    // Once over a word of its own, so that the counted faults are not those of this code.
    static WORD: AtomicU64 = AtomicU64::new(0);
    let own = Steps::new(WORD.as_ptr() as u64, 8, Some(8))?;
    for order in [&Order::Random { seed: 0 }, &Order::Forward] {
        measured(&own, Access::ReadWrite, order, 0)?;
    }
    measured(steps, access, order, salt)
}

fn measured(steps: &Steps, access: Access, order: &Order, salt: u64) -> Result<Touched, Failure> {
    let total = order.len(steps.count);
    let mut loaded = 0;
    let before = faults();
    let start = sys::now_ns();
    for i in 0..total {
        let address = steps.address(order.step(i, steps.count));
        if access != Access::Write {
            loaded ^= probe::load(address, i)?;
        }
        if access != Access::Read {
            probe::store(address, pattern(address, salt), i)?;
        }
    }
    let nanoseconds = sys::now_ns() - start;
    let after = faults();
    Ok(Touched {
        steps: total,
        minor_faults: after.0 - before.0,
        major_faults: after.1 - before.1,
        nanoseconds,
        loaded,
    })
}

/// Compares each word of memory with the one that is expected at its step.
pub(super) fn compared(steps: &Steps, expected: impl Fn(u64) -> u64) -> Result<Verified, Failure> {
    compared_with(steps, expected, probe::load)
}

/// Compares each word, as `load` has it by its address and its step, with the one that is expected there.
pub(super) fn compared_with(
    steps: &Steps,
    expected: impl Fn(u64) -> u64,
    load: impl Fn(u64, u64) -> Result<u64, Failure>,
) -> Result<Verified, Failure> {
    let mut wrong = 0;
    let mut first = Vec::new();
    for i in 0..steps.count {
        let address = steps.address(i);
        let expected = expected(i);
        let found = load(address, i)?;
        if found != expected {
            wrong += 1;
            if first.len() < SHOWN {
                first.push(Mismatch {
                    address,
                    expected,
                    found,
                });
            }
        }
    }
    Ok(Verified {
        words: steps.count,
        wrong,
        first,
    })
}

/// Returns the minor and major faults of this process so far.
fn faults() -> (u64, u64) {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask for its own usage");
    (
        usage.minor_page_faults() as u64,
        usage.major_page_faults() as u64,
    )
}
