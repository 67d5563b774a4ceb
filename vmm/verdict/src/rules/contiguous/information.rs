// SPDX-License-Identifier: GPL-2.0-only
//! Information, which is no rule: blocks that could be contiguous, and parts that could not be judged.

use crate::blocks::{BlockRow, Reason};
use crate::check::Check;
use crate::finding::Finding;
use crate::rules::rule::{Identity, OnBreak, Releases, Rule, Tier};
use linux::process::Process;

pub(crate) static ELIGIBLE: Rule = Rule {
    name: "I-eligible",
    title: "could be contiguous and is not",
    asserts: "A block whose entries would allow the bit and do not have it: legal. Linux folds when it maps a \
              whole aligned block at once, or when a block's last page is mapped last.",
    tier: Tier::Information,
    sources: &["arch/arm64/include/asm/pgtable.h, contpte_try_fold()"],
    needs: &[],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Elsewhere("the list of blocks")],
    synthetic: &["eligible_and_not_set_is_information"],
    live: &["test_c1_must_be_folded"],
};

pub(crate) static NOT_JUDGED: Rule = Rule {
    name: "N",
    title: "could not be judged",
    asserts: "Something that could not be judged, and why.",
    tier: Tier::Information,
    sources: &[],
    needs: &[],
    releases: Releases::ANY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Elsewhere("the list of blocks")],
    synthetic: &["outcomes_and_exit_statuses"],
    live: &[],
};

/// That the blocks of a row could be contiguous and are not.
pub(crate) fn eligible(process: &Process, row: &BlockRow) -> Finding {
    let reason = row.reason.as_ref().map_or(String::new(), Reason::text);
    let blocks = row.blocks;
    let message = format!("{blocks} blocks could be contiguous and are not: {reason}");
    Finding::on_row(row, &ELIGIBLE, process, message)
}
