// SPDX-License-Identifier: GPL-2.0-only
//! The checks of all rules by kind, in table order; and Linux's rules on a group and on an entry.

use std::sync::LazyLock;

use linux::folio::Numbering;
use linux::pte::bits;
use linux::vma::Vma;
use stage1::{Level, Regime};

use super::registry::FAMILIES;
use super::rule::{Rule, RuleId};
use crate::check::{
    AlikeCheck, CachesCheck, Check, ContiguousCheck, CountedCheck, EntryCheck, ExclusiveCheck,
    ExpectedCheck, FreshCheck, GroupCheck, KernelCheck, OpenCheck, PageCheck, PlacementCheck,
    ProcessCheck, RecordCheck, UnheldCheck, UnmappedCheck,
};
use crate::group::Group;
use crate::mapped::Mapped;
use crate::Expected;

/// Checks of one kind, each with its rule.
type Of<F> = Vec<(RuleId, F)>;

/// All checks, by kind.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    group: Of<GroupCheck>,
    contiguous: Of<ContiguousCheck>,
    pub placement: Of<PlacementCheck>,
    entry: Of<EntryCheck>,
    alike: Of<AlikeCheck>,
    expected: Of<(Expected, ExpectedCheck)>,
    pub open: Of<OpenCheck>,
    pub record: Of<RecordCheck>,
    pub fresh: Of<FreshCheck>,
    pub process: Of<ProcessCheck>,
    pub page: Of<PageCheck>,
    pub unheld: Of<UnheldCheck>,
    pub exclusive: Of<ExclusiveCheck>,
    pub unmapped: Of<UnmappedCheck>,
    pub counted: Of<CountedCheck>,
    pub caches: Of<CachesCheck>,
    pub kernel: Of<KernelCheck>,
}

/// Those of [`FAMILIES`].
pub(crate) static CHECKS: LazyLock<Checks> = LazyLock::new(|| {
    let mut all = Checks::default();
    for rule in FAMILIES.iter().copied().flatten() {
        all.add(rule);
    }
    all
});

/// Takes a rule that the thing at hand breaks, and the sentence.
pub(crate) type Broken<'a> = dyn FnMut(RuleId, String) + 'a;

impl Checks {
    fn add(&mut self, rule: &'static Rule) {
        let id = rule.id();
        for check in rule.checks {
            match *check {
                Check::Group(check) => self.group.push((id, check)),
                Check::Contiguous(check) => self.contiguous.push((id, check)),
                Check::Placement(check) => self.placement.push((id, check)),
                Check::Entry(check) => self.entry.push((id, check)),
                Check::Alike(check) => self.alike.push((id, check)),
                Check::Expected(what, check) => self.expected.push((id, (what, check))),
                Check::Open(check) => self.open.push((id, check)),
                Check::Record(check) => self.record.push((id, check)),
                Check::Fresh(check) => self.fresh.push((id, check)),
                Check::Process(check) => self.process.push((id, check)),
                Check::Page(check) => self.page.push((id, check)),
                Check::Unheld(check) => self.unheld.push((id, check)),
                Check::Exclusive(check) => self.exclusive.push((id, check)),
                Check::Unmapped(check) => self.unmapped.push((id, check)),
                Check::Counted(check) => self.counted.push((id, check)),
                Check::Caches(check) => self.caches.push((id, check)),
                Check::Kernel(check) => self.kernel.push((id, check)),
                Check::Elsewhere(_) => {}
            }
        }
    }

    /// The checks of what a checkpoint states.
    pub fn expected(&self, what: Expected) -> impl Iterator<Item = (RuleId, ExpectedCheck)> + '_ {
        let all = self.expected.iter().filter(move |(_, (of, _))| *of == what);
        all.map(|(rule, (_, check))| (*rule, *check))
    }

    /// Linux's rules on one group of a user table by itself; `hugetlb` is what is known of the VMA. Each broken
    /// rule goes to `broken` once.
    pub fn group(&self, group: &Group<'_>, hugetlb: Option<bool>, broken: &mut Broken<'_>) {
        for (rule, check) in &self.group {
            if let Some(message) = check(group, hugetlb) {
                broken(*rule, message);
            }
        }
        let contiguous = group.leaves().any(|(_, pte)| pte.0 & bits::CONT != 0);
        // Where the bit is reserved there is no group to be complete: that is the architecture's.
        if contiguous && group.regime.contiguous_entries(group.level).is_some() {
            for (rule, check) in &self.contiguous {
                if let Some(message) = check(group) {
                    broken(*rule, message);
                }
            }
        }
    }

    /// How many entries from this one on, at most `most`, are alike to rules that ask where in its VMA an entry is.
    pub fn alike(&self, mapped: &Mapped<'_>, numbering: Option<&Numbering>, most: usize) -> usize {
        let all = self.alike.iter();
        all.fold(most, |most, (_, check)| check(mapped, numbering, most))
    }

    /// Linux's rules on one entry and the folio behind it.
    pub fn entry(
        &self,
        mapped: &Mapped<'_>,
        vma: &Vma,
        numbering: Option<&Numbering>,
        broken: &mut Broken<'_>,
    ) {
        for (rule, check) in &self.entry {
            if let Some(message) = check(mapped, vma, numbering) {
                broken(*rule, message);
                if rule.rule().on_break.ends() {
                    return;
                }
            }
        }
    }
}

/// Returns whether a group of a user table breaks one of Linux's rules by itself. `words` are its members, of which the
/// first is at `index` of the table at `table` and maps `va`; `hugetlb` is what is known of the VMA.
pub fn breaks_by_itself(
    (regime, level): (&Regime, Level),
    va: u64,
    (table, index): (u64, usize),
    words: &[u64],
    hugetlb: Option<bool>,
) -> bool {
    let group = Group::new((regime, level), va, (table, index), words);
    let mut broken = false;
    CHECKS.group(&group, hugetlb, &mut |_, _| broken = true);
    broken
}
