//! What the CPUs were at when the guest was stopped, to be compared with a later stop.

use snapshot::Cpu;
use stage1::{PhysMemory, Regime};

use crate::kernel_half;

/// What a CPU's thread has to have run between two looks: thousands of updates of a table, also under emulation.
pub(crate) const RAN_NS: u64 = 1_000_000;

/// For each CPU how far it was. What is not known is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Whether it had nothing to do, and so was in the middle of nothing.
    pub idle: Vec<bool>,
    /// How long its thread had run by then, in nanoseconds; 0 where that cannot be told.
    pub ran_ns: Vec<u64>,
}

impl Work {
    /// Of a guest that stands still, whose `memory` is all there.
    #[must_use]
    pub fn of<M: PhysMemory + ?Sized>(memory: &M, cpus: &[Cpu], ran_ns: Vec<u64>) -> Self {
        let upper = kernel_half(cpus);
        let idle = cpus.iter();
        let idle = idle.map(|cpu| upper.is_some_and(|upper| idles(memory, &upper, cpu)));
        Self {
            idle: idle.collect(),
            ran_ns,
        }
    }
}

/// Whether every CPU that may have been in the middle of something has run on since: what each `was` and how far,
/// what it `is` now. One whose time is not known has to be seen in the middle of nothing: that its registers are others does
/// not say how far it came.
#[must_use]
pub fn ran_on(was: (&[Cpu], &Work), is: (&[Cpu], &Work)) -> bool {
    let cpus = was.0.iter().zip(is.0);
    cpus.enumerate().all(|(index, (before, now))| {
        let ran = |work: &Work| work.ran_ns.get(index).copied().unwrap_or(0);
        let (earlier, later) = (ran(was.1), ran(is.1));
        let idle = |work: &Work| work.idle.get(index) == Some(&true);
        let ran = match earlier {
            0 => now.el() == 0 || idle(is.1),
            _ => later.saturating_sub(earlier) >= RAN_NS,
        };
        let nothing = before.el() == 0 || !started(before) || idle(was.1);
        nothing || (before.general != now.general && ran)
    })
}

/// Whether a CPU was ever given anything to do: one that was not has translation off, as at its reset.
#[must_use]
pub fn started(cpu: &Cpu) -> bool {
    /// SCTLR_EL1.M: stage 1 translation is on.
    const M: u64 = 1;
    cpu.system.sctlr_el1 & M != 0
}

/// How many CPUs, from the first on, have one that came up among them: of the others the kernel keeps nothing, as they
/// are more than it was built for, or than it was told to take.
#[must_use]
pub fn came(cpus: &[Cpu]) -> usize {
    cpus.iter().rposition(started).map_or(0, |last| last + 1)
}

/// Whether a CPU is in the kernel and waits for an interrupt, or has been put to sleep by the firmware.
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
        };
        (vec![cpu], work)
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
        let of = |started: &[u64]| {
            let cpu = |on: &u64| {
                let mut cpu = Cpu::default();
                cpu.system.sctlr_el1 = *on;
                cpu
            };
            came(&started.iter().map(cpu).collect::<Vec<_>>())
        };
        assert_eq!([of(&[1, 0, 1, 0]), of(&[1]), of(&[0, 0])], [3, 1, 0]);
    }
}
