// SPDX-License-Identifier: GPL-2.0-only
//! Repeats the look at a running guest until every error is confirmed or gone.
//!
//! A machine can stop in the middle of any table update, which may look like an error. A process at a checkpoint changes
//! nothing, but compaction, reclaim and khugepaged do. An error is confirmed if the words of its group are the same in
//! several looks, and between two looks each CPU that was in the kernel has run for longer than any update takes. Groups
//! are independent: one that keeps changing does not affect another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use linux::pte::{Kind, Pte, SwapKind};
use verdict::rules::Identity;
use verdict::{Finding, Hex, KernelVerdict, ProcessVerdict, RuleId, Severity};

use crate::judge::Judged;
use crate::Look;
use evidence::cpu_progress::ran_on;

/// Maximum number of looks. Looks that leave counts open or find a CPU at the same instruction are not counted, and no
/// look is while no error is confirmed and a process's tables are seldom seen.
pub(crate) const LOOKS: u32 = 16;
/// Maximum number of all looks. If processes come and go all the time, two looks of three find one half made; on a slow or
/// busy host a guest's CPU may not run between two looks, or is seldom in user mode.
pub(crate) const ALL_LOOKS: u32 = 4 * LOOKS;
/// Number of looks that must agree.
pub(crate) const AGREEING: u32 = 3;
/// Extra looks taken while pages migrate. Migration is not an error.
const PATIENT: u32 = 6;

/// Identifies an address space: pid (`None` for the kernel) and the physical address of its root table.
pub type Owner = (Option<u32>, u64);

/// An error, by all that must be the same in another look.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The address space.
    pub owner: Owner,
    /// The broken rule.
    pub rule: RuleId,
    /// The first VA; `None` for errors beyond the number that a rule lists.
    pub va: Option<u64>,
    /// Physical address of the table.
    pub table: u64,
    /// The descriptors of the whole group; for errors that are not listed, their number.
    pub words: Vec<Hex>,
    /// The message, for rules that compare counts: they must be the same in each look.
    pub said: String,
}

/// The verdict on one address space.
#[derive(Clone, Copy, Debug)]
pub enum Verdict<'v> {
    /// The kernel half, and its root table.
    Kernel(&'v KernelVerdict, u64),
    /// A process.
    Process(&'v ProcessVerdict),
}

/// The result of several looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// How many there were.
    pub looks: u32,
    /// Errors confirmed by [`AGREEING`] looks.
    pub confirmed: BTreeSet<Fault>,
    /// Errors that are not confirmed, and why.
    pub open: BTreeMap<Fault, Why>,
}

/// The reason why an error is not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The guest was already stopped, so there was one look.
    StoodStill,
    /// No later look found the process's root table.
    NotSeenAgain,
    /// Its group has an entry that may be a migration entry.
    OnItsWay,
    /// It changed from look to look, or a CPU did not run on.
    Changing,
}

impl Why {
    /// The rest of a sentence.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::StoodStill => "the guest stood still when it was found, and at one instant an update that is under way looks the same: let it go on and look again",
            Self::NotSeenAgain => "its process was not seen in user mode again",
            Self::OnItsWay => "an entry of its group may be of a page that is on its way (a swap type of 23 to 30: migration, or one of those that some configurations number so): look again when the guest has less to do",
            Self::Changing => "it did not stand still, or a CPU in the kernel did not run on meanwhile: look again when the guest has less to do",
        }
    }
}

/// Calls `look` until every error is confirmed or gone, or the maximum is reached; returns the last look. `look` gets the
/// number of the look, from 1. `runs`: whether the guest runs between two looks. `pause` waits that long between them.
///
/// # Errors
/// As `look`.
pub fn settle<E>(
    runs: bool,
    pause: impl Fn(Duration),
    mut look: impl FnMut(u32) -> Result<Look, E>,
) -> Result<(Look, Settled), E> {
    let mut streaks = Streaks::default();
    let mut before: Option<Look> = None;
    let mut complete = 0;
    for number in 1.. {
        let now = look(number)?;
        let judged = &now.judged;
        let at = |look: &Look| moving(&look.judged.processes);
        let changes = before.as_ref().is_none_or(|before| at(before) != at(&now));
        let ran = before.as_ref().is_none_or(|before| {
            let (before, now) = (&before.capture, &now.capture);
            let cpus = (&before.snapshot.cpus[..], &before.work);
            ran_on(cpus, (&now.snapshot.cpus, &now.work))
        });
        streaks.add(&judged.verdicts(), (ran, judged.uncounted));
        let under_way = (at(&now) > 0 && changes || judged.later) && number < PATIENT;
        let under_way = under_way || judged.uncounted;
        complete += u32::from(ran && !judged.uncounted);
        let enough = complete >= LOOKS && !streaks.hidden() || number == ALL_LOOKS;
        if !runs || enough || (streaks.settled() && !under_way) {
            return Ok((now, streaks.end(number, runs)));
        }
        before = Some(now);
        pause(Duration::from_millis((4 << number.min(4)).min(60)));
    }
    unreachable!("the last look returns")
}

/// Counts the consecutive looks that found each error.
#[derive(Debug, Default)]
struct Streaks {
    of: BTreeMap<Fault, u32>,
    /// Address spaces that the last look had.
    here: BTreeSet<Owner>,
    /// Number of looks that had each address space.
    shown: BTreeMap<Owner, u32>,
}

impl Streaks {
    /// Adds a look; `ran` says whether every CPU has run on since the one before, `uncounted` whether it left counts open.
    fn add(&mut self, verdicts: &[Verdict<'_>], (ran, uncounted): (bool, bool)) {
        let faults: BTreeSet<Fault> = verdicts.iter().flat_map(Verdict::faults).collect();
        self.here = verdicts.iter().map(Verdict::owner).collect();
        for owner in &self.here {
            *self.shown.entry(*owner).or_default() += 1;
        }
        // An error that is gone was an update. A count that was not judged is not gone.
        let here = &self.here;
        let open = |fault: &Fault| uncounted && fault.rule.rule().identity == Identity::Counts;
        self.of.retain(|fault, _| {
            !here.contains(&fault.owner) || faults.contains(fault) || open(fault)
        });
        for fault in faults {
            let streak = self.of.entry(fault).or_insert(u32::from(!ran));
            *streak += u32::from(ran);
        }
    }

    fn is_sure(&self, fault: &Fault, streak: u32) -> bool {
        streak >= AGREEING && self.here.contains(&fault.owner) && !fault.may_move()
    }

    fn settled(&self) -> bool {
        let mut all = self.of.iter();
        all.all(|(fault, streak)| self.is_sure(fault, *streak))
    }

    /// Returns whether errors were found, none is confirmed yet, and the tables of one were seen in fewer than [`LOOKS`] looks.
    fn hidden(&self) -> bool {
        let mut all = self.of.iter();
        !all.any(|(fault, streak)| self.is_sure(fault, *streak))
            && self.of.keys().any(|fault| self.shown[&fault.owner] < LOOKS)
    }

    fn end(self, looks: u32, runs: bool) -> Settled {
        let mut settled = Settled {
            looks,
            ..Settled::default()
        };
        for (fault, streak) in &self.of {
            let why = match () {
                () if self.is_sure(fault, *streak) => {
                    settled.confirmed.insert(fault.clone());
                    continue;
                }
                () if !runs => Why::StoodStill,
                () if !self.here.contains(&fault.owner) => Why::NotSeenAgain,
                () if fault.may_move() => Why::OnItsWay,
                () => Why::Changing,
            };
            settled.open.insert(fault.clone(), why);
        }
        settled
    }
}

/// Returns the number of entries that may be migration entries.
fn moving(processes: &[ProcessVerdict]) -> u64 {
    processes.iter().map(|it| it.entries.moving).sum()
}

impl Judged {
    /// Returns the verdict on each address space.
    pub(crate) fn verdicts(&self) -> Vec<Verdict<'_>> {
        let kernel = self.kernel.iter().flatten();
        let kernel = kernel.map(|verdict| Verdict::Kernel(verdict, self.kernel_root));
        let processes = self.processes.iter().map(Verdict::Process);
        processes.chain(kernel).collect()
    }
}

impl Fault {
    /// Returns the fault of a finding in the tables of `owner`; `None` unless it is an error.
    #[must_use]
    pub fn of(owner: Owner, finding: &Finding) -> Option<Self> {
        (finding.severity == Severity::Error).then(|| Self {
            owner,
            rule: finding.rule,
            va: Some(finding.va.0),
            table: finding.table.0,
            words: finding.words.clone(),
            said: match finding.rule.rule().identity {
                Identity::Words => String::new(),
                Identity::Sentence | Identity::Counts => finding.message.clone(),
            },
        })
    }

    /// Returns the fault that stands for errors of a rule that are counted and not listed.
    #[must_use]
    pub fn unlisted(owner: Owner, rule: RuleId, count: u64) -> Self {
        Self {
            owner,
            rule,
            va: None,
            table: 0,
            said: String::new(),
            words: vec![Hex(count)],
        }
    }

    /// Returns the number of errors.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self.va {
            Some(_) => 1,
            None => self.words.first().map_or(0, |count| count.0),
        }
    }

    /// Returns whether the group has an entry that may be a migration entry. The swap types of these depend on the kernel's
    /// configuration.
    fn may_move(&self) -> bool {
        let special = |word: &Hex| match Pte(word.0).kind() {
            Kind::Swap(entry) => entry.kind() == SwapKind::Special,
            _ => false,
        };
        self.owner.0.is_some() && self.va.is_some() && self.words.iter().any(special)
    }
}

impl Verdict<'_> {
    /// Returns the address space.
    #[must_use]
    pub fn owner(&self) -> Owner {
        match self {
            Self::Kernel(_, root) => (None, *root),
            Self::Process(verdict) => (Some(verdict.process.pid), verdict.root.0),
        }
    }

    /// Returns all errors in this verdict.
    fn faults(&self) -> Vec<Fault> {
        let owner = self.owner();
        let (findings, dropped) = match self {
            Self::Kernel(verdict, _) => (&verdict.findings, &verdict.dropped),
            Self::Process(verdict) => (&verdict.findings, &verdict.dropped),
        };
        let listed = findings.iter().filter_map(|it| Fault::of(owner, it));
        let dropped = dropped.iter();
        let dropped = dropped.filter(|(rule, _)| !rule.is_information());
        let unlisted = dropped.map(|(rule, count)| Fault::unlisted(owner, *rule, *count));
        listed.chain(unlisted).collect()
    }
}

#[cfg(test)]
mod tests;
