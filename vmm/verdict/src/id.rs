//! The rules' names.

use std::fmt;

use serde::{Deserialize, Serialize};

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

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleId::Eligible => f.pad("I-eligible"),
            RuleId::NotJudged => f.pad("N"),
            other => f.pad(&format!("{other:?}")),
        }
    }
}
