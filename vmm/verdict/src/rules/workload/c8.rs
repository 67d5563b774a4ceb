// SPDX-License-Identifier: GPL-2.0-only
//! C8: MMU notifiers are told of each page that a process can no longer access as before. Tables do not show that: a copy of
//! them shows it, which notifiers alone keep up to date.

use std::ops::Range;

use crate::check::Check;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};
use crate::{Finding, Process};

pub(crate) static RULE: Rule = Rule {
    name: "C8",
    title: "MMU notifiers are told before a page goes",
    asserts: "Whoever changes an entry so that the process can no longer access the page in the same way (another page, none, \
              or not for writing any more) names it to invalidate_range_start() before: what KVM and devices have copied of the \
              tables is used until then. Asked of each operation of the crossing, where the kernel has a secondary MMU for tests \
              (MMU_MIRROR_TEST, of the series): it copies the tables before the operation, and afterwards has no page that the \
              process has not. Young and dirty are not asked.",
    tier: Tier::Linux,
    sources: &[
        "include/linux/mmu_notifier.h, struct mmu_notifier_ops (invalidate_range_start)",
        "mm/memory.c, zap_page_range_single(), wp_page_copy(), copy_page_range(); mm/mprotect.c; mm/mremap.c; mm/rmap.c",
    ],
    needs: &[Need::Mirror.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Elsewhere("the crossing (a copy of the page tables)")],
    synthetic: &["c8_says_where_and_what"],
    live: &["test_a_secondary_mmu_has_what_no_notifier_was_told"],
};

/// That a copy of a process's page tables has pages in a range which the process no longer has so.
pub fn not_told(process: &Process, range: Range<u64>, message: String) -> Finding {
    super::of_range(&RULE, process, range, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::id;
    use crate::{Hex, Severity};

    #[test]
    fn c8_says_where_and_what() {
        let process = Process {
            pid: 7,
            name: "cross".into(),
        };
        let finding = not_told(&process, 0x1000..0x3000, "2 pages".into());
        assert_eq!(
            (finding.rule, finding.severity),
            (id("C8"), Severity::Error)
        );
        assert_eq!((finding.va, finding.end), (Hex(0x1000), Hex(0x3000)));
        assert_eq!(finding.process, Some(process));
        assert_eq!(finding.message, "2 pages");
    }
}
