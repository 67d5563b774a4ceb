// SPDX-License-Identifier: GPL-2.0-only
//! C2: what must not be contiguous.

use std::ops::Range;

use crate::check::{Check, Report};
use crate::group::Group;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};
use crate::Expected;

pub(crate) static RULE: Rule = Rule {
    name: "C2",
    title: "the block must not be contiguous",
    asserts: "No entry of the ranges that the checkpoint names carries the bit (`not-contiguous`).",
    tier: Tier::Linux,
    sources: &["arch/arm64/mm/contpte.c, __contpte_try_unfold(), __contpte_try_fold()"],
    needs: &[Need::Expectations.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Expected(Expected::NotContiguous, check)],
    synthetic: &["c1_and_c2_where_the_checkpoint_says_so"],
    live: &["test_c2_must_not_be_folded"],
};

/// On the part of one group that lies in a range.
fn check(group: &Group<'_>, at: Range<u64>, report: &mut Report<'_>) {
    let inside = |place: usize| group.touches(place, &at);
    let mut leaves = group.leaves();
    if let Some((place, _)) = leaves.find(|(place, pte)| pte.valid_cont() && inside(*place)) {
        let va = group.va_of(place);
        let message = format!(
            "the entry for VA 0x{va:016x} has the Contiguous bit: after this step it must not"
        );
        report(at, message);
    }
}
