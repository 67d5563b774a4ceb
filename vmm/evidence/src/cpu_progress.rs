// SPDX-License-Identifier: GPL-2.0-only
//! Progress of each CPU at a stop of the guest, to be compared with a later stop.

use std::time::Duration;

use snapshot::Cpu;
use stage1::{PhysMemory, Regime};

use crate::cpus::{kernel_half, started};

/// Time that a CPU's thread must run between two looks: thousands of updates of a table, also under emulation.
pub const RAN_NS: u64 = 1_000_000;

/// Stops at most to see a CPU in the middle of nothing whose time is not known: one that faults for ever on one entry is in
/// user mode at one stop of twenty-five.
const STOPS: u32 = 60;
/// Between two of them. CPUs that share a thread have turns of up to a tenth of a second.
const BETWEEN: Duration = Duration::from_millis(4);

/// For each CPU how far it was. What is not known is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// True for a CPU that had nothing to do, and so was in the middle of nothing.
    pub idle: Vec<bool>,
    /// How long its thread had run by then, in nanoseconds; 0 where that cannot be told.
    pub ran_ns: Vec<u64>,
    /// True for a CPU that was seen in the middle of nothing since the look before ([`Since::seen`]); empty if not asked.
    pub rested: Vec<bool>,
}

impl Work {
    /// Reads it from a stopped guest with all its `memory`.
    #[must_use]
    pub fn of<M: PhysMemory + ?Sized>(memory: &M, cpus: &[Cpu], ran_ns: Vec<u64>) -> Self {
        let upper = kernel_half(cpus);
        let idle = cpus.iter();
        let idle = idle.map(|cpu| upper.is_some_and(|upper| idles(memory, &upper, cpu)));
        Self {
            idle: idle.collect(),
            ran_ns,
            rested: Vec::new(),
        }
    }

    /// Returns whether this CPU, which `is` now, is in the middle of nothing.
    fn rests(&self, index: usize, is: &Cpu) -> bool {
        is.el() == 0 || self.idle.get(index) == Some(&true)
    }
}

/// The CPUs of the look before which were in the middle of something, and whose time is not known.
#[derive(Clone, Debug, Default)]
pub struct Since {
    /// One for each CPU.
    waited_for: Vec<bool>,
}

impl Since {
    /// Those of this look.
    #[must_use]
    pub fn new(cpus: &[Cpu], work: &Work) -> Self {
        let cpus = cpus.iter().enumerate();
        let timed = |index: usize| work.ran_ns.get(index).is_some_and(|ran| *ran != 0);
        let busy = |index: usize, cpu: &Cpu| started(cpu) && !work.rests(index, cpu);
        let waited_for = cpus.map(|(index, cpu)| busy(index, cpu) && !timed(index));
        Self {
            waited_for: waited_for.collect(),
        }
    }

    /// Stops the guest by `stop`, with a `pause` before each time, until each of them was seen in the middle of nothing or it
    /// was tried often enough. Gives those that were seen so: whatever they were in the middle of is done.
    ///
    /// # Errors
    /// As `stop`.
    pub fn seen<E>(
        &self,
        pause: impl Fn(Duration),
        mut stop: impl FnMut() -> Result<(Vec<Cpu>, Work), E>,
    ) -> Result<Vec<bool>, E> {
        let mut seen = vec![false; self.waited_for.len()];
        for _ in 0..STOPS {
            if self
                .waited_for
                .iter()
                .zip(&seen)
                .all(|(wait, seen)| !wait || *seen)
            {
                break;
            }
            pause(BETWEEN);
            let (cpus, work) = stop()?;
            for (index, cpu) in cpus.iter().enumerate().take(seen.len()) {
                seen[index] |= work.rests(index, cpu);
            }
        }
        Ok(seen)
    }
}

/// Returns whether every CPU that may have been in the middle of something has run on since: what each `was` and how far,
/// what it `is` now. One whose time is not known has to be seen in the middle of nothing, now or since ([`Since`]): that its
/// registers are others does not say how far it came.
#[must_use]
pub fn ran_on(was: (&[Cpu], &Work), is: (&[Cpu], &Work)) -> bool {
    let cpus = was.0.iter().zip(is.0);
    cpus.enumerate().all(|(index, (before, now))| {
        let ran = |work: &Work| work.ran_ns.get(index).copied().unwrap_or(0);
        let (earlier, later) = (ran(was.1), ran(is.1));
        let ran = match earlier {
            0 => is.1.rests(index, now),
            _ => later.saturating_sub(earlier) >= RAN_NS,
        };
        let rested = is.1.rested.get(index) == Some(&true);
        let nothing = was.1.rests(index, before) || !started(before);
        nothing || rested || (before.general != now.general && ran)
    })
}

/// Returns whether a CPU is in the kernel and waits for an interrupt, or has been put to sleep by the firmware.
#[must_use]
pub fn idles<M: PhysMemory + ?Sized>(memory: &M, upper: &Regime, cpu: &Cpu) -> bool {
    const WFI: u32 = 0xd503_207f;
    /// HVC and SMC: bits \[20:5\] are a number.
    const CALLS: [u32; 2] = [0xd400_0002, 0xd400_0003];
    let instruction = |va: u64| {
        let mut bytes = [0; 4];
        linux::kernel_memory::read(memory, upper, va, &mut bytes).ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let waits = |word: u32| word == WFI || CALLS.contains(&(word & !(0xffff << 5)));
    let pc = cpu.general.pc;
    // A CPU that waits has the instruction behind it, or stands at it still.
    cpu.el() == 1
        && [pc.wrapping_sub(4), pc]
            .into_iter()
            .filter_map(instruction)
            .any(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One CPU, at this exception level and PC.
    fn at(el: u64, pc: u64, ran_ns: u64, idle: bool) -> (Vec<Cpu>, Work) {
        let mut cpu = Cpu::default();
        cpu.general.pstate = el << 2 | 1;
        cpu.general.pc = pc;
        cpu.system.sctlr_el1 = 1;
        let work = Work {
            idle: vec![idle],
            ran_ns: vec![ran_ns],
            rested: Vec::new(),
        };
        (vec![cpu], work)
    }

    /// Returns what [`Since::seen`] finds of a CPU by these stops, and how many were made.
    fn seen(look_at: (Vec<Cpu>, Work), stops: &[(Vec<Cpu>, Work)]) -> (Vec<bool>, usize) {
        let mut made = 0;
        let since = Since::new(&look_at.0, &look_at.1);
        let seen = since.seen(
            |_| (),
            || {
                made += 1;
                Ok::<_, ()>(stops[(made - 1).min(stops.len() - 1)].clone())
            },
        );
        (seen.unwrap(), made)
    }

    #[test]
    fn a_cpu_whose_time_is_not_known_is_waited_for() {
        let busy = at(1, 0x1000, 0, false);
        let (user, wfi) = (at(0, 0x3000, 0, false), at(1, 0x3000, 0, true));
        for rest in [user, wfi] {
            let stops = [busy.clone(), busy.clone(), rest];
            assert_eq!(seen(busy.clone(), &stops), (vec![true], 3));
        }
        // One that is never seen so has not run on, wherever it is by then.
        let (rested, made) = seen(busy.clone(), &[at(1, 0x2000, 0, false)]);
        assert_eq!((&rested[..], made), (&[false][..], STOPS as usize));
        let mut now = at(1, 0x2000, 0, false);
        now.1.rested = rested;
        assert!(!on(&busy, &now));
        now.1.rested = vec![true];
        assert!(on(&busy, &now));
    }

    #[test]
    fn nobody_is_waited_for_without_need() {
        let elsewhere = [at(1, 0x2000, 0, false)];
        let mut off = at(1, 0x1000, 0, false);
        off.0[0].system.sctlr_el1 = 0;
        // Its time is known; it was in user mode, or idle; it was never given anything to do.
        for was in [
            at(1, 1, 5, false),
            at(0, 1, 0, false),
            at(1, 1, 0, true),
            off,
        ] {
            assert_eq!(seen(was, &elsewhere).1, 0);
        }
    }

    fn on(was: &(Vec<Cpu>, Work), is: &(Vec<Cpu>, Work)) -> bool {
        ran_on((&was.0, &was.1), (&is.0, &is.1))
    }

    #[test]
    fn a_cpu_in_the_kernel_has_to_run_on() {
        let busy = at(1, 0x1000, 5, false);
        assert!(on(&busy, &at(1, 0x2000, 5 + RAN_NS, false)));
        let no = [
            at(1, 0x1000, 5 + RAN_NS, false),
            at(1, 0x2000, 4 + RAN_NS, false),
            at(0, 0x1000, 5 + RAN_NS / 2, false),
        ];
        for now in no {
            assert!(!on(&busy, &now), "{now:?}");
        }
        // In the middle of nothing: in user mode, or waiting for an interrupt.
        for was in [at(0, 0x1000, 5, false), at(1, 0x1000, 5, true)] {
            assert!(on(&was, &at(1, 0x1000, 5, false)));
        }
        // Where its time is not known it has to have come to an end of it.
        let unknown = at(1, 0x1000, 0, false);
        assert!(on(&unknown, &at(0, 0x2000, 0, false)));
        assert!(on(&unknown, &at(1, 0x2000, 0, true)));
        assert!(!on(&unknown, &at(1, 0x2000, 0, false)));
        assert!(!on(&unknown, &at(1, 0x1000, 0, true)));
        // One that never came has nothing to run on with.
        let mut never = at(1, 0, 0, false);
        never.0[0].system.sctlr_el1 = 0;
        assert!(on(&never, &never));
    }
}
