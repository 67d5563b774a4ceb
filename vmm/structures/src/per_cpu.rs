// SPDX-License-Identifier: GPL-2.0-only
//! Variables that each CPU has a copy of.

use stage1::PhysMemory;

use crate::kernel::View;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// The most CPUs that arm64 can have (`NR_CPUS`).
const MOST_CPUS: u64 = 4096;

/// A number of this many bytes at an address of its own.
pub(crate) const fn word(size: u64) -> Member {
    Member {
        offset: 0,
        size,
        elements: 1,
    }
}

/// Where each CPU's copies of per-CPU variables are.
#[derive(Clone, Debug)]
pub(crate) struct PerCpu {
    /// To be added to the address of the variable, by CPU.
    pub offsets: Vec<u64>,
}

impl PerCpu {
    pub fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<PerCpu, StructureError> {
        let va = kernel.variable("nr_cpu_ids")?;
        let cpus = view.number("nr_cpu_ids", va, word(4))?;
        if !(1..=MOST_CPUS).contains(&cpus) {
            return Err(StructureError::Inconsistent {
                what: "nr_cpu_ids",
                va,
                why: format!("it is {cpus}, and arm64 can have 1 to {MOST_CPUS} CPUs"),
            });
        }
        let offsets = kernel.variable("__per_cpu_offset")?;
        let offsets = (0..cpus)
            .map(|cpu| view.number("__per_cpu_offset", offsets.wrapping_add(8 * cpu), word(8)));
        Ok(PerCpu {
            offsets: offsets.collect::<Result<_, _>>()?,
        })
    }

    pub fn address(&self, variable: u64, cpu: usize) -> u64 {
        variable.wrapping_add(self.offsets[cpu])
    }
}

/// Layout of a `struct percpu_counter`.
#[derive(Clone, Debug)]
pub(crate) struct PerCpuCounter {
    count: Member,
    of_cpus: Member,
    cpus: PerCpu,
}

impl PerCpuCounter {
    pub fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<PerCpuCounter, StructureError> {
        let member = |name| kernel.types.member("percpu_counter", name);
        Ok(PerCpuCounter {
            count: member("count")?,
            of_cpus: member("counters")?,
            cpus: PerCpu::new(kernel, view)?,
        })
    }

    /// The address of the shared part of the one at `at`.
    pub fn place(&self, at: u64) -> u64 {
        at.wrapping_add(self.count.offset)
    }

    /// `percpu_counter_sum()` of the one at `at`, and not cut off at 0.
    pub fn sum<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        at: u64,
    ) -> Result<i64, StructureError> {
        let what = "a percpu_counter";
        let mut sum = view.number(what, at, self.count)? as i64;
        let of_cpus = view.number(what, at, self.of_cpus)?;
        for cpu in 0..self.cpus.offsets.len() {
            let own = view.number(what, self.cpus.address(of_cpus, cpu), word(4))?;
            sum = sum.wrapping_add(i64::from(own as u32 as i32));
        }
        Ok(sum)
    }
}
