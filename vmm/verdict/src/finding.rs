// SPDX-License-Identifier: GPL-2.0-only
//! Findings: the result of a rule on one place in the tables.

use schemars::JsonSchema;
use serde::Serialize;

use crate::blocks::BlockRow;
use crate::group::Group;
use crate::rules::rule::RuleId;
use crate::sequence::Sequence;
use crate::Hex;
use linux::process::Process;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// A rule is broken.
    Error,
    /// Worth knowing, and legal.
    Information,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Which rule.
    pub rule: RuleId,
    /// How much it weighs.
    pub severity: Severity,
    /// The owner of the tables; absent for the kernel's.
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
    /// Remarks: the commit that mends it, or that the rule was not tried on a kernel as new as this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// In how many places the same cause was found, with this one. In a [`crate::Report`] findings of one cause are
    /// one; what [`crate::judge()`] gives has one for each place.
    pub places: u64,
    /// The next of these places, as far as they are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<Place>,
    /// For a finding on a sequence (S1 to S7): its stores, its TLB maintenance and their callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Box<Sequence>>,
}

impl Finding {
    /// A finding that no entry has: what has one names it. It is made by the rule's value.
    pub fn new(rule: impl Into<RuleId>, message: String) -> Self {
        let rule = rule.into();
        Self {
            rule,
            severity: match rule.is_information() {
                true => Severity::Information,
                false => Severity::Error,
            },
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

    /// A finding about a group.
    pub(crate) fn on(
        group: &Group<'_>,
        rule: impl Into<RuleId>,
        process: Option<&Process>,
        message: String,
    ) -> Self {
        Self {
            process: process.cloned(),
            va: Hex(group.va),
            end: Hex(group.end()),
            level: group.level.number(),
            table: Hex(group.table),
            index: group.index,
            words: group.words.iter().map(|&word| Hex(word)).collect(),
            ..Self::new(rule, message)
        }
    }

    /// A finding on blocks of level 3 that look the same.
    pub(crate) fn on_row(
        row: &BlockRow,
        rule: impl Into<RuleId>,
        process: &Process,
        message: String,
    ) -> Self {
        Self {
            process: Some(process.clone()),
            va: row.va,
            end: row.end,
            level: 3,
            ..Self::new(rule, message)
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
    /// Returns the owner of the tables, for people.
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
    pub fn line(&self) -> String {
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
        let place = match self.rule.rule().is_about_tables() {
            true => format!(" VA {}", self.va),
            false => String::new(),
        };
        format!("{}{place}: {}{more}{remarks}", self.rule, self.message)
    }
}

/// Something that could not be judged, and why. It makes the whole outcome "not judged" unless
/// there is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotJudged {
    /// The subject and the reason, in one sentence.
    pub reason: String,
}

/// A rule's input that one judge found missing for good.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Lack {
    /// The rules that were not judged for it.
    pub rules: Vec<RuleId>,
    /// The part that was not judged and the reason, in one sentence.
    pub reason: String,
    /// True if the kernel was built without it: there is nothing to judge then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_built: bool,
}

impl Lack {
    /// A lack of what these rules need.
    pub fn new(rules: impl Into<Vec<RuleId>>, reason: impl Into<String>) -> Self {
        Self {
            rules: rules.into(),
            reason: reason.into(),
            not_built: false,
        }
    }
}
