// SPDX-License-Identifier: GPL-2.0-only
//! Rule S7: memory that a process removed from its address space, and a right that it removed, is in no TLB when the
//! process returns to user space.
//!
//! The architecture sets no deadline for a TLBI. Linux completes it before the thread that requested the change returns to
//! user space: mmu_gather and `tlb_finish_mmu()` of `munmap()`, `madvise()` and `mprotect()`, `flush_tlb_mm()` of `fork()`.
//! From then on the page may be reused, shared with a child, or taken for clean. The rule covers
//! only the thread's own address space. Reclaim, migration and khugepaged flush others' before they free, at an instant
//! that no register shows. An address space that no CPU will run again is freed without (mmu_gather's `fullmm`).

use stage1::{transition, Cause, Descriptor, Half, Kind};

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
                let gone = stale.overtaken || self.is_gone(key, stale.entry);
                if !own || !gone && !self.has_less(key, stale) {
                    continue;
                }
                if let Some(worst) = self.held(root, stale) {
                    let (_, missing) = missing(key.2, stale, worst);
                    left.push((key, stale.clone(), gone, missing));
                }
            }
        }
        // Another thread of the process may run here, before the first has executed its TLBI.
        if by.pid == 0 {
            self.not_judged.nameless += u64::from(!left.is_empty());
        } else {
            for (key, stale, gone, missing) in left {
                self.never_came(key, &stale, gone, &missing);
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

    /// Returns whether the descriptor in the place of this one maps the same and lacks one of its rights; that to write
    /// is also lacking where the PE is to note the next write (AP\[2\] of a page with DBM).
    fn has_less(&self, (root, va, level): Key, stale: &Stale) -> bool {
        let shadow = &self.tracker.shadow;
        let place = shadow.place(stale.entry).and_then(|(base, index)| {
            let (table, regime) = (shadow.table(base)?, shadow.format(root)?);
            let here = table.roots.contains(&root) && shadow.va(root, base, index) == va;
            (here && table.state == State::Known && table.level == level)
                .then(|| (table.words[index], regime))
        });
        place.is_some_and(|(word, regime)| {
            let [old, now] = [stale.old, word].map(|word| Descriptor::new(word, level, regime));
            let valid = matches!(now.kind(), Kind::Page | Kind::Block);
            valid && transition(&old, &now, self.bbm).cause == Cause::Restricted
        })
    }

    fn never_came(&mut self, key: Key, stale: &Stale, gone: bool, missing: &str) {
        let (root, va, level) = key;
        let (cause, what) = match gone {
            true => (Cause::Broken, "taken away"),
            false => (Cause::Restricted, "a right taken away"),
        };
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
            cause,
            block: None,
            scene: stale.scene(),
            sentence: format!("{what} by a process that goes on: {missing}"),
        });
        let event = stale.stored.event;
        self.stales.remove(key, |one| one.stored.event == event);
    }
}
