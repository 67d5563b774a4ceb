// SPDX-License-Identifier: GPL-2.0-only
//! Facts that the registers of CPUs give: which of them show the kernel's half, how a user half is translated, how far the
//! kernel was moved, and which ever came up.

use linux::symbols::Symbols;
use snapshot::Cpu;
use stage1::{Half, PhysicalAddress, Regime};

/// The upper half as the kernel itself sees it.
///
/// With KPTI a CPU at EL0 has the trampoline in TTBR1_EL1, and so has one at EL1 in the trampoline itself, which it
/// enters and leaves by ([`in_trampoline`]). A CPU that is at EL1 elsewhere is preferred; where there is none, one at EL0
/// whose vectors are the kernel's serves as well: it has no trampoline.
#[must_use]
pub fn kernel_half(cpus: &[Cpu]) -> Option<Regime> {
    let of = |level| {
        cpus.iter()
            .filter(move |cpu| cpu.el() == level && !in_trampoline(cpu))
    };
    // At EL0 the vectors are all there is to tell by; at EL1 where the CPU is does as well.
    let at_el0 = of(0).filter(|cpu| cpu.system.vbar_el1.is_some());
    of(1)
        .chain(at_el0)
        .filter_map(|cpu| Regime::new(&cpu.system, Half::Upper).ok())
        .find(|upper| !upper.epd)
}

/// Returns whether TTBR1_EL1 of a CPU may be KPTI's trampoline: its vectors are, or it executes there.
///
/// The trampoline is in the fixmap (`TRAMP_VALIAS`, asm/fixmap.h), which lies within the last GiB of the half; the
/// kernel's image and vectors do not. Entering, `tramp_ventry` maps the kernel and then sets VBAR_EL1, before it leaves
/// the page; leaving, `tramp_exit` sets VBAR_EL1 and then unmaps it (arch/arm64/kernel/entry.S). So one of the two shows
/// it, whichever instruction the CPU is stopped at.
#[must_use]
pub fn in_trampoline(cpu: &Cpu) -> bool {
    const FIXMAP: u64 = !0 << 30;
    let vectors = cpu.system.vbar_el1.is_some_and(|vbar| vbar >= FIXMAP);
    vectors || cpu.el() == 1 && cpu.general.pc >= FIXMAP
}

/// VBAR_EL1 of each CPU that has the kernel's own vectors.
pub fn vectors(cpus: &[Cpu]) -> impl Iterator<Item = u64> + '_ {
    let mapped = cpus.iter().filter(|cpu| !in_trampoline(cpu));
    mapped.filter_map(|cpu| cpu.system.vbar_el1)
}

/// How far KASLR moved the kernel, by the vectors of a CPU that has the kernel's.
///
/// The trampoline's slots lie a multiple of 2 KiB apart, and with KASLR off or a fixmap that is placed so, one of them
/// may be a whole number of 64 KiB from a linked vector: such a CPU says nothing.
#[must_use]
pub fn slide(symbols: &Symbols, cpus: &[Cpu]) -> Option<u64> {
    vectors(cpus).find_map(|vbar| symbols.slide(vbar))
}

/// The reason if no process's table can be walked.
pub const NO_LOWER_HALF: &str = "no CPU shows how the lower half is translated";

/// How the lower half is translated, whosever it is.
pub fn lower_half(cpus: &[Cpu]) -> Option<Regime> {
    let regimes = cpus.iter();
    let regimes = regimes.filter_map(|cpu| Regime::new(&cpu.system, Half::Lower).ok());
    let regimes: Vec<Regime> = regimes.filter(|regime| !regime.epd).collect();
    let mut regime = regimes.first().copied()?;
    // Any CPU may run it: what one of them updates by itself, no entry can be blamed for.
    regime.ha = regimes.iter().any(|regime| regime.ha);
    regime.hd = regimes.iter().any(|regime| regime.hd);
    Some(regime)
}

/// The lower half with this first table, as these CPUs translate it: they are alike.
#[must_use]
pub fn lower_with(cpus: &[Cpu], table: PhysicalAddress) -> Option<Regime> {
    let halves = cpus.iter();
    let mut halves = halves.filter_map(|cpu| Regime::new(&cpu.system, Half::Lower).ok());
    let half = halves.find(|half| !half.epd)?;
    Some(Regime {
        root: table,
        ..half
    })
}

/// Returns whether a CPU was ever given anything to do: one that was not has translation off, as at its reset.
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

#[cfg(test)]
mod tests {
    use stage1::testing::Layout;
    use stage1::Granule;

    use super::*;

    const KERNEL: u64 = 0xffff_8000_8001_1800;
    const TEXT: u64 = 0xffff_8000_8012_3456 & !3;
    /// `TRAMP_VALIAS` with 48 bits of VA: the fixmap's top is 8 MiB below the end.
    const TRAMPOLINE: u64 = 0xffff_ffff_ff5f_d800;

    /// A CPU at `level` and `pc` with its vectors at `vbar`; each has another table in TTBR1_EL1.
    fn cpu(index: usize, level: u64, pc: u64, vbar: Option<u64>) -> Cpu {
        let layout = Layout::new(Granule::K4, Half::Upper, 48);
        let mut cpu = Cpu {
            index,
            system: layout.registers(0x4000_0000 + 0x1_0000 * index as u64),
            ..Cpu::default()
        };
        cpu.system.vbar_el1 = vbar;
        cpu.general.pc = pc;
        // EL1h, or EL0t.
        cpu.general.pstate = if level == 1 { 0b0101 } else { 0 };
        cpu
    }

    /// The CPU whose table is taken for the kernel's.
    fn chosen(cpus: &[Cpu]) -> Option<usize> {
        let root = kernel_half(cpus)?.root.0;
        Some(((root - 0x4000_0000) / 0x1_0000) as usize)
    }

    /// Each instruction of the way in and out (arch/arm64/kernel/entry.S) at which a CPU may be stopped.
    #[test]
    fn a_cpu_in_the_trampoline_shows_nothing_of_the_kernel() {
        let user = 0x40_1000;
        let trampoline = [
            // In user mode; entered, before tramp_map_kernel and after it; with the kernel's vectors set, before RET.
            cpu(0, 0, user, Some(TRAMPOLINE)),
            cpu(0, 1, TRAMPOLINE + 0x400, Some(TRAMPOLINE)),
            cpu(0, 1, TRAMPOLINE + 0x420, Some(KERNEL)),
            // On the way out: vectors back, the kernel not yet or already unmapped.
            cpu(0, 1, TRAMPOLINE + 0x1000, Some(TRAMPOLINE)),
            // A machine that does not give VBAR_EL1.
            cpu(0, 1, TRAMPOLINE + 0x400, None),
            cpu(0, 0, user, None),
        ];
        for stopped in trampoline {
            assert_eq!(chosen(std::slice::from_ref(&stopped)), None, "{stopped:?}");
            let kernel = cpu(1, 1, TEXT, Some(KERNEL));
            assert_eq!(chosen(&[stopped, kernel]), Some(1));
            assert_eq!(chosen(&[kernel, stopped]), Some(1));
            let of_kernel = vectors(&[stopped, kernel]).collect::<Vec<_>>();
            assert_eq!(of_kernel, [KERNEL]);
        }
    }

    #[test]
    fn a_cpu_in_the_kernel_is_preferred_to_one_in_user_mode() {
        let user = cpu(0, 0, 0x40_1000, Some(KERNEL));
        assert_eq!(chosen(std::slice::from_ref(&user)), Some(0));
        assert_eq!(chosen(&[user, cpu(1, 1, TEXT, None)]), Some(1));
        assert_eq!(vectors(&[user]).next(), Some(KERNEL));
    }

    #[test]
    fn cpus_behind_the_last_that_came_up_have_nothing() {
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
