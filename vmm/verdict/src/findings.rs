// SPDX-License-Identifier: GPL-2.0-only
//! Findings as they come, so many of each cause.

use std::collections::BTreeMap;

use crate::cause::{cause, Cause};
use crate::{Finding, RuleId};

/// Findings as they come, with a limit: a corrupted table can break a rule a million times.
#[derive(Debug)]
pub(crate) struct Findings {
    pub list: Vec<Finding>,
    kept: BTreeMap<Cause, usize>,
    causes: BTreeMap<RuleId, usize>,
    /// By cause: how many came and were not kept.
    pub beyond: BTreeMap<Cause, u64>,
    /// By rule: how many came of causes that were too many.
    others: BTreeMap<RuleId, u64>,
}

/// Findings of one cause that are kept per process.
pub(crate) const KEPT_PER_CAUSE: usize = 100;

/// Causes of one rule that are told apart: a table of noise has as many as it has words.
const CAUSES_PER_RULE: usize = 100;

impl Findings {
    pub fn new() -> Findings {
        Findings {
            list: Vec::new(),
            kept: BTreeMap::new(),
            causes: BTreeMap::new(),
            beyond: BTreeMap::new(),
            others: BTreeMap::new(),
        }
    }

    /// Adds one, unless its cause has had its share.
    pub fn add(&mut self, finding: Finding) {
        let cause = cause(finding.rule, &finding.message);
        match self.kept.get_mut(&cause) {
            Some(kept) if *kept >= KEPT_PER_CAUSE => *self.beyond.entry(cause).or_default() += 1,
            Some(kept) => {
                *kept += 1;
                self.list.push(finding);
            }
            None => {
                let causes = self.causes.entry(finding.rule).or_default();
                if *causes >= CAUSES_PER_RULE {
                    *self.others.entry(finding.rule).or_default() += 1;
                    return;
                }
                *causes += 1;
                self.kept.insert(cause, 1);
                self.list.push(finding);
            }
        }
    }

    /// How many came and were not kept.
    pub fn dropped(&self) -> BTreeMap<RuleId, u64> {
        let mut dropped = self.others.clone();
        for ((rule, _), count) in &self.beyond {
            *dropped.entry(*rule).or_default() += count;
        }
        dropped
    }
}
