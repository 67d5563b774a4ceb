//! What a rule says of one place in the tables.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use untrusted::Text;

use crate::cause::{cause, Cause};
use crate::sequence::Sequence;
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
    pub name: Text,
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
    /// In how many places the same cause was found, with this one. In a [`crate::Report`] findings of one cause are
    /// one; what [`crate::judge`] gives has one for each place.
    pub places: u64,
    /// The next of these places, as far as they are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<Place>,
    /// Of a finding on a sequence (S1 to S7): its stores, its TLB maintenance and who did them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Box<Sequence>>,
}

impl Finding {
    /// An error that no entry has: what has one names it.
    pub fn new(rule: RuleId, message: String) -> Self {
        Self {
            rule,
            severity: Severity::Error,
            process: None,
            va: Hex(0),
            end: Hex(0),
            level: 0,
            table: Hex(0),
            index: 0,
            words: Vec::new(),
            message,
            remarks: Vec::new(),
            places: 1,
            more: Vec::new(),
            sequence: None,
        }
    }
}

/// Another place of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Place {
    /// First virtual address that is concerned.
    pub va: Hex,
    /// First address behind it.
    pub end: Hex,
    /// Lookup level of the entries.
    pub level: i8,
    /// Physical address of their table.
    pub table: Hex,
    /// Index in the table of the first of them.
    pub index: usize,
}

impl Place {
    /// A finding's own.
    pub(crate) fn of(finding: &Finding) -> Place {
        Place {
            va: finding.va,
            end: finding.end,
            level: finding.level,
            table: finding.table,
            index: finding.index,
        }
    }
}

impl Finding {
    /// Whose tables, for people.
    #[must_use]
    pub fn who(&self) -> String {
        match &self.process {
            Some(process) if process.name.is_empty() => format!("process {}", process.pid),
            Some(process) => format!("{} ({})", process.name, process.pid),
            None if self.sequence.is_some() && self.va.0 >> 63 == 0 => "a process".into(),
            None => "kernel".into(),
        }
    }

    /// Where, what, and in how many places more, in one line.
    pub(crate) fn line(&self) -> String {
        let more = match self.places {
            0 | 1 => String::new(),
            2 => " (and in 1 more place)".to_owned(),
            places => format!(" (and in {} more places)", places - 1),
        };
        let remarks: String = self
            .remarks
            .iter()
            .map(|remark| format!("; {remark}"))
            .collect();
        let place = match self.rule {
            // The kernel's words are about no address of a table.
            RuleId::V1 => String::new(),
            _ => format!(" VA {}", self.va),
        };
        format!("{}{place}: {}{more}{remarks}", self.rule, self.message)
    }
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
