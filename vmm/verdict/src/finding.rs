//! What a rule says of one place in the tables.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use crate::RuleId;

/// A 64-bit word or address. In JSON a string, because numbers there lose bits above 2^53.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex(pub u64);

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// A rule is broken.
    Error,
    /// Worth knowing, and legal.
    Information,
}

/// A process of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Process {
    /// Its id in the initial PID namespace.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Which rule.
    pub rule: RuleId,
    /// How much it weighs.
    pub severity: Severity,
    /// Whose tables; absent for the kernel's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// First virtual address that is concerned.
    pub va: Hex,
    /// First address behind it.
    pub end: Hex,
    /// Lookup level of the entries.
    pub level: i8,
    /// Physical address of their table.
    pub table: Hex,
    /// Index in the table of the first of `words`.
    pub index: usize,
    /// The descriptors of the whole group.
    pub words: Vec<Hex>,
    /// One sentence: what is, and what should have been.
    pub message: String,
    /// What else is known: the commit that mends it, or that the rule was not tried on a kernel as new as this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// Something that could not be judged, and why. It makes the whole outcome "not judged" unless
/// there is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotJudged {
    /// What, and why, in one sentence.
    pub reason: String,
}

/// Findings as they come, with a limit: a corrupted table can break a rule a million times.
#[derive(Debug)]
pub(crate) struct Findings {
    pub list: Vec<Finding>,
    /// By rule and severity, all that came, kept or not.
    pub counts: BTreeMap<RuleId, u64>,
    kept: BTreeMap<RuleId, usize>,
}

/// Findings of one rule that are kept per process.
pub(crate) const KEPT_PER_RULE: usize = 100;

impl Findings {
    pub fn new() -> Findings {
        Findings {
            list: Vec::new(),
            counts: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    /// Adds what `finding` makes; it is not made where the rule has had its share.
    pub fn add(&mut self, rule: RuleId, finding: impl FnOnce() -> Finding) {
        *self.counts.entry(rule).or_default() += 1;
        let kept = self.kept.entry(rule).or_default();
        if *kept < KEPT_PER_RULE {
            *kept += 1;
            self.list.push(finding());
        }
    }

    /// How many came and were not kept.
    pub fn dropped(&self) -> BTreeMap<RuleId, u64> {
        let kept = |rule| self.kept.get(rule).copied().unwrap_or(0) as u64;
        self.counts
            .iter()
            .map(|(rule, count)| (*rule, count - kept(rule)))
            .filter(|(_, dropped)| *dropped > 0)
            .collect()
    }
}

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Hex {
    fn schema_name() -> Cow<'static, str> {
        "Hex".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^0x[0-9a-f]{16}$",
            "description": "A 64-bit word or address.",
        })
    }
}
