// SPDX-License-Identifier: GPL-2.0-only
//! A rule: its name and text, what it needs, the kernels that it holds for, how it is confirmed, what it ends, its
//! checks.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use linux::release::Release;
use serde::{Serialize, Serializer};

use crate::check::Check;

/// One rule, or one kind of information: a value in a file of its family. Nothing else lists or names rules.
#[derive(Debug)]
pub struct Rule {
    /// Its name: a letter of [`LETTERS`] and a number.
    pub name: &'static str,
    /// Its assertion, in a few words.
    pub title: &'static str,
    /// Its assertion in full, with its exceptions.
    pub asserts: &'static str,
    /// The authority of the rule.
    pub tier: Tier,
    /// The Arm ARM's (DDI 0487) rule, or the kernel's file and function.
    pub sources: &'static [&'static str],
    /// Its inputs beside the tables and the registers, and how much of it hangs on each.
    pub needs: &'static [(Need, AffectedPart)],
    /// The kernels that it holds for.
    pub releases: Releases,
    /// Faults of kernels that it finds, which upstream has mended.
    pub known: &'static [KnownFault],
    /// The parts of an error that two looks must agree on.
    pub identity: Identity,
    /// The checks that an error ends.
    pub on_break: OnBreak,
    /// How it is judged.
    pub(crate) checks: &'static [Check],
    /// Tests on made-up tables, in this crate, in `stage1` or in `recorder`.
    pub synthetic: &'static [&'static str],
    /// Tests on a running guest, in `tests/`.
    pub live: &'static [&'static str],
}

/// The letters of rules, in the order of documents: architecture, walk, Linux, checkpoint, kernel half, fault, voice,
/// sequence, information, not judged.
const LETTERS: &[u8] = b"AWLCKFVSIN";

/// A rule, which compares, sorts and is written as its name. It is made from the rule's value, so that it always has
/// one.
#[derive(Clone, Copy)]
pub struct RuleId(&'static Rule);

impl RuleId {
    /// The rule itself.
    #[must_use]
    pub fn rule(self) -> &'static Rule {
        self.0
    }

    /// Returns the rule's assertion, in a few words.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.0.title
    }

    /// Returns whether it is information, and no error.
    #[must_use]
    pub fn is_information(self) -> bool {
        self.0.tier == Tier::Information
    }

    /// The place of its letter, and its number.
    fn place(self) -> (usize, u32) {
        let name = self.0.name;
        let letter = LETTERS
            .iter()
            .position(|it| name.as_bytes().first() == Some(it));
        let number = name.get(1..).and_then(|number| number.parse().ok());
        (letter.unwrap_or(LETTERS.len()), number.unwrap_or(0))
    }
}

impl From<&'static Rule> for RuleId {
    fn from(rule: &'static Rule) -> Self {
        Self(rule)
    }
}

impl PartialEq for RuleId {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for RuleId {}

impl Hash for RuleId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl Ord for RuleId {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_place = self.place().cmp(&other.place());
        by_place.then_with(|| self.0.name.cmp(other.0.name))
    }
}

impl PartialOrd for RuleId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.name)
    }
}

impl fmt::Debug for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl Serialize for RuleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name)
    }
}

/// The parts of an error that two looks must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Place and descriptors.
    Words,
    /// The sentence too: it has the counts that were compared.
    Sentence,
    /// The sentence too; and an error is not gone in a look that left counts open.
    Counts,
}

/// The checks that an error ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBreak {
    /// Nothing: later rules are asked of the same thing.
    GoOn,
    /// The thing at hand (an entry, a page, a folio): later rules are not asked of it. Table order is order of
    /// precedence.
    Ends,
    /// The same, and what the kernel counts of all memory is not held to pages any more, as one is not what it should
    /// be.
    VoidsCounts,
    /// Later rules are asked, and what the kernel counts of all memory is not held to pages any more.
    GoesOnAndVoidsCounts,
}

impl OnBreak {
    /// Returns whether later rules are not asked of the same thing.
    pub(crate) fn ends(self) -> bool {
        matches!(self, Self::Ends | Self::VoidsCounts)
    }

    /// Returns whether the kernel's counters are no longer compared with pages.
    pub(crate) fn voids_counts(self) -> bool {
        matches!(self, Self::VoidsCounts | Self::GoesOnAndVoidsCounts)
    }
}

/// How much of a rule hangs on what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffectedPart {
    /// All: without it the rule is not judged.
    All,
    /// One half, what the rule says of this: without it the rule is not in force.
    Half(&'static str),
    /// The named part of the rule alone: the rest is in force without the input.
    Part(&'static str),
    /// It asks less without it.
    Less,
}

/// The authority of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The architecture's: an error on any kernel.
    Architecture,
    /// Linux's: an error on a kernel that behaves as the releases do on which the rule was tried.
    Linux,
    /// No rule: worth knowing.
    Information,
}

/// An input of a rule beside the tables and the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each has its text
pub enum Need {
    Vmas,
    VmFlags,
    Records,
    Expectations,
    /// The words that the process wrote, and reads.
    Contents,
    Processes,
    /// The kernel's own `struct page` of what is mapped.
    Folios,
    /// The numbering of the pages of a process's VMAs.
    Numbering,
    /// The trees in which the reverse mapping finds its VMAs.
    Reverse,
    /// The kernel's counters of large folios.
    Sizes,
    /// The queues of folios that wait to be split.
    Queues,
    /// The lists of free pages.
    Zones,
    /// The kernel's counters of memory.
    Memory,
    /// Its counters of the LRU lists.
    Lists,
    /// Its counter of memory that is promised, and who was.
    Committed,
    /// The counts of slots in swap.
    Swap,
    /// All pages of the guest.
    Census,
    /// The page caches of files.
    PageCaches,
    /// The contents of the kernel's own files, read by the agent.
    Getters,
    Layout,
    /// The guest's console, and no table.
    Console,
    /// An operation of a workload that is past its deadline, and no table.
    Deadline,
    /// A secondary MMU for tests, and no table.
    Mirror,
    /// Every store to a table and all TLB maintenance, from a recorded guest.
    Recording,
}

impl Need {
    /// The rule is not judged without it.
    pub(crate) const fn all(self) -> (Need, AffectedPart) {
        (self, AffectedPart::All)
    }

    /// The half of the rule on this is not judged without it.
    pub(crate) const fn half(self, of: &'static str) -> (Need, AffectedPart) {
        (self, AffectedPart::Half(of))
    }

    /// Returns the need of the named part of a rule.
    pub(crate) const fn part(self, of: &'static str) -> (Need, AffectedPart) {
        (self, AffectedPart::Part(of))
    }

    /// The rule asks less without it.
    pub(crate) const fn less(self) -> (Need, AffectedPart) {
        (self, AffectedPart::Less)
    }
}

/// The kernels that a rule holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    /// The first.
    pub since: Option<Release>,
    /// The first that it no longer holds for.
    pub until: Option<Release>,
    /// On which it was tried, in order. On a newer one it speaks, and says that it is newer.
    pub tried: &'static [Release],
}

/// A fault of a kernel that upstream has mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFault {
    /// Words that the finding's sentence has.
    pub mark: &'static str,
    /// The commit's subject.
    pub commit: &'static str,
    /// The releases that have it: those of stable series, and last the first of mainline.
    pub mended: &'static [Release],
}

pub(crate) const V6_12: Release = Release::new(6, 12, 0);

pub(crate) const V6_12_117: Release = Release::new(6, 12, 117);

pub(crate) const V6_18_15: Release = Release::new(6, 18, 15);

pub(crate) const V7_2_12: Release = Release::new(7, 2, 12);

pub(crate) const V7_3_4: Release = Release::new(7, 3, 4);

impl Releases {
    /// Every release: what the architecture says hangs on no kernel.
    pub(crate) const ANY: Releases = Releases {
        since: None,
        until: None,
        tried: &[V6_12_117, V6_18_15, V7_2_12, V7_3_4],
    };
    /// From the layout of the software bits on; tried on the pinned kernel and on Debian's.
    pub(crate) const WIDELY: Releases = Releases {
        since: Some(Release::FIRST_WITH_THIS_LAYOUT),
        until: None,
        tried: &[V6_12_117, V6_18_15, V7_2_12, V7_3_4],
    };
    /// The same, tried on kernels with our patches alone: what it needs no stock kernel has.
    pub(crate) const PATCHED: Releases = Releases {
        since: Some(Release::FIRST_WITH_THIS_LAYOUT),
        until: None,
        tried: &[V6_12_117, V7_3_4],
    };
}

impl Releases {
    pub(crate) fn text(self) -> String {
        let from = self.since.map(|since| format!("since {since}"));
        let to = self.until.map(|until| format!("before {until}"));
        let bounds: Vec<String> = from.into_iter().chain(to).collect();
        let bounds = match bounds.is_empty() {
            true => "all".to_owned(),
            false => bounds.join(", "),
        };
        format!("{bounds}; tried on {}", list(self.tried, " and "))
    }

    /// The newest on which the rule was tried, where `release` is of a newer series.
    pub(crate) fn newer(self, release: Release) -> Option<Release> {
        let newest = self.tried.iter().copied().max()?;
        (release > newest && !release.same_series(newest)).then_some(newest)
    }
}

impl KnownFault {
    /// Returns whether this kernel lacks the commit.
    fn lacks(&self, release: Release) -> bool {
        let series = self
            .mended
            .iter()
            .find(|mended| mended.same_series(release));
        let first = series.or(self.mended.iter().max());
        first.is_some_and(|first| release < *first)
    }
}

impl Rule {
    /// Its identity.
    pub(crate) fn id(&'static self) -> RuleId {
        RuleId(self)
    }

    /// How much of the rule hangs on this; `None` where it does not need it.
    pub(crate) fn extent(&self, need: Need) -> Option<AffectedPart> {
        let mut needs = self.needs.iter();
        needs.find(|(it, _)| *it == need).map(|(_, extent)| *extent)
    }

    /// Returns whether it needs this, in whole or in part.
    pub(crate) fn needs(&self, need: Need) -> bool {
        self.extent(need).is_some()
    }

    /// Returns whether its findings are about an address of a table.
    #[must_use]
    pub fn is_about_tables(&self) -> bool {
        !self.needs(Need::Console)
    }
    /// Returns the remarks on a finding by this rule on this kernel: the commit that mends it, and
    /// that the rule was not tried on a kernel as new as this.
    pub(crate) fn remark(&self, message: &str, release: Option<Release>) -> Vec<String> {
        let Some(release) = release else {
            return Vec::new();
        };
        let known = self.known.iter();
        let known = known.filter(|known| message.contains(known.mark) && known.lacks(release));
        let known = known.map(|known| {
            format!(
                "the mark of a fault that upstream has mended: \"{}\", in {}; this kernel is {release}",
                known.commit,
                list(known.mended, " and ")
            )
        });
        let newer = self
            .releases
            .newer(release)
            .filter(|_| self.tier == Tier::Linux);
        let newer = newer.map(|newest| {
            format!(
                "kernel {release} is newer than those that {} was tried on (up to {newest})",
                self.name
            )
        });
        known.chain(newer).collect()
    }
}

pub(crate) fn list<T: ToString>(items: impl IntoIterator<Item = T>, last: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., end] => format!("{}{last}{end}", rest.join(", ")),
    }
}
