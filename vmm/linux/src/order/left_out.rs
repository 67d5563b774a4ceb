// SPDX-License-Identifier: GPL-2.0-only
//! Reasons why policy `adaptive` left an order out (`adapt_order()`, mm/anon_order.c).

use super::adaptive::Adapted;
use super::{OrderRecord, Policy, Reason};

impl OrderRecord {
    /// Returns why policy `adaptive` left an allowed order out; `None` for other policies, and where it did not.
    #[must_use]
    pub fn adaptive_reason(&self, order: u8, page: u64) -> Option<String> {
        if self.policy != Policy::Adaptive || self.reasons[usize::from(order)] != Reason::Policy {
            return None;
        }
        let pages = (self.vm_end - self.vm_start) / page;
        let (most, what) = match self.hinted {
            true => (pages, "the VMA"),
            false => ((pages / 4).max(1), "a quarter of a VMA that is not hinted"),
        };
        if 1 << order > most {
            return Some(format!("it would be larger than {what} ({most} pages)"));
        }
        let Adapted { run, probe, .. } = self.adapted?;
        Some(match (probe, run) {
            (true, _) => "this block is a probe, which begins with single pages to see whether all of it is touched".to_owned(),
            (false, 0) => "no page right beside the fault was touched".to_owned(),
            (false, run) => format!(
                "{run} of the {} pages in a row that it needs right beside the fault were touched",
                1_u32 << order
            ),
        })
    }
}
