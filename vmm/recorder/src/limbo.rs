// SPDX-License-Identifier: GPL-2.0-only
//! Tables that are unlinked and that a TLB may still lead to: their pages stay watched for rule S5.

use stage1::Level;

use crate::cover::Cover;
use crate::limbo_table::{Limbo, MOST_LIMBO};
use crate::shadow::{Root, Shadow};

impl Shadow {
    /// A table below an entry of `level` was taken away: its page is watched until a TLBI has come.
    pub(crate) fn take_away(&mut self, root: Root, base: u64, level: Level, va: u64) {
        let (false, Some(regime), Some(next)) = (
            self.tables.contains_key(&base),
            self.formats.get(&root).copied(),
            level.next(),
        ) else {
            return;
        };
        let entries = regime.entries(next);
        self.count_pages(base, entries, true);
        self.limbo.push_back(Limbo {
            base,
            entries,
            vas: [va, va.wrapping_add(regime.entry_size(level) - 1)],
            flushed: None,
        });
        if self.limbo.len() > MOST_LIMBO {
            self.release(|_, at| at == 0);
        }
    }

    fn release(&mut self, which: impl Fn(&Limbo, usize) -> bool) {
        let mut at = 0;
        let mut gone = Vec::new();
        self.limbo.retain(|limbo| {
            let keep = !which(limbo, at);
            at += 1;
            if !keep {
                gone.push(*limbo);
            }
            keep
        });
        for limbo in gone {
            self.count_pages(limbo.base, limbo.entries, false);
        }
    }

    /// A TLBI of `cpu`.
    pub(crate) fn flushed(&mut self, cpu: u16, cover: &Cover) {
        for limbo in &mut self.limbo {
            if !cover.last_level && cover.touches(limbo.vas[0], limbo.vas[1]) {
                limbo.flushed = Some(cpu);
            }
        }
    }

    /// A DSB of `cpu` that completes its TLBIs.
    pub(crate) fn waited(&mut self, cpu: u16) {
        if self.limbo.iter().any(|limbo| limbo.flushed == Some(cpu)) {
            self.release(|limbo, _| limbo.flushed == Some(cpu));
        }
    }
}
