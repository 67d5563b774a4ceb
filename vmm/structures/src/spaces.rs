// SPDX-License-Identifier: GPL-2.0-only
//! All address spaces of a kernel at one instant: who has mapped what, and what the kernel counts of it.

use std::collections::BTreeSet;

use linux::folio::{HugeZero, HugetlbUsage, Numbering, Rss, VmKinds, VmPages};
use serde::{Deserialize, Serialize};
use stage1::{Level, PhysMemory};
use untrusted::Text;

use crate::huge_zero;
use crate::kernel::View;
use crate::lock::{Lock, SpinLock};
use crate::per_cpu::PerCpuCounter;
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
    pub name: Text,
    /// When that one's leader was started, in nanoseconds since boot; snapshots of an earlier version do not say.
    #[serde(default)]
    pub started_ns: Option<u64>,
    /// The physical address of its first table.
    pub table: u64,
    /// Holder of its `mmap_lock`: its VMAs and its counters may just be changed, and a fork's entries are counted before the
    /// child is in any list.
    #[serde(default)]
    pub lock: Lock,
    /// A task held the lock of one of its tables: an entry and what counts it may just be changed, as by migration, which
    /// needs no `mmap_lock`. Where it was asked for.
    #[serde(default)]
    pub table_locked: bool,
    /// The kernel's counters of what is mapped, if they were asked for and can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss: Option<Rss>,
    /// Bytes of page tables that the kernel counts (`pgtables_bytes`), where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables_bytes: Option<i64>,
    /// The kernel's counters of hugetlb, if they were asked for and the kernel has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hugetlb: Option<HugetlbUsage>,
    /// The counters of its VMAs, if they were asked for and can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_pages: Option<VmPages>,
    /// The huge zero folio, and whether the address space has a reference on it, if that was asked for and can be read; an
    /// earlier version did not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_zero: Option<HugeZero>,
    /// The numbering of its VMAs' pages, where it was asked for and can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbering: Option<Vec<Numbering>>,
    /// Faults of the process; none where several processes have the address space, and in snapshots of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<u64>,
}

/// Layout of this kernel's address spaces.
#[derive(Debug)]
pub struct Layout {
    vmas: vmas::Layout,
    tasks: tasks::Layout,
    pgd: Member,
    /// The lock of the tables that have none of their own (`mm->page_table_lock`), and where the address space has it.
    table_lock: Option<(SpinLock, Member)>,
    counters: Option<Counters>,
    tables_bytes: Option<Member>,
    hugetlb: Option<Hugetlb>,
    vm_pages: Option<VmCounters>,
    huge_zero: Option<huge_zero::Layout>,
    init_mm: u64,
}

/// An address space's counters of hugetlb, and how many pages it has, now and at most.
#[derive(Clone, Copy, Debug)]
struct Hugetlb {
    usage: Member,
    pages: Member,
    most: Member,
}

/// An address space's counters of its VMAs.
#[derive(Clone, Copy, Debug)]
struct VmCounters {
    /// `total_vm` and `locked_vm`.
    pages: [Member; 2],
    /// `data_vm`, `exec_vm`, `stack_vm` and `map_count`.
    kinds: Option<[Member; 4]>,
}

/// `mm->rss_stat`, an array of `struct percpu_counter`.
#[derive(Debug)]
struct Counters {
    array: Member,
    size: u64,
    counter: PerCpuCounter,
}

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
            table_lock: SpinLock::new(&kernel.types)
                .and_then(|lock| {
                    let of_mm = kernel.types.member("mm_struct", "page_table_lock")?;
                    Ok((lock, of_mm))
                })
                .ok(),
            counters: Counters::new(kernel, view).ok(),
            tables_bytes: kernel.types.member("mm_struct", "pgtables_bytes").ok(),
            hugetlb: Hugetlb::new(kernel).ok(),
            vm_pages: VmCounters::new(kernel).ok(),
            huge_zero: huge_zero::Layout::new(kernel).ok(),
            init_mm: kernel.variable("init_mm")?,
        })
    }

    /// All processes.
    ///
    /// # Errors
    /// Where the list of tasks cannot be followed.
    pub fn processes<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Vec<Process>, StructureError> {
        self.tasks.processes(view)
    }

    /// All address spaces. Counters and numbering are read of those whose first table `asked` names, as far as they
    /// can be: no task may hold the address space's lock.
    ///
    /// # Errors
    /// Where the list of tasks cannot be followed.
    pub fn spaces<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        asked: &[u64],
    ) -> Result<Vec<Space>, StructureError> {
        self.spaces_of(view, &self.processes(view)?, asked)
    }

    /// The same, of all processes at this instant.
    ///
    /// # Errors
    /// Where an address space is not one.
    pub fn spaces_of<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        processes: &[Process],
        asked: &[u64],
    ) -> Result<Vec<Space>, StructureError> {
        let mut seen = BTreeSet::from([self.init_mm]);
        let mut spaces = Vec::new();
        let own = |process: &Process| process.mm;
        // A process that ends has given its address space up, and the kernel may still be taking it down.
        let last = |process: &Process| process.last_mm;
        for of in [own as fn(&Process) -> Option<u64>, last] {
            for process in processes {
                let Some(mm) = of(process).filter(|mm| seen.insert(*mm)) else {
                    continue;
                };
                let mut space = self.space(view, process, mm, asked)?;
                let having = processes.iter().filter(|it| it.mm == Some(mm)).count();
                space.faults = space.faults.filter(|_| having == 1);
                spaces.push(space);
            }
        }
        self.huge_zero(view, processes, asked, &mut spaces);
        Ok(spaces)
    }

    /// The address space at `mm`, which no task has: one that is being made, or taken down.
    ///
    /// # Errors
    /// Where it is not one.
    pub fn of_no_task<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        mm: u64,
    ) -> Result<Space, StructureError> {
        let pgd = view.number("an address space", mm, self.pgd)?;
        Ok(Space {
            mm,
            pid: 0,
            name: "an address space that no task has".into(),
            started_ns: None,
            table: view.physical("an address space's first table", pgd)?.0,
            lock: self.vmas.lock(view, mm)?,
            table_locked: false,
            rss: None,
            tables_bytes: None,
            hugetlb: None,
            vm_pages: None,
            huge_zero: None,
            numbering: None,
            faults: None,
        })
    }

    /// Where the kernel keeps the shared part of its counter `index` (file, anonymous, swap, shmem) of the address space
    /// at `mm`; what its CPUs have beside it is in per-CPU memory.
    #[must_use]
    pub fn counter(&self, mm: u64, index: u64) -> Option<u64> {
        let counters = self.counters.as_ref()?;
        let at = counters.array.offset + index * counters.size;
        Some(counters.counter.place(mm.wrapping_add(at)))
    }

    /// Where the kernel counts the bytes of page tables of the address space at `mm`.
    #[must_use]
    pub fn tables_bytes(&self, mm: u64) -> Option<u64> {
        Some(mm.wrapping_add(self.tables_bytes?.offset))
    }

    /// Reads the huge zero folio, and which of the address spaces that `asked` names have a reference on it. Reference, mark and
    /// entry are made in this order, so that no lock has to be free.
    fn huge_zero<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        processes: &[Process],
        asked: &[u64],
        spaces: &mut [Space],
    ) {
        let Some(layout) = self.huge_zero.filter(|_| !asked.is_empty()) else {
            return;
        };
        // What an address space that no task has any more had is given back at some time.
        let own: BTreeSet<u64> = processes.iter().filter_map(|process| process.mm).collect();
        let own = own.into_iter().filter(|mm| *mm != self.init_mm);
        let Ok(Some(found)) = layout.read(view, own) else {
            return;
        };
        for space in spaces.iter_mut().filter(|it| asked.contains(&it.table)) {
            let is_holder = layout.is_holder(view, space.mm).ok();
            space.huge_zero = is_holder.map(|is_holder| HugeZero { is_holder, ..found });
        }
    }

    /// Where the kernel keeps the flags of the address space at `mm`, of which one marks that it has a reference on the huge
    /// zero folio; `None` if no reference is counted.
    #[must_use]
    pub fn flags(&self, mm: u64) -> Option<u64> {
        Some(self.huge_zero?.flags_at(mm))
    }

    /// Where the kernel counts the hugetlb pages of the address space at `mm`.
    #[must_use]
    pub fn hugetlb(&self, mm: u64) -> Option<u64> {
        Some(mm.wrapping_add(self.hugetlb?.usage.offset))
    }

    fn space<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        process: &Process,
        mm: u64,
        asked: &[u64],
    ) -> Result<Space, StructureError> {
        let pgd = view.number("an address space", mm, self.pgd)?;
        let table = view.physical("an address space's first table", pgd)?.0;
        let lock = self.vmas.lock(view, mm)?;
        let asked = asked.contains(&table);
        let free = asked && !lock.is_held();
        let table_locked = match self.table_lock.filter(|_| asked) {
            Some((lock, of_mm)) => lock.is_held(view, mm.wrapping_add(of_mm.offset))?,
            None => false,
        };
        let counters = self.counters.as_ref().filter(|_| free);
        let hugetlb = self.hugetlb.filter(|_| free);
        let tables = self.tables_bytes.filter(|_| free);
        let tables = tables.and_then(|it| view.number("an address space", mm, it).ok());
        Ok(Space {
            mm,
            pid: process.tgid,
            name: process.name.clone(),
            started_ns: Some(process.started_ns),
            table,
            lock,
            table_locked,
            rss: counters.and_then(|counters| counters.read(view, mm).ok()),
            tables_bytes: tables.map(|bytes| bytes as i64),
            hugetlb: hugetlb.and_then(|it| it.read(view, mm).ok()),
            vm_pages: self
                .vm_pages
                .filter(|_| free)
                .and_then(|it| it.read(view, mm).ok()),
            huge_zero: None,
            numbering: free.then(|| self.vmas.numbering(view, mm).ok()).flatten(),
            faults: (process.mm == Some(mm)).then_some(process.faults),
        })
    }
}

impl Hugetlb {
    fn new(kernel: &Kernel) -> Result<Hugetlb, StructureError> {
        let member = |name| kernel.types.member("mm_struct", name);
        Ok(Hugetlb {
            usage: member("hugetlb_usage.counter")?,
            pages: member("total_vm")?,
            most: member("hiwater_vm")?,
        })
    }

    fn read<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        mm: u64,
    ) -> Result<HugetlbUsage, StructureError> {
        let number = |member| view.number("an address space", mm, member);
        // `get_mm_hiwater_vm()`: the second of them is brought up to date only when it would be too low.
        let pages = number(self.pages)?.max(number(self.most)?);
        // Tables are shared that cover an entry of level 1 (`PUD_SIZE`), in a VMA that covers them.
        let covered = view.upper.entry_size(Level::L1) / view.upper.granule.bytes();
        Ok(HugetlbUsage {
            pages: number(self.usage)? as i64,
            may_share: pages >= covered,
        })
    }
}

impl VmCounters {
    fn new(kernel: &Kernel) -> Result<VmCounters, StructureError> {
        let member = |name| kernel.types.member("mm_struct", name);
        let kinds = || {
            let [data, exec, stack] = ["data_vm", "exec_vm", "stack_vm"].map(member);
            Ok::<_, StructureError>([data?, exec?, stack?, member("map_count")?])
        };
        Ok(VmCounters {
            pages: [member("total_vm")?, member("locked_vm")?],
            kinds: kinds().ok(),
        })
    }

    fn read<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        mm: u64,
    ) -> Result<VmPages, StructureError> {
        let number = |member| view.number("an address space", mm, member);
        let [total, locked] = self.pages;
        let kinds = |[data, exec, stack, vmas]: [Member; 4]| {
            Ok::<_, StructureError>(VmKinds {
                data: number(data)? as i64,
                exec: number(exec)? as i64,
                stack: number(stack)? as i64,
                vmas: i64::from(number(vmas)? as u32 as i32),
            })
        };
        Ok(VmPages {
            total: number(total)? as i64,
            locked: number(locked)? as i64,
            kinds: self.kinds.map(kinds).transpose()?,
        })
    }
}

impl Counters {
    fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Counters, StructureError> {
        let array = kernel.types.member("mm_struct", "rss_stat")?;
        let size = kernel.types.size("percpu_counter")?;
        if array.elements != COUNTERS as u64 || array.size != size * array.elements {
            return Err(StructureError::Missing("mm_struct with rss_stat[4]".into()));
        }
        Ok(Counters {
            array,
            size,
            counter: PerCpuCounter::new(kernel, view)?,
        })
    }

    fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        mm: u64,
    ) -> Result<Rss, StructureError> {
        let mut sums = [0; COUNTERS];
        for (index, sum) in sums.iter_mut().enumerate() {
            let counter = mm.wrapping_add(self.array.offset + index as u64 * self.size);
            *sum = self.counter.sum(view, counter)?;
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
