// SPDX-License-Identifier: GPL-2.0-only
//! CPUs at EL1 that do not run Linux: firmware, a boot loader, another kernel.
//!
//! Their tables are judged by the architecture's rules: those of TTBR1_EL1 as a kernel half, those of TTBR0_EL1 as a
//! process that no kernel names.

use snapshot::{Cpu, Process};
use stage1::{Half, PhysMemory, Regime, RegimeError};

use crate::tables::walk_all;

/// The mark of what [`at_el1`] gives.
pub const AT_EL1: &str = "at_el1";

/// Says what the CPUs are at, where none of them can be in Linux's kernel; `None` where one may be.
///
/// Linux has TTBR1_EL1 in use from the instruction on that turns the MMU on (arch/arm64/kernel/head.S).
#[must_use]
pub fn no_linux(cpus: &[Cpu]) -> Option<String> {
    let may_be = |cpu: &Cpu| match Regime::new(&cpu.system, Half::Upper) {
        Ok(upper) => !upper.epd,
        Err(error) => !matches!(
            error,
            RegimeError::MmuOff { .. }
                | RegimeError::InputSize { .. }
                | RegimeError::GranuleReserved { .. }
        ),
    };
    if cpus.is_empty() || cpus.iter().any(may_be) {
        return None;
    }
    Some(format!("no Linux was found at EL1: {}", states(cpus)))
}

/// Exception level and MMU of each CPU, those alike together: `CPU 0 is at EL1 with the MMU on, ...`.
#[must_use]
pub fn states(cpus: &[Cpu]) -> String {
    let mut alike: Vec<(String, Vec<usize>)> = Vec::new();
    for cpu in cpus {
        let state = state(cpu);
        match alike.iter_mut().find(|(other, _)| *other == state) {
            Some((_, all)) => all.push(cpu.index),
            None => alike.push((state, vec![cpu.index])),
        }
    }
    let said = alike.iter().map(|(state, all)| match all.as_slice() {
        [only] => format!("CPU {only} is {state}"),
        all => format!("CPUs {} are {state}", ranges(all)),
    });
    said.collect::<Vec<_>>().join("; ")
}

/// Numbers in order, those behind each other as a range: `0, 2-5`.
fn ranges(all: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in all {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(", ")
}

fn state(cpu: &Cpu) -> String {
    let el = cpu.el();
    if is_mmu_off(cpu) {
        return match el {
            0 | 1 => format!("at EL{el} with the MMU off"),
            _ => format!("at EL{el}, with EL1's MMU off"),
        };
    }
    let half = |half, register| match Regime::new(&cpu.system, half) {
        Ok(regime) if !regime.epd => format!("{register} {}", regime.root),
        _ => format!("{register} not in use"),
    };
    format!(
        "at EL{el} with the MMU on, {}, {}",
        half(Half::Lower, "TTBR0_EL1"),
        half(Half::Upper, "TTBR1_EL1")
    )
}

/// Returns whether stage 1 of EL1&0 is off on a CPU.
#[must_use]
pub fn is_mmu_off(cpu: &Cpu) -> bool {
    let regime = Regime::new(&cpu.system, Half::Lower);
    matches!(regime, Err(RegimeError::MmuOff { .. }))
}

/// The tables in TTBR0_EL1 of CPUs at EL1, each once, as processes that no kernel names; all of them are read.
pub fn at_el1<M: PhysMemory + ?Sized>(memory: &M, cpus: &[Cpu]) -> Vec<Process> {
    let mut found: Vec<(Regime, Process)> = Vec::new();
    for cpu in cpus.iter().filter(|cpu| cpu.el() == 1) {
        let Ok(lower) = Regime::new(&cpu.system, Half::Lower) else {
            continue;
        };
        if lower.epd || found.iter().any(|(other, _)| other.root == lower.root) {
            continue;
        }
        walk_all(memory, &lower);
        let process = Process {
            name: format!("TTBR0_EL1 of CPU {}", cpu.index).into(),
            cpu: Some(cpu.index),
            extra: [(AT_EL1.to_owned(), true.into())].into(),
            ..Process::default()
        };
        found.push((lower, process));
    }
    found.into_iter().map(|(_, process)| process).collect()
}

#[cfg(test)]
mod tests {
    use stage1::testing::Layout;
    use stage1::Granule;

    use super::*;

    /// A CPU at `level` with tables in both halves.
    fn cpu(index: usize, level: u64) -> Cpu {
        let layout = Layout::new(Granule::K4, Half::Lower, 48);
        let mut cpu = Cpu {
            index,
            system: layout.registers(0x4000_0000),
            ..Cpu::default()
        };
        cpu.system.ttbr1_el1 = 0x4100_0000;
        cpu.general.pstate = level << 2 | 1;
        cpu
    }

    /// TCR_EL1.T1SZ, TG1 and EPD1 (Arm ARM D24.2.206).
    fn upper(tcr: u64, size: u64, granule: u64, disabled: u64) -> u64 {
        let cleared = tcr & !(0x3f << 16 | 0b11 << 30 | 1 << 23);
        cleared | size << 16 | granule << 30 | disabled << 23
    }

    #[test]
    fn linux_may_be_where_the_upper_half_is_translated() {
        let tcr = cpu(0, 1).system.tcr_el1;
        let with = |size, granule, disabled| {
            let mut cpu = cpu(0, 1);
            cpu.system.tcr_el1 = upper(tcr, size, granule, disabled);
            no_linux(&[cpu])
        };
        assert_eq!(with(16, 0b10, 0), None);
        // Walks disabled; a size that cannot be; a granule that cannot be.
        for none in [with(16, 0b10, 1), with(0, 0b10, 0), with(16, 0b00, 0)] {
            let said = "no Linux was found at EL1: CPU 0 is at EL1 with the MMU on, \
                        TTBR0_EL1 0x0000040000000, TTBR1_EL1 not in use";
            assert_eq!(none.as_deref(), Some(said));
        }
        // One CPU in Linux is enough, and a host at EL2 (HCR_EL2.TGE) is not at EL1.
        let mut linux = cpu(1, 1);
        linux.system.tcr_el1 = upper(tcr, 16, 0b10, 0);
        let mut off = cpu(0, 1);
        off.system.sctlr_el1 = 0;
        assert_eq!(no_linux(&[off, linux]), None);
        let mut host = cpu(0, 2);
        host.system.hcr_el2 = Some(1 << 27);
        assert_eq!(no_linux(&[host]), None);
        assert_eq!(no_linux(&[]), None);
    }

    #[test]
    fn cpus_alike_are_said_together() {
        let mut all: Vec<Cpu> = (0..6).map(|index| cpu(index, 1)).collect();
        for index in [0, 2, 3, 4] {
            all[index].system.sctlr_el1 = 0;
        }
        all[5].general.pstate = 2 << 2 | 1;
        all[5].system.sctlr_el1 = 0;
        all[1].system.tcr_el1 = upper(all[1].system.tcr_el1, 16, 0b10, 1);
        assert_eq!(
            states(&all),
            "CPUs 0, 2-4 are at EL1 with the MMU off; CPU 1 is at EL1 with the MMU on, TTBR0_EL1 0x0000040000000, \
             TTBR1_EL1 not in use; CPU 5 is at EL2, with EL1's MMU off"
        );
    }
}
