// SPDX-License-Identifier: GPL-2.0-only
//! The result of several looks, as it is saved with a snapshot and applied to verdicts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use snapshot::{Notes, Snapshot};
use verdict::{Finding, KernelVerdict, NotJudged, ProcessVerdict, RuleId, Severity};

use crate::confirm::{Fault, Owner, Settled, Why};
use crate::judge::Judged;
use evidence::inside::is_whole;

/// The result of the looks at a guest. It is saved with the snapshot, so that a core is judged as the live guest was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// Number of looks.
    pub looks: u32,
    /// Errors of the last look that are not confirmed.
    #[serde(default)]
    pub open: Vec<Open>,
    /// Snapshots of an earlier version list the confirmed errors: root table, rule, address.
    #[serde(default, skip_serializing)]
    confirmed: Option<BTreeSet<(u64, RuleId, u64)>>,
    /// They list the others as sentences.
    #[serde(default, skip_serializing)]
    unconfirmed: Vec<String>,
    /// True if a process was at a checkpoint.
    #[serde(default)]
    pub checkpoint: bool,
}

/// Unconfirmed errors of one rule in one address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Physical address of the root table.
    pub root: u64,
    /// The rule.
    #[serde(default)]
    pub rule: Option<RuleId>,
    /// The VAs; the highest address stands for errors that are counted and not listed.
    #[serde(default)]
    pub at: BTreeSet<u64>,
    /// Number of errors.
    pub errors: u64,
    /// One sentence: the error, its place, and why it is not confirmed.
    pub reason: String,
}

/// Note for a snapshot taken in a single look.
pub(crate) const ONE_LOOK: &str =
    "it was taken at one instant, at which an update that is under way may look like an error";

/// The notes' key of [`Sight`].
const SIGHT: &str = "sight";

impl Sight {
    /// Reads it from a snapshot's notes.
    #[must_use]
    pub fn of(notes: &Notes) -> Option<Self> {
        let mut sight: Self = serde_json::from_value(notes.extra.get(SIGHT)?.clone()).ok()?;
        let earlier = std::mem::take(&mut sight.unconfirmed);
        sight.open.extend(earlier.into_iter().map(|reason| Open {
            root: 0,
            rule: None,
            at: BTreeSet::new(),
            errors: 0,
            reason,
        }));
        Some(sight)
    }

    /// Saves it with a snapshot.
    pub fn keep(&self, notes: &mut Notes) {
        let value = serde_json::to_value(self).unwrap_or_default();
        notes.extra.insert(SIGHT.into(), value);
    }

    /// Groups the unconfirmed errors of `settled` by address space, rule and reason.
    #[must_use]
    pub fn new(settled: &Settled, checkpoint: bool) -> Self {
        let mut open: BTreeMap<(Owner, RuleId, Why), Vec<&Fault>> = BTreeMap::new();
        for (fault, why) in &settled.open {
            open.entry((fault.owner, fault.rule, *why))
                .or_default()
                .push(fault);
        }
        let open = open.into_iter().map(|((owner, rule, why), faults)| {
            let errors: u64 = faults.iter().map(|fault| fault.count()).sum();
            let at: BTreeSet<u64> = faults.iter().map(|fault| fault.va.unwrap_or(u64::MAX)).collect();
            // Where the words alone do not tell what was seen.
            let said = faults.first().map_or("", |fault| &fault.said);
            let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
            let whose = owner.0.map_or("the kernel half".into(), |pid| format!("process {pid}"));
            let va = at.first().copied().unwrap_or_default();
            let reason = format!(
                "{whose}: what may be {errors} error(s) by {rule}, the first at VA {va:#018x}, was seen{said} and is not known to stay; {}",
                why.text()
            );
            Open { root: owner.1, rule: Some(rule), at, errors, reason }
        });
        Self {
            looks: settled.looks,
            open: open.collect(),
            confirmed: None,
            unconfirmed: Vec::new(),
            checkpoint,
        }
    }

    /// Removes unconfirmed errors from all verdicts. Returns the reasons of those in address spaces without a verdict.
    pub(crate) fn hold(&self, judged: &mut Judged) -> Vec<NotJudged> {
        for verdict in &mut judged.processes {
            self.hold_process(verdict);
        }
        if let Some(Ok(kernel)) = &mut judged.kernel {
            self.hold_kernel(kernel, judged.kernel_root);
        }
        let verdicts = judged.verdicts();
        let shown: BTreeSet<u64> = verdicts.iter().map(|it| it.owner().1).collect();
        let others = self.open.iter().filter(|it| !shown.contains(&it.root));
        let reason = |it: &Open| NotJudged {
            reason: it.reason.clone(),
        };
        others.map(reason).collect()
    }

    /// Removes a process's unconfirmed errors, counts them, and lists them as not judged.
    pub fn hold_process(&self, verdict: &mut ProcessVerdict) {
        let root = verdict.root.0;
        let error = |finding: &Finding| finding.severity == Severity::Error;
        verdict
            .findings
            .retain(|finding| !error(finding) || self.stays(root, finding.rule, finding.va.0));
        verdict
            .dropped
            .retain(|rule, _| rule.is_information() || self.stays(root, *rule, u64::MAX));
        verdict.unsettled += self.add(root, &mut verdict.not_judged);
    }

    /// Does the same for the kernel half, whose root table is at `root`.
    pub fn hold_kernel(&self, verdict: &mut KernelVerdict, root: u64) {
        verdict
            .findings
            .retain(|finding| self.stays(root, finding.rule, finding.va.0));
        verdict
            .dropped
            .retain(|rule, _| self.stays(root, *rule, u64::MAX));
        verdict.unsettled += self.add(root, &mut verdict.not_judged);
    }

    /// Returns whether an error at this place counts. An error that no look found, because the file or the rules have changed
    /// since, counts.
    fn stays(&self, root: u64, rule: RuleId, va: u64) -> bool {
        let confirmed = self.confirmed.as_ref();
        let mut open = self.open.iter();
        confirmed.is_none_or(|all| all.contains(&(root, rule, va)))
            && !open.any(|it| it.root == root && it.rule == Some(rule) && it.at.contains(&va))
    }

    /// Returns the reasons of all unconfirmed errors.
    #[must_use]
    pub fn reasons(&self) -> Vec<NotJudged> {
        let all = self.open.iter().map(|it| it.reason.clone());
        all.map(|reason| NotJudged { reason }).collect()
    }

    fn add(&self, root: u64, not_judged: &mut Vec<NotJudged>) -> u64 {
        let here = || self.open.iter().filter(|it| it.root == root);
        not_judged.extend(here().map(|it| NotJudged {
            reason: it.reason.clone(),
        }));
        here().map(|it| it.errors).sum()
    }
}

/// Returns whether a snapshot is of a guest without a process at a checkpoint.
#[must_use]
pub fn is_unattended(snapshot: &Snapshot) -> bool {
    let mut processes = snapshot.notes.processes.iter();
    match Sight::of(&snapshot.notes) {
        Some(sight) => !sight.checkpoint,
        None => is_whole(&snapshot.memory) && processes.all(|it| it.checkpoint.is_none()),
    }
}
