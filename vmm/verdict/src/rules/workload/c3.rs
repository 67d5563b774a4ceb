// SPDX-License-Identifier: GPL-2.0-only
//! C3: memory holds what was written to it. Tables do not show that; the process itself reads its memory, and the host
//! compares.

use std::ops::Range;

use crate::check::Check;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};
use crate::{Finding, Process};

pub(crate) static RULE: Rule = Rule {
    name: "C3",
    title: "memory holds what was written to it",
    asserts: "The words that the process reads in the ranges that the tour names are those that were written there, \
              and an access that something watches for is refused. Read by the process itself, after the look.",
    tier: Tier::Linux,
    sources: &["mmap(2), mremap(2), fork(2), madvise(2), userfaultfd(2): what they promise of contents"],
    needs: &[Need::Contents.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Elsewhere("the tour")],
    synthetic: &["c3_says_where_and_what"],
    live: &["test_lost_contents_are_named"],
};

/// That memory of a process in a range is not as it must be.
pub fn contents_differ(process: &Process, range: Range<u64>, message: String) -> Finding {
    super::of_range(&RULE, process, range, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::id;
    use crate::{Hex, Severity};

    #[test]
    fn c3_says_where_and_what() {
        let process = Process {
            pid: 7,
            name: "tour".into(),
        };
        let finding = contents_differ(&process, 0x1000..0x3000, "2 of 2 pages".into());
        assert_eq!(
            (finding.rule, finding.severity),
            (id("C3"), Severity::Error)
        );
        assert_eq!((finding.va, finding.end), (Hex(0x1000), Hex(0x3000)));
        assert_eq!(finding.process, Some(process));
        assert_eq!(finding.message, "2 of 2 pages");
    }
}
