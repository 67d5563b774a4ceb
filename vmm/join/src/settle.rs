//! Looks at a guest that goes on between them, until what is wrong is known to stay wrong.
//!
//! A machine can be stopped in the middle of any update of a table, and what is there then may look like an error: a
//! process that waits for us does nothing, but compaction, reclaim and khugepaged do. So an error counts when the words
//! of its group were the same in several looks, and between each two of them every CPU that was in the kernel has run
//! on for longer than any update takes. One group that does not come to rest says nothing of another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use linux::pte::{Kind, Pte, SwapKind};
use verdict::{Finding, Hex, KernelVerdict, ProcessVerdict, RuleId, Severity};

use crate::judge::Judged;
use crate::work::ran_on;
use crate::Look;

/// Looks at most, but for those that leave counts open or found a CPU where it was, and while no error is sure whose
/// tables are seldom shown.
pub(crate) const LOOKS: u32 = 16;
/// Looks at most with those: where processes come and go all the time, two of three catch one half made, and where the
/// host is slow or busy a guest's CPU gets no turn between two, or is seldom found in user mode.
pub(crate) const ALL_LOOKS: u32 = 4 * LOOKS;
/// Looks that have to agree.
pub(crate) const AGREEING: u32 = 3;
/// Looks that are taken only to see pages where they are on their way to. It is no error that they are.
const PATIENT: u32 = 6;

/// Whose tables: the pid, absent for the kernel, and the physical address of the first table.
pub type Owner = (Option<u32>, u64);

/// An error, to be found again word for word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// In whose tables.
    pub owner: Owner,
    /// Which rule is broken.
    pub rule: RuleId,
    /// The first address that is concerned; none for what came after a rule's share of listed findings.
    pub va: Option<u64>,
    /// Physical address of the table.
    pub table: u64,
    /// The raw words of the whole group; for what was not listed, how much that is.
    pub words: Vec<Hex>,
    /// What was found, where it hangs on more than the words: what is counted has to be the same from look to look.
    pub said: String,
}

/// One of the judged.
#[derive(Clone, Copy, Debug)]
pub enum Verdict<'v> {
    /// The kernel half, and its first table.
    Kernel(&'v KernelVerdict, u64),
    /// A process.
    Process(&'v ProcessVerdict),
}

/// What several looks came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// How many there were.
    pub looks: u32,
    /// Errors that are none of a moment.
    pub confirmed: BTreeSet<Fault>,
    /// What was seen and cannot be said to be an error, and why.
    pub open: BTreeMap<Fault, Why>,
}

/// Why an error is not known to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The guest was found standing still, so there was one look.
    StoodStill,
    /// Nobody showed its tables again.
    NotSeenAgain,
    /// Its group holds what may be a page on its way.
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

/// Looks until every error is confirmed or gone, or it was tried often enough; gives the last look. `look` is told the
/// number of the look, from 1; `runs` says whether the guest goes on between two, for which `pause` waits that long.
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

/// In how many looks after each other each error was there.
#[derive(Debug, Default)]
struct Streaks {
    of: BTreeMap<Fault, u32>,
    /// Whose tables the last look showed.
    here: BTreeSet<Owner>,
    /// How many looks showed them.
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
        // What is gone where it was has been an update; but a count that was not judged is not gone.
        let here = &self.here;
        let open = |fault: &Fault| uncounted && fault.rule == RuleId::L9;
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

    /// Whether errors were found, none is sure yet, and the tables of one were not shown as often as all should be.
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

/// Entries that may be of pages on their way.
fn moving(processes: &[ProcessVerdict]) -> u64 {
    processes.iter().map(|it| it.entries.moving).sum()
}

impl Judged {
    /// Each of the judged.
    pub(crate) fn verdicts(&self) -> Vec<Verdict<'_>> {
        let kernel = self.kernel.iter().flatten();
        let kernel = kernel.map(|verdict| Verdict::Kernel(verdict, self.kernel_root));
        let processes = self.processes.iter().map(Verdict::Process);
        processes.chain(kernel).collect()
    }
}

impl Fault {
    /// An error finding in the tables of `owner`; none of any other severity.
    #[must_use]
    pub fn of(owner: Owner, finding: &Finding) -> Option<Self> {
        (finding.severity == Severity::Error).then(|| Self {
            owner,
            rule: finding.rule,
            va: Some(finding.va.0),
            table: finding.table.0,
            words: finding.words.clone(),
            said: match finding.rule {
                RuleId::L9
                | RuleId::L12
                | RuleId::L13
                | RuleId::L14
                | RuleId::L15
                | RuleId::L16
                | RuleId::L17
                | RuleId::L18 => finding.message.clone(),
                _ => String::new(),
            },
        })
    }

    /// Errors of a rule that were counted and not listed.
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

    /// How many errors this stands for.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self.va {
            Some(_) => 1,
            None => self.words.first().map_or(0, |count| count.0),
        }
    }

    /// Whether the group has an entry that may be of a page on its way: which swap types are, depends on the
    /// kernel's configuration.
    fn may_move(&self) -> bool {
        let special = |word: &Hex| match Pte(word.0).kind() {
            Kind::Swap(entry) => entry.kind() == SwapKind::Special,
            _ => false,
        };
        self.owner.0.is_some() && self.va.is_some() && self.words.iter().any(special)
    }
}

impl Verdict<'_> {
    /// Whose tables.
    #[must_use]
    pub fn owner(&self) -> Owner {
        match self {
            Self::Kernel(_, root) => (None, *root),
            Self::Process(verdict) => (Some(verdict.process.pid), verdict.root.0),
        }
    }

    /// What is wrong with them.
    fn faults(&self) -> Vec<Fault> {
        let owner = self.owner();
        let (findings, dropped) = match self {
            Self::Kernel(verdict, _) => (&verdict.findings, &verdict.dropped),
            Self::Process(verdict) => (&verdict.findings, &verdict.dropped),
        };
        let listed = findings.iter().filter_map(|it| Fault::of(owner, it));
        let dropped = dropped.iter();
        let dropped = dropped.filter(|(rule, _)| **rule != RuleId::Eligible);
        let unlisted = dropped.map(|(rule, count)| Fault::unlisted(owner, *rule, *count));
        listed.chain(unlisted).collect()
    }
}

#[cfg(test)]
mod tests;
