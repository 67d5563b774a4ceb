//! All address spaces of a kernel at one instant: who has mapped what, and what the kernel counts of it.

use std::collections::BTreeSet;

use linux::folio::{Numbering, Rss};
use serde::{Deserialize, Serialize};
use stage1::{lookup, Lookup, PhysMemory, VirtualAddress};

use crate::kernel::View;
use crate::tasks::{self, Process};
use crate::types::Member;
use crate::{vmas, Kernel, StructureError};

/// One address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// The address of its `struct mm_struct`.
    pub mm: u64,
    /// The process that has it; of several (`vfork()`, `CLONE_VM`) the first in the kernel's list.
    pub pid: u32,
    /// That one's name.
    pub name: String,
    /// The physical address of its first table.
    pub table: u64,
    /// Whether anybody held its `mmap_lock`: its VMAs and its counters may just be changed, and a fork's entries are counted
    /// before the child is in any list.
    #[serde(default)]
    pub is_locked: bool,
    /// What the kernel counts as mapped, where it was asked for and can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss: Option<Rss>,
    /// The numbering of its VMAs' pages, where it was asked for and can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbering: Option<Vec<Numbering>>,
}

/// What this kernel's address spaces look like.
#[derive(Debug)]
pub struct Layout {
    vmas: vmas::Layout,
    tasks: tasks::Layout,
    pgd: Member,
    counters: Option<Counters>,
    init_mm: u64,
}

/// `mm->rss_stat`, an array of `struct percpu_counter`.
#[derive(Debug)]
struct Counters {
    array: Member,
    size: u64,
    count: Member,
    of_cpus: Member,
    per_cpu_offset: u64,
    cpus: u64,
}

/// More CPUs than arm64 can have (`NR_CPUS` is at most 4096).
const MOST_CPUS: u64 = 4096;
/// `MM_FILEPAGES`, `MM_ANONPAGES`, `MM_SWAPENTS`, `MM_SHMEMPAGES`: an enumeration without a name
/// (include/linux/mm_types_task.h).
const COUNTERS: usize = 4;

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        Ok(Layout {
            vmas: vmas::Layout::new(kernel, view)?,
            tasks: tasks::Layout::new(kernel)?,
            pgd: kernel.types.member("mm_struct", "pgd")?,
            counters: Counters::new(kernel, view).ok(),
            init_mm: kernel.variable("init_mm")?,
        })
    }

    /// All address spaces. Counters and numbering are read of those whose first table `asked` names, as far as they
    /// can be: nobody may hold the address space's lock.
    ///
    /// # Errors
    /// Where the list of tasks cannot be followed.
    pub fn spaces<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        asked: &[u64],
    ) -> Result<Vec<Space>, StructureError> {
        let processes = self.tasks.processes(view)?;
        let mut seen = BTreeSet::from([self.init_mm]);
        let mut spaces = Vec::new();
        let own = |process: &Process| process.mm;
        // A process that ends has given its address space up, and the kernel may still be taking it down.
        let last = |process: &Process| process.last_mm;
        for of in [own as fn(&Process) -> Option<u64>, last] {
            for process in &processes {
                let Some(mm) = of(process).filter(|mm| seen.insert(*mm)) else {
                    continue;
                };
                spaces.push(self.space(view, process, mm, asked)?);
            }
        }
        Ok(spaces)
    }

    /// Where the kernel keeps the shared part of its counter `index` (file, anonymous, swap, shmem) of the address space
    /// at `mm`; what its CPUs have beside it is in per-CPU memory.
    #[must_use]
    pub fn counter(&self, mm: u64, index: u64) -> Option<u64> {
        let counters = self.counters.as_ref()?;
        Some(mm + counters.array.offset + index * counters.size + counters.count.offset)
    }

    fn space<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        process: &Process,
        mm: u64,
        asked: &[u64],
    ) -> Result<Space, StructureError> {
        let pgd = view.number("an address space", mm, self.pgd)?;
        let table = match lookup(view.memory, view.upper, VirtualAddress(pgd)) {
            Lookup::Mapped { pa, .. } => pa.0,
            other => {
                return Err(StructureError::Unreadable {
                    what: "an address space's first table",
                    va: pgd,
                    why: format!("{other:?}"),
                })
            }
        };
        let is_locked = self.vmas.is_locked(view, mm)?;
        let free = asked.contains(&table) && !is_locked;
        let counters = self.counters.as_ref().filter(|_| free);
        Ok(Space {
            mm,
            pid: process.tgid,
            name: process.name.clone(),
            table,
            is_locked,
            rss: counters.and_then(|counters| counters.read(view, mm).ok()),
            numbering: free.then(|| self.vmas.numbering(view, mm).ok()).flatten(),
        })
    }
}

impl Counters {
    fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Counters, StructureError> {
        let counter = |name| kernel.types.member("percpu_counter", name);
        let array = kernel.types.member("mm_struct", "rss_stat")?;
        let size = kernel.types.size("percpu_counter")?;
        if array.elements != COUNTERS as u64 || array.size != size * array.elements {
            return Err(StructureError::Missing("mm_struct with rss_stat[4]".into()));
        }
        let whole = Member {
            offset: 0,
            size: 4,
            elements: 1,
        };
        let cpus = view.number("nr_cpu_ids", kernel.variable("nr_cpu_ids")?, whole)?;
        Ok(Counters {
            array,
            size,
            count: counter("count")?,
            of_cpus: counter("counters")?,
            per_cpu_offset: kernel.variable("__per_cpu_offset")?,
            cpus: cpus.min(MOST_CPUS),
        })
    }

    /// `percpu_counter_sum()` of each.
    fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        mm: u64,
    ) -> Result<Rss, StructureError> {
        let what = "an address space's counters";
        let word = |size| Member {
            offset: 0,
            size,
            elements: 1,
        };
        let mut sums = [0; COUNTERS];
        for (index, sum) in sums.iter_mut().enumerate() {
            let counter = mm + self.array.offset + index as u64 * self.size;
            *sum = view.number(what, counter, self.count)? as i64;
            let of_cpus = view.number(what, counter, self.of_cpus)?;
            for cpu in 0..self.cpus {
                let offset = view.number(what, self.per_cpu_offset + 8 * cpu, word(8))?;
                let own = view.number(what, of_cpus.wrapping_add(offset), word(4))?;
                *sum += i64::from(own as u32 as i32);
            }
        }
        let [file, anonymous, swapped, shmem] = sums;
        Ok(Rss {
            file,
            anonymous,
            swapped,
            shmem,
        })
    }
}
