// SPDX-License-Identifier: GPL-2.0-only
//! The ID registers of each CPU as the kernel read them when the CPU came up: `cpu_data`, arch/arm64/kernel/cpuinfo.c.

use stage1::PhysMemory;

use crate::per_cpu::{word, PerCpu};
use crate::{Kernel, StructureError, View};

/// ID registers of one CPU; `None` where this kernel does not keep the register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdRegisters {
    /// ID_AA64MMFR0_EL1 to ID_AA64MMFR3_EL1.
    pub mmfr: [Option<u64>; 4],
    /// ID_AA64PFR1_EL1.
    pub pfr1: Option<u64>,
}

/// Reads those of each CPU, by its number; `None` for one that never came up.
///
/// # Errors
/// Where the kernel does not tell where they are, or they cannot be read.
pub fn id_registers<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
) -> Result<Vec<Option<IdRegisters>>, StructureError> {
    const WHAT: &str = "the ID registers of a CPU";
    const TYPE: &str = "cpuinfo_arm64";
    let per_cpu = PerCpu::new(kernel, view)?;
    let variable = kernel.variable("cpu_data")?;
    let midr = kernel.types.member(TYPE, "reg_midr")?;
    // Each field is there from the release on that knows the register.
    let member = |name: &str| kernel.types.member(TYPE, name).ok();
    let mmfr = [0, 1, 2, 3].map(|number| member(&format!("reg_id_aa64mmfr{number}")));
    let pfr1 = member("reg_id_aa64pfr1");
    let of = |cpu| {
        let base = per_cpu.address(variable, cpu);
        // MIDR_EL1 is 0 on no CPU: implementer 0 is for software.
        if view.number(WHAT, base, midr)? == 0 {
            return Ok(None);
        }
        let read = |member| view.number(WHAT, base, member);
        let mut found = IdRegisters::default();
        for (to, member) in found.mmfr.iter_mut().zip(mmfr) {
            *to = member.map(read).transpose()?;
        }
        found.pfr1 = pfr1.map(read).transpose()?;
        Ok(Some(found))
    };
    (0..per_cpu.offsets.len()).map(of).collect()
}

/// The task that each CPU which came up runs: `__entry_task`, which `__switch_to()` sets (arch/arm64/kernel/process.c).
///
/// # Errors
/// As [`id_registers`].
pub fn current_tasks<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
    ids: &[Option<IdRegisters>],
) -> Result<Vec<u64>, StructureError> {
    let per_cpu = PerCpu::new(kernel, view)?;
    let variable = kernel.variable("__entry_task")?;
    let came = (0..per_cpu.offsets.len().min(ids.len())).filter(|&cpu| ids[cpu].is_some());
    came.map(|cpu| view.number("__entry_task", per_cpu.address(variable, cpu), word(8)))
        .collect()
}
