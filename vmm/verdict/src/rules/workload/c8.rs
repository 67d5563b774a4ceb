// SPDX-License-Identifier: GPL-2.0-only
//! C8: MMU notifiers invalidate each page before the process loses it. Page tables do not show that; a copy of them does
//! that only notifiers change.

use std::ops::Range;

use crate::check::Check;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};
use crate::{Finding, Process};

pub(crate) static RULE: Rule = Rule {
    name: "C8",
    title: "MMU notifiers invalidate a page before it is unmapped, replaced or protected",
    asserts: "Before an entry changes so that the process can no longer access the page as before (it maps another page, none, \
              or not for writing), a range that covers the page is passed to invalidate_range_start(): until then KVM and devices \
              use their copy. Asked of each operation of the crossing, on a kernel with a secondary MMU for tests (MMU_MIRROR_TEST, \
              of the series): it copies the page tables before the operation, and after each step every page that it still has \
              is one that the process has. Young and dirty bits are not asked.",
    tier: Tier::Linux,
    sources: &[
        "include/linux/mmu_notifier.h, struct mmu_notifier_ops (invalidate_range_start)",
        "mm/memory.c, zap_page_range_single(), wp_page_copy(), copy_page_range(); mm/mprotect.c; mm/mremap.c; mm/rmap.c",
    ],
    needs: &[Need::Mirror.all()],
    releases: Releases::PATCHED,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Elsewhere("the crossing (a copy of the page tables)")],
    synthetic: &["c8_says_where_and_what"],
    live: &["test_an_entry_that_changes_without_a_notifier_is_listed"],
};

/// Returns that a secondary MMU still has pages of a range that the process has lost.
pub fn not_invalidated(process: &Process, range: Range<u64>, message: String) -> Finding {
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
        let finding = not_invalidated(&process, 0x1000..0x3000, "2 pages".into());
        assert_eq!(
            (finding.rule, finding.severity),
            (id("C8"), Severity::Error)
        );
        assert_eq!((finding.va, finding.end), (Hex(0x1000), Hex(0x3000)));
        assert_eq!(finding.process, Some(process));
        assert_eq!(finding.message, "2 pages");
    }
}
