//! What is no rule: blocks that could be contiguous, and what could not be judged.

use super::rule::{Releases, Rule, Tier};
use crate::RuleId;

pub(super) const ELIGIBLE: Rule = Rule {
    id: RuleId::Eligible,
    title: "could be contiguous and is not",
    asserts: "A block whose entries would allow the bit and do not have it: legal. Linux folds when it maps a \
              whole aligned block at once, or when a block's last page is mapped last.",
    tier: Tier::Information,
    sources: &["arch/arm64/include/asm/pgtable.h, contpte_try_fold()"],
    needs: &[],
    releases: Releases::WIDELY,
    known: &[],
    synthetic: &["eligible_and_not_set_is_information"],
    live: &["test_c1_must_be_folded"],
};

pub(super) const NOT_JUDGED: Rule = Rule {
    id: RuleId::NotJudged,
    title: "could not be judged",
    asserts: "Something that could not be judged, and why.",
    tier: Tier::Information,
    sources: &[],
    needs: &[],
    releases: Releases::ANY,
    known: &[],
    synthetic: &["outcomes_and_exit_statuses"],
    live: &[],
};
