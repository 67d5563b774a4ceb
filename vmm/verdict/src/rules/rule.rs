//! What a rule is: its name and text, what it needs, the kernels that it holds for, and what its check tells.

use std::ops::Range;

use linux::release::Release;

use crate::group::Group;
use crate::RuleId;

/// One rule, or one kind of information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub id: RuleId,
    /// What it asserts, in a few words.
    pub title: &'static str,
    /// What it asserts in full, and what it leaves alone.
    pub asserts: &'static str,
    /// Whose rule it is.
    pub tier: Tier,
    /// The Arm ARM's (DDI 0487) rule, or the kernel's file and function.
    pub sources: &'static [&'static str],
    /// What it cannot be judged without.
    pub needs: &'static [Need],
    /// The kernels that it holds for.
    pub releases: Releases,
    /// Faults of kernels that it finds, which upstream has mended.
    pub known: &'static [Known],
    /// Tests on made-up tables, in this crate, in `stage1` or in `recorder`.
    pub synthetic: &'static [&'static str],
    /// Tests on a running guest, in `tests/`.
    pub live: &'static [&'static str],
}

/// Whose rule it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The architecture's: an error on any kernel.
    Architecture,
    /// Linux's: an error on a kernel that behaves as the releases do on which the rule was tried.
    Linux,
    /// No rule: worth knowing.
    Information,
}

/// What a rule cannot be judged without, beside the tables and the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each has its text
pub enum Need {
    Vmas,
    VmFlags,
    Records,
    Expectations,
    Processes,
    /// The kernel's own `struct page` of what is mapped.
    Folios,
    /// The kernel's own counters and lists of all memory.
    Counted,
    /// What the kernel's own files say, read by the agent.
    Getters,
    Layout,
    /// The guest's console, and no table.
    Console,
    /// Every store to a table and all TLB maintenance, from a recorded guest.
    Recording,
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
pub struct Known {
    /// Words that the finding's sentence has.
    pub mark: &'static str,
    /// The commit's subject.
    pub commit: &'static str,
    /// The releases that have it: those of stable series, and last the first of mainline.
    pub mended: &'static [Release],
}

pub(super) const V6_12: Release = Release::new(6, 12, 0);

pub(super) const V6_12_117: Release = Release::new(6, 12, 117);

pub(super) const V6_18_15: Release = Release::new(6, 18, 15);

pub(super) const V7_2_12: Release = Release::new(7, 2, 12);

pub(super) const V7_3_4: Release = Release::new(7, 3, 4);

impl Releases {
    /// Every release: what the architecture says hangs on no kernel.
    pub(super) const ANY: Releases = Releases {
        since: None,
        until: None,
        tried: &[V6_12_117, V6_18_15, V7_2_12, V7_3_4],
    };
    /// From the layout of the software bits on; tried on the pinned kernel and on Debian's.
    pub(super) const WIDELY: Releases = Releases {
        since: Some(Release::FIRST_WITH_THIS_LAYOUT),
        until: None,
        tried: &[V6_12_117, V6_18_15, V7_2_12, V7_3_4],
    };
    /// The same, tried on kernels with our patches alone: what it needs no stock kernel has.
    pub(super) const PATCHED: Releases = Releases {
        since: Some(Release::FIRST_WITH_THIS_LAYOUT),
        until: None,
        tried: &[V6_12_117, V7_3_4],
    };
}

impl Releases {
    pub(super) fn text(self) -> String {
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
    pub(super) fn newer(self, release: Release) -> Option<Release> {
        let newest = self.tried.iter().copied().max()?;
        (release > newest && !release.same_series(newest)).then_some(newest)
    }
}

impl Known {
    /// Whether this kernel lacks the commit.
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
    /// What is to be said of a finding by this rule on this kernel beside what was found: the commit that mends it, and
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
                self.id
            )
        });
        known.chain(newer).collect()
    }
}

pub(super) fn list<T: ToString>(items: impl IntoIterator<Item = T>, last: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., end] => format!("{}{last}{end}", rest.join(", ")),
    }
}

/// What the checks tell.
pub(crate) trait Told {
    /// A rule is broken in this group, at these addresses.
    fn broken(&mut self, rule: RuleId, group: &Group<'_>, at: Range<u64>, message: String);
    /// Something could not be judged.
    fn not_judged(&mut self, reason: String);
}

/// Takes a rule that the group at hand breaks.
pub(super) type Report<'a> = dyn FnMut(RuleId, String) + 'a;
