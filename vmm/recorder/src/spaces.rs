// SPDX-License-Identifier: GPL-2.0-only
//! Address spaces: the CPUs that can have cached their entries, and the time they are dropped.

use stage1::Regime;

use crate::cover::{Asids, Cover, Scope};
use crate::shadow::Root;
use crate::space::{Context, Space};
use crate::stale::Gone;
use crate::tracker::Tracker;
use crate::{Barrier, Domain, Types};

impl Tracker {
    /// A TLBI, the event `at`, empties contexts, once a DSB of its CPU has come: [`Tracker::waited`].
    pub(crate) fn invalidated(&mut self, own: u16, cover: &Cover, at: u64) {
        self.shadow.flushed(own, cover);
        if cover.vas.is_some() {
            return;
        }
        for (root, space) in &mut self.spaces {
            for context in &mut space.contexts {
                let asid = match cover.asids {
                    Asids::All => true,
                    Asids::OneOrGlobal(asid) | Asids::One(asid) => context.asid == asid,
                };
                if context.until.is_some() && asid && cover.reaches(own, context.cpu) {
                    context.gone.retain(|gone| gone.by != own);
                    context.gone.push(Gone {
                        by: own,
                        at,
                        scope: cover.scope,
                        ordered: true,
                    });
                    self.emptied.insert(*root);
                }
            }
        }
    }

    /// A barrier of `cpu`: forgets the contexts that TLBIs which are complete now have emptied.
    pub(crate) fn waited(&mut self, cpu: u16, barrier: Barrier) {
        let Barrier::Dsb { domain, types } = barrier else {
            return;
        };
        if types != Types::All {
            return;
        }
        self.shadow.waited(cpu);
        if self.emptied.is_empty() {
            return;
        }
        let complete = |gone: &Gone| {
            gone.by == cpu && (domain > Domain::NonShareable || gone.scope == Scope::Local)
        };
        let mut empty = Vec::new();
        let spaces = &mut self.spaces;
        self.emptied.retain(|root| {
            let Some(space) = spaces.get_mut(root) else {
                return false;
            };
            space
                .contexts
                .retain(|context| !context.gone.iter().any(complete));
            if space.contexts.is_empty() {
                empty.push(*root);
            }
            space
                .contexts
                .iter()
                .any(|context| !context.gone.is_empty())
        });
        // No TLB holds any of it: there is nothing to judge until it is loaded and read again, and its pages may have
        // any use meanwhile.
        for root in empty {
            self.forget(root);
        }
    }

    pub(crate) fn enters(&mut self, cpu: u16, root: Root, asid: u16, regime: &Regime, upper: u64) {
        if self.shadow.format(root).is_some() && !self.is_known(root, regime) {
            self.forget(root);
        }
        let now = self.now();
        if self.shadow.format(root).is_none() {
            self.shadow.add_root(root, regime);
        }
        self.forget_evicted();
        self.shadow.load(root, true);
        let space = self.spaces.entry(root).or_default();
        space.used = now;
        space.set_asid(upper, asid);
        let same = |context: &&mut Context| context.cpu == cpu && context.asid == asid;
        match space.contexts.iter_mut().find(same) {
            Some(context) => (context.until, context.gone) = (None, Vec::new()),
            None => space.contexts.push(Context {
                cpu,
                asid,
                until: None,
                gone: Vec::new(),
            }),
        }
    }

    pub(crate) fn leaves(&mut self, cpu: u16, root: Root, asid: u16) {
        let now = self.now();
        let Some(space) = self.spaces.get_mut(&root) else {
            return;
        };
        space.used = now;
        for context in &mut space.contexts {
            if context.cpu == cpu && context.asid == asid && context.until.is_none() {
                context.until = Some(now);
            }
        }
        let idle = space.contexts.iter().all(|context| context.until.is_some());
        if idle {
            self.shadow.load(root, false);
        }
        // The process has ended, or it is the reserved empty table: its page may have any use next.
        if idle && self.shadow.is_void(root) {
            self.forget(root);
        }
    }

    /// Drops address spaces that were evicted by another's tables.
    pub(crate) fn forget_evicted(&mut self) {
        for root in self.shadow.evicted() {
            self.spaces.remove(&root);
            self.dropped.push(root);
        }
    }

    pub(crate) fn forget(&mut self, root: Root) {
        self.shadow.drop_root(root);
        self.spaces.remove(&root);
        self.dropped.push(root);
    }

    /// Forgets address spaces that no CPU walks, the longest unused first, down to three quarters of the limit.
    pub(crate) fn shrink(&mut self) {
        let idle = |space: &Space| space.contexts.iter().all(|context| context.until.is_some());
        let mut roots: Vec<(u64, Root)> = self
            .spaces
            .iter()
            .filter(|(_, space)| idle(space))
            .map(|(root, space)| (space.used, *root))
            .collect();
        roots.sort_unstable();
        for (_, root) in roots {
            if self.shadow.bytes() <= self.limits.table_bytes / 4 * 3 {
                return;
            }
            self.forget(root);
            self.forgotten += 1;
        }
        if self.shadow.bytes() > self.limits.table_bytes {
            // The running ones are too large: begin anew. Their words are requested again when they are loaded.
            let all: Vec<Root> = self.spaces.keys().copied().collect();
            for root in all {
                self.forget(root);
                self.forgotten += 1;
            }
            for cpu in &mut self.cpus {
                cpu.walks = [None; 2];
            }
        }
    }
}
