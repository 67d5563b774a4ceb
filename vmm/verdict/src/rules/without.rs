// SPDX-License-Identifier: GPL-2.0-only
//! The parts that are not judged if an input is absent, by what the rules need.

use std::collections::BTreeSet;

use super::registry::{names, RULES};
use super::rule::{AffectedPart, Need, Rule, RuleId};
use crate::check::Check;
use crate::finding::Lack;

/// The parts of rules that are not judged without an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// The rules that are not in force without it.
    pub rules: Vec<RuleId>,
    /// Rules by name, and which part of others.
    subject: String,
    many: bool,
}

impl Without {
    /// The sentence's subject and verb: "L7 and what L8 says of folios were not judged".
    #[must_use]
    pub fn sentence(&self) -> String {
        let verb = if self.many { "were" } else { "was" };
        format!("{} {verb} not judged", self.subject)
    }
}

/// Returns the parts that are not judged without any of these.
#[must_use]
pub fn without(needs: &[Need]) -> Without {
    of(needs, |_| true)
}

fn of(needs: &[Need], which: impl Fn(&Rule) -> bool) -> Without {
    let (mut whole, mut parts, mut rules) = (BTreeSet::new(), Vec::new(), Vec::new());
    for rule in RULES.iter().filter(|rule| which(rule)) {
        let missing = |(need, _): &&(Need, AffectedPart)| needs.contains(need);
        let extents = rule.needs.iter().filter(missing).map(|(_, extent)| *extent);
        let extents: Vec<AffectedPart> = extents.collect();
        if extents.contains(&AffectedPart::All) {
            whole.insert(rule.id());
            rules.push(rule.id());
            continue;
        }
        if extents.iter().any(|it| matches!(it, AffectedPart::Half(_))) {
            rules.push(rule.id());
        }
        parts.extend(extents.iter().filter_map(|extent| match extent {
            AffectedPart::Half(of) | AffectedPart::Part(of) => {
                Some(format!("what {} says of {of}", rule.name))
            }
            AffectedPart::All | AffectedPart::Less => None,
        }));
    }
    let many = whole.len() + parts.len() > 1;
    let by_name = (!whole.is_empty()).then(|| names(&whole));
    let mut subject = by_name
        .into_iter()
        .chain(parts)
        .collect::<Vec<_>>()
        .join(" and ");
    if subject.starts_with('w') {
        subject.replace_range(..1, "W");
    }
    Without {
        rules,
        subject,
        many,
    }
}

/// Returns the parts that are not judged of an entry whose page cannot be read.
pub(crate) fn of_entries() -> Without {
    of(&[Need::Folios], |rule| {
        let mut checks = rule.checks.iter();
        checks.any(|check| matches!(check, Check::Entry(_)))
    })
}

/// The names of the rules that ask this, in a sentence.
pub(crate) fn asking(need: Need) -> String {
    let rules = RULES.iter().filter(|rule| rule.needs(need));
    super::rule::list(rules.map(|rule| rule.name), " and ")
}

impl Lack {
    /// A lack of these inputs, `of` what it was not judged.
    #[must_use]
    pub fn without(needs: &[Need], of: &str, why: &str) -> Self {
        let without = without(needs);
        let reason = format!("{} {of}: {why}", without.sentence());
        Self::new(without.rules, reason)
    }
}
