// SPDX-License-Identifier: GPL-2.0-only
//! The families of rules. A rule is listed by its family, and nowhere else.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::rule::{Rule, RuleId};
use super::{
    architecture, contiguous, counters, counts, kernel_half, mapping, order_record, page_cache,
    procfs, sequences, workload,
};

/// All families. Their order, and that of the rules in each, is the order in which checks of one kind are made.
pub static FAMILIES: [&[&Rule]; 11] = [
    architecture::RULES,
    order_record::RULES,
    contiguous::RULES,
    counts::RULES,
    counters::RULES,
    mapping::RULES,
    procfs::RULES,
    page_cache::RULES,
    kernel_half::RULES,
    workload::RULES,
    sequences::RULES,
];

/// All rules, in the order of their names.
pub static RULES: LazyLock<Vec<&'static Rule>> = LazyLock::new(|| {
    let mut all: Vec<&'static Rule> = FAMILIES.concat();
    all.sort_by_key(|rule| rule.id());
    all
});

impl RuleId {
    /// The rule of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<RuleId> {
        let rule = RULES.iter().find(|rule| rule.name == name)?;
        Some(rule.id())
    }
}

/// From its name: a verdict that names a rule that there is not is refused.
impl<'de> Deserialize<'de> for RuleId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name)
            .ok_or_else(|| D::Error::custom(format_args!("there is no rule {name:?}")))
    }
}

impl JsonSchema for RuleId {
    fn schema_name() -> Cow<'static, str> {
        "RuleId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = |rule: &&Rule| serde_json::json!({"const": rule.name, "description": rule.title});
        let each: Vec<_> = RULES.iter().map(one).collect();
        json_schema!({"type": "string", "description": "A rule, or a kind of information.", "oneOf": each})
    }
}

/// Names of rules for people: a run of consecutive ones by its ends.
#[must_use]
pub fn names(rules: &BTreeSet<RuleId>) -> String {
    let order: Vec<RuleId> = RULES.iter().map(|rule| rule.id()).collect();
    let letter = |rule: &RuleId| rule.to_string().chars().next();
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, rule) in order
        .iter()
        .enumerate()
        .filter(|(_, rule)| rules.contains(rule))
    {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == at && letter(&order[*end]) == letter(rule) => *end = at,
            _ => runs.push((at, at)),
        }
    }
    let names = runs.iter().map(|(first, last)| match last - first {
        0 => order[*first].to_string(),
        1 => format!("{}, {}", order[*first], order[*last]),
        _ => format!("{} to {}", order[*first], order[*last]),
    });
    names.collect::<Vec<_>>().join(", ")
}
