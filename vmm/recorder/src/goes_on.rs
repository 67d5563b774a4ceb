// SPDX-License-Identifier: GPL-2.0-only
//! Rule S7: memory that a process removed from its address space is in no TLB when the process returns to user space.
//!
//! The architecture sets no deadline for a TLBI. Linux completes it before the thread that requested the unmapping
//! returns to user space (mmu_gather, `tlb_finish_mmu()`), since the page may be reused from then on. The rule covers
//! only the thread's own address space. Reclaim, migration and khugepaged flush others' before they free, at an instant
//! that no register shows. An address space that no CPU will run again is freed without (mmu_gather's `fullmm`).

use stage1::{Cause, Half};

use crate::make::missing;
use crate::shadow::{Root, State};
use crate::stale::{Key, Stale};
use crate::{Finding, Judge, Rule, Stored};

/// SPSR_EL1.M\[3:0\]: the exception level and its stack pointer, 0 for EL0.
const MODE: u64 = 0xf;

impl Judge {
    /// Handles the return of a CPU to the mode in SPSR_EL1.
    pub(crate) fn goes_on(&mut self, spsr: u64, by: Stored) {
        let root = self.lower(by.cpu);
        if let Some(follow) = self.follow.as_mut().filter(|_| spsr & MODE == 0) {
            follow.returns(by.cpu, by.pid, root);
        }
        let Some(root) = root.filter(|_| spsr & MODE == 0) else {
            return;
        };
        let mut left = Vec::new();
        for key in self.stales.of_root(root) {
            for stale in self.stales.at(&key) {
                let own = match by.pid {
                    0 => stale.stored.pid == 0 && stale.stored.cpu == by.cpu,
                    pid => stale.stored.pid == pid,
                };
                if !own || !stale.overtaken && !self.is_gone(key, stale.entry) {
                    continue;
                }
                if let Some(worst) = self.held(root, stale) {
                    let (_, missing) = missing(key.2, stale, worst);
                    left.push((key, stale.clone(), missing));
                }
            }
        }
        // Another thread of the process may run here, before the first has executed its TLBI.
        if by.pid == 0 {
            self.not_judged.nameless += u64::from(!left.is_empty());
        } else {
            for (key, stale, missing) in left {
                self.never_came(key, &stale, &missing);
            }
        }
        self.given_away(root);
    }

    /// Returns the address space of processes that a CPU has loaded.
    fn lower(&self, cpu: u16) -> Option<Root> {
        let cpu = self.tracker.cpus.get(usize::from(cpu))?;
        cpu.walks[Half::Lower.number() as usize].map(|(root, _)| root)
    }

    /// Returns whether it is this one.
    pub(crate) fn runs(&self, root: Root, cpu: u16) -> bool {
        self.lower(cpu) == Some(root)
    }

    /// Returns whether `by` writes while another thread of the same process has its TLBI still to come. Linux lets
    /// threads fault pages in where another thread's munmap() or madvise() has not flushed yet, and keeps the old pages
    /// until it has.
    pub(crate) fn overtakes(&self, stale: &Stale, cause: Cause, by: Stored) -> bool {
        let pids = [stale.stored.pid, by.pid];
        cause == Cause::OutputAddress && stale.own && pids[0] != pids[1] && !pids.contains(&0)
    }

    /// Returns whether no valid descriptor, and no table for one, is in the place of this descriptor.
    fn is_gone(&self, (root, va, _): Key, entry: u64) -> bool {
        let shadow = &self.tracker.shadow;
        let found = shadow
            .place(entry)
            .and_then(|(base, index)| Some((base, index, shadow.table(base)?)));
        found.is_none_or(|(base, index, table)| {
            let here = table.roots.contains(&root) && shadow.va(root, base, index) == va;
            table.state == State::Known && (!here || table.words[index] & 1 == 0)
        })
    }

    fn never_came(&mut self, key: Key, stale: &Stale, missing: &str) {
        let (root, va, level) = key;
        self.found(Finding {
            rule: Rule::S7,
            made: stale.stored,
            broken: None,
            tlbi: stale.miss.map(|(_, tlbi, _)| tlbi),
            root: root.base(),
            va,
            level,
            entry: stale.entry,
            old: stale.old,
            new: self.tracker.word(stale.entry).unwrap_or(0),
            cause: Cause::Broken,
            block: None,
            scene: stale.scene(),
            sentence: format!("taken away by a process that goes on: {missing}"),
        });
        let event = stale.stored.event;
        self.stales.remove(key, |one| one.stored.event == event);
    }
}
