//! The rules' names.

use std::borrow::Cow;
use std::fmt;

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{Rule, RULES};

/// The name of a rule, or of a kind of information. What each asserts is in its module, and in
/// `docs/rules.md`.
///
/// A fault is reported by one rule: where two would see it, the one whose text says so does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs)] // each has its rule, `RuleId::rule`
pub enum RuleId {
    A1,
    A2,
    A3,
    A4,
    A5,
    A6,
    A7,
    A8,
    W1,
    L1,
    L2,
    L3,
    L4,
    L5,
    L6,
    L7,
    L8,
    L9,
    L10,
    L11,
    L12,
    L13,
    L14,
    L15,
    L16,
    L17,
    L18,
    C1,
    C2,
    C3,
    K1,
    K2,
    F1,
    V1,
    S1,
    S2,
    S3,
    S4,
    S5,
    S6,
    S7,
    #[serde(rename = "I-eligible")]
    Eligible,
    #[serde(rename = "N")]
    NotJudged,
}

impl RuleId {
    /// The rule itself.
    pub fn rule(self) -> &'static Rule {
        let found = RULES.iter().copied().find(|rule| rule.id == self);
        // A test goes through them all.
        found.unwrap_or(RULES[0])
    }

    /// What the rule asserts, in a few words.
    pub fn title(self) -> &'static str {
        self.rule().title
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleId::Eligible => f.pad("I-eligible"),
            RuleId::NotJudged => f.pad("N"),
            other => f.pad(&format!("{other:?}")),
        }
    }
}

impl JsonSchema for RuleId {
    fn schema_name() -> Cow<'static, str> {
        "RuleId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = |rule: &&Rule| serde_json::json!({"const": rule.id, "description": rule.title});
        let each: Vec<_> = RULES.iter().map(one).collect();
        json_schema!({"type": "string", "description": "A rule, or a kind of information.", "oneOf": each})
    }
}
