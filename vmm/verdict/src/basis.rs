// SPDX-License-Identifier: GPL-2.0-only
//! The positive statements that a verdict stands on.
//!
//! A status of 0 asserts something only if it is known what was looked at: which address spaces the guest has and which
//! of them were judged, which rules were in force, and which kernel it is. Here, and nowhere else, is decided what of
//! that may be missing ([`Basis::new`]): what was asked for and could not be judged is a *lack*, and makes a verdict
//! *not judged*. A rule that was not asked for is listed with its reason, and is no lack.

use std::borrow::Cow;
use std::collections::BTreeSet;

use linux::release::Release;
use schemars::JsonSchema;
use serde::Serialize;
use untrusted::Text;

use crate::input::not_linux;
pub use crate::rules::names;
use crate::rules::without::without;
use crate::rules::{AffectedPart, Need, Rule, RuleId, Tier, RULES};
use crate::{Hex, KernelVerdict, Lack, NotJudged, ProcessVerdict};

/// The extent of a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Every address space of the guest, and the kernel half.
    #[default]
    Guest,
    /// The processes that were named, or that a workload made; the kernel half where it was looked at too.
    Processes,
    /// The kernel half alone.
    KernelHalf,
    /// The kernel's reports on its console.
    Console,
    /// A recording of stores and TLB maintenance.
    Recording,
}

/// One address space of a guest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct AddressSpace {
    /// The process's id.
    pub pid: u32,
    /// The process's name.
    pub name: Text,
    /// The physical address of its first table.
    pub root: Hex,
}

/// Which kernel was judged, and how that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KernelKnown {
    /// `uname -r`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// By what the release is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recognised_by: Option<String>,
    /// True if Linux's own rules were applied. They are from 6.11 on.
    pub linux_rules: bool,
}

/// The reason that a rule was not in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// Its input is known to the driver of a workload or the holder of the guest, and was not asked for here.
    NotAsked,
    /// The kernel has nothing that the rule is about, or is older or newer than what it is about.
    NotThere,
    /// Its input could not be read.
    Absent,
}

/// A rule that was not in force, or not for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OutOfForce {
    /// The rule.
    pub rule: RuleId,
    /// The kind of reason.
    pub because: Because,
    /// The reason, in words.
    pub reason: String,
}

/// The basis of a verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Basis {
    /// The request.
    pub scope: Scope,
    /// The kernel.
    pub kernel: KernelKnown,
    /// How many address spaces of user processes the guest is known to have; absent where its tasks could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<u64>,
    /// Those of them that were not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_judged: Vec<AddressSpace>,
    /// The address spaces that were judged.
    pub judged: Vec<AddressSpace>,
    /// True if the kernel half was judged.
    pub kernel_half: bool,
    /// The rules that were in force.
    pub in_force: BTreeSet<RuleId>,
    /// The rules that were not, and why.
    pub not_in_force: Vec<OutOfForce>,
    /// Parts of the request that could not be judged, a sentence each: with any, the verdict is not judged.
    pub lacks: Vec<String>,
}

/// A kind of input that is not read from tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// It was there.
    Given,
    /// It was not asked for.
    #[default]
    NotAsked,
    /// It was asked for and could not be read; why.
    Absent(Cow<'static, str>),
    /// The kernel was built without it, and what rules say of it is not there to be judged; why.
    NotBuilt(Cow<'static, str>),
}

/// Facts known beside the verdicts themselves.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The request.
    pub scope: Scope,
    /// `uname -r`; `None` where it is not known.
    pub release: Option<String>,
    /// By what it is known.
    pub recognised_by: Option<String>,
    /// All address spaces of the guest, or the reason that they are not known. `None` if they were not asked for.
    pub spaces: Option<Result<Vec<AddressSpace>, String>>,
    /// The reason that the kernel half was not judged, if it was asked for.
    pub no_kernel_half: Option<String>,
    /// Expectations of the step, by the driver of the workload.
    pub expectations: Input,
    /// The order records of a patched kernel.
    pub records: Input,
    /// Contents of the kernel's own files, read by an agent.
    pub getters: Input,
    /// The kernel's reports of itself: its console, or its log in memory.
    pub console: Input,
    /// Lacks found elsewhere, a sentence each.
    pub lacks: Vec<String>,
}

impl Basis {
    /// Brings together what is known and what was judged.
    #[must_use]
    pub fn new(
        known: Context,
        processes: &[ProcessVerdict],
        kernel: Option<&KernelVerdict>,
    ) -> Basis {
        let judged: BTreeSet<AddressSpace> = processes.iter().map(AddressSpace::of).collect();
        let release = known.release.as_deref().and_then(Release::parse);
        let mut basis = Basis {
            scope: known.scope,
            kernel: KernelKnown {
                linux_rules: release.is_some_and(Release::has_this_layout),
                recognised_by: known
                    .recognised_by
                    .clone()
                    .filter(|_| known.release.is_some()),
                release: known.release.clone(),
            },
            kernel_half: kernel.is_some(),
            ..Basis::default()
        };
        basis.spaces(&known, &judged);
        basis.judged = judged.into_iter().collect();
        let mut missing = lacks_of(processes, kernel);
        // Of two reasons of one rule the one that matters.
        missing.sort_by_key(|lack| lack.not_built);
        for rule in RULES.iter().filter(|rule| rule.tier != Tier::Information) {
            let lack = missing.iter().find(|lack| lack.rules.contains(&rule.id()));
            match (basis.why_not(rule, &known, release), lack) {
                (Some((because, reason)), _) => basis.out(rule.id(), because, reason),
                (None, Some(lack)) => {
                    let because = match lack.not_built {
                        true => Because::NotThere,
                        false => Because::Absent,
                    };
                    basis.out(rule.id(), because, lack.reason.clone());
                }
                (None, None) => drop(basis.in_force.insert(rule.id())),
            }
        }
        basis.lacks = basis.find_lacks(&known, &missing, release);
        basis
    }

    /// Returns the basis of a scan of the kernel's reports.
    #[must_use]
    pub fn of_console() -> Basis {
        Basis::only(Scope::Console, &[Need::Console])
    }

    /// Returns the basis of a driven guest beside its memory: its operations come to an end, and its console is read.
    ///
    /// `console` is whether that has all that the kernel reports.
    #[must_use]
    pub fn of_driven(console: Input) -> Basis {
        let (because, why) = match console {
            Input::Given | Input::NotAsked => {
                return Basis::only(Scope::Console, &[Need::Deadline, Need::Console])
            }
            Input::Absent(why) => (Because::Absent, why),
            Input::NotBuilt(why) => (Because::NotThere, why),
        };
        let mut basis = Basis::only(Scope::Console, &[Need::Deadline]);
        for rule in RULES.iter().filter(|rule| rule.needs(Need::Console)) {
            basis.out(rule.id(), because, why.clone());
        }
        basis
    }

    /// Returns the basis of the verdict on a recording.
    #[must_use]
    pub fn of_recording() -> Basis {
        Basis::only(Scope::Recording, &[Need::Recording])
    }

    /// Returns the basis of the rule on MMU notifiers. `mirrored` is true if the kernel has a secondary MMU for tests.
    #[must_use]
    pub fn of_notifiers(mirrored: bool) -> Basis {
        if mirrored {
            return Basis::only(Scope::Console, &[Need::Mirror]);
        }
        let mut basis = Basis::only(Scope::Console, &[]);
        for rule in RULES.iter().filter(|rule| rule.needs(Need::Mirror)) {
            let why = "this kernel has no secondary MMU for tests (MMU_MIRROR_TEST of the series)";
            basis.out(rule.id(), Because::NotThere, why);
        }
        basis
    }

    /// That the rules that need one of these are in force, and no others.
    fn only(scope: Scope, needs: &[Need]) -> Basis {
        let rules = RULES.iter();
        let rules = rules.filter(|rule| needs.iter().any(|need| rule.needs(*need)));
        Basis {
            scope,
            in_force: rules.map(|rule| rule.id()).collect(),
            ..Basis::default()
        }
    }

    /// Adds what another step of the same guest stands on.
    pub fn add(&mut self, other: &Basis) {
        if matches!(other.scope, Scope::Console | Scope::Recording) {
            return self.add_force(other);
        }
        self.scope = other.scope;
        if self.kernel.release.is_none() {
            self.kernel = other.kernel.clone();
        }
        self.known = self.known.max(other.known);
        let mut judged: BTreeSet<AddressSpace> =
            std::mem::take(&mut self.judged).into_iter().collect();
        judged.extend(other.judged.iter().cloned());
        self.judged = judged.into_iter().collect();
        // Over time there may have been more than at any instant.
        self.known = self.known.map(|known| known.max(self.judged.len() as u64));
        self.kernel_half |= other.kernel_half;
        self.add_force(other);
    }

    /// Adds the rules that were in force there, and those that were not.
    fn add_force(&mut self, other: &Basis) {
        self.in_force.extend(&other.in_force);
        for it in &other.not_in_force {
            match self.not_in_force.iter_mut().find(|own| own.rule == it.rule) {
                // What was asked for in one step and not there says more than that another did not ask.
                Some(own) if own.because < it.because => *own = it.clone(),
                Some(_) => (),
                None => self.not_in_force.push(it.clone()),
            }
        }
        let force = &self.in_force;
        self.not_in_force.retain(|it| !force.contains(&it.rule));
        self.not_in_force.sort_by_key(|it| it.rule);
    }

    /// Returns whether anything was judged.
    #[must_use]
    pub fn is_any(&self) -> bool {
        match self.scope {
            Scope::Guest | Scope::Processes => !self.judged.is_empty(),
            Scope::KernelHalf => self.kernel_half,
            Scope::Console | Scope::Recording => true,
        }
    }

    fn spaces(&mut self, known: &Context, judged: &BTreeSet<AddressSpace>) {
        let Some(Ok(all)) = &known.spaces else { return };
        // Two processes may share one, as after vfork().
        let roots: BTreeSet<Hex> = all.iter().map(|space| space.root).collect();
        let seen: BTreeSet<Hex> = judged.iter().map(|space| space.root).collect();
        self.known = Some(roots.union(&seen).count() as u64);
        if known.scope == Scope::Guest {
            let others = all.iter().filter(|space| !seen.contains(&space.root));
            self.not_judged = others.cloned().collect();
        }
    }

    fn out(&mut self, rule: RuleId, because: Because, reason: impl Into<String>) {
        self.not_in_force.push(OutOfForce {
            rule,
            because,
            reason: reason.into(),
        });
    }

    /// Returns the reason that a rule was not in force, by the facts that all verdicts share.
    fn why_not(
        &self,
        rule: &Rule,
        known: &Context,
        release: Option<Release>,
    ) -> Option<(Because, String)> {
        let needs = |need| rule.needs(need);
        let hangs_on = |need| rule.extent(need) == Some(AffectedPart::All);
        let not_asked = |why: &str| Some((Because::NotAsked, why.to_owned()));
        if needs(Need::Recording) {
            return match known.scope {
                Scope::Recording => None,
                _ => not_asked("the guest was not recorded (--record)"),
            };
        }
        if needs(Need::Console) {
            return match &known.console {
                Input::Given => None,
                Input::NotAsked => not_asked("what the kernel reports was not asked for here"),
                Input::Absent(why) => Some((Because::Absent, why.to_string())),
                Input::NotBuilt(why) => Some((Because::NotThere, why.to_string())),
            };
        }
        if needs(Need::Deadline) {
            return not_asked("it is asked where an operation of a workload is past its deadline");
        }
        if needs(Need::Mirror) {
            return not_asked("it is asked in the crossing (folioscope cross)");
        }
        let by_step = hangs_on(Need::Expectations) || hangs_on(Need::Contents);
        if by_step && known.expectations == Input::NotAsked {
            return not_asked("it needs what the process did, and nobody states that here");
        }
        match (&known.records, needs(Need::Records)) {
            (Input::NotAsked, true) => {
                let why = "this kernel keeps no order records (Folioscope's patches)";
                return Some((Because::NotThere, why.into()));
            }
            (Input::Absent(why), true) => return Some((Because::Absent, why.to_string())),
            _ => (),
        }
        match (&known.getters, needs(Need::Getters)) {
            (Input::NotAsked, true) => {
                return not_asked(
                    "it needs what the kernel's own files say, which an agent in the guest reads",
                )
            }
            (Input::Absent(why), true) => return Some((Because::Absent, why.to_string())),
            _ => (),
        }
        let of_kernel = needs(Need::Layout);
        if of_kernel && !self.kernel_half {
            return match &known.no_kernel_half {
                Some(why) => Some((Because::Absent, why.clone())),
                None => not_asked("the kernel half was not asked for"),
            };
        }
        let of_users = rule.tier == Tier::Linux && !of_kernel;
        if of_users && self.judged.is_empty() {
            return match known.scope {
                Scope::KernelHalf => not_asked("no process was asked for"),
                _ => Some((Because::Absent, "no address space was judged".into())),
            };
        }
        if rule.tier == Tier::Linux && !self.kernel.linux_rules {
            return Some((Because::Absent, not_linux(release)));
        }
        if rule.tier == Tier::Architecture && self.judged.is_empty() && !self.kernel_half {
            return Some((Because::Absent, "no table was judged".into()));
        }
        let since = rule.releases.since.zip(release);
        let until = rule.releases.until.zip(release);
        if let Some((since, _)) = since.filter(|(since, release)| release < since) {
            return Some((
                Because::NotThere,
                format!("it is about kernels since {since}"),
            ));
        }
        if let Some((until, _)) = until.filter(|(until, release)| release >= until) {
            return Some((
                Because::NotThere,
                format!("it is about kernels before {until}"),
            ));
        }
        None
    }

    /// Finds the parts of the request that could not be judged: those of the guest first, then rule by rule.
    fn find_lacks(
        &self,
        known: &Context,
        missing: &[Lack],
        release: Option<Release>,
    ) -> Vec<String> {
        let mut lacks = known.lacks.clone();
        if let Some(why) = &known.no_kernel_half {
            lacks.push(why.clone());
        }
        let tables = !matches!(self.scope, Scope::Console | Scope::Recording);
        let any = self.kernel_half || !self.judged.is_empty();
        // Of a guest of which nothing could be read the reason above says enough.
        if tables && !self.kernel.linux_rules && (any || lacks.is_empty()) {
            lacks.push(not_linux(release));
        }
        if let Some(Err(why)) = known.spaces.as_ref().filter(|_| self.scope == Scope::Guest) {
            lacks.push(format!(
                "which processes the guest has is not known, so not all were judged: {why}"
            ));
        }
        if let [first, rest @ ..] = self.not_judged.as_slice() {
            let more = match rest.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let (pid, name) = (first.pid, &first.name);
            lacks.push(format!(
                "process {pid} {name}{more} of {} address spaces were not judged: their tables were not read at this instant",
                self.known.unwrap_or_default()
            ));
        }
        if !self.is_any() && (lacks.is_empty() || self.scope != Scope::KernelHalf) {
            lacks.push(match (self.scope, self.known) {
                (Scope::KernelHalf, _) => "the kernel half was not judged".to_owned(),
                (_, Some(0)) => {
                    "no address space was judged: the guest has no process with memory of its own"
                        .into()
                }
                _ => "no address space was judged".into(),
            });
        }
        if self.kernel.linux_rules {
            let missing = missing.iter().filter(|lack| !lack.not_built);
            lacks.extend(missing.map(|lack| lack.reason.clone()));
        }
        if let Input::Absent(why) = &known.console {
            lacks.push(format!("{}: {why}", without(&[Need::Console]).sentence()));
        }
        let mut told = BTreeSet::new();
        lacks.retain(|lack| told.insert(lack.clone()));
        lacks
    }

    /// The lacks as a report lists them.
    pub fn reasons(&self) -> impl Iterator<Item = NotJudged> + '_ {
        let all = self.lacks.iter();
        all.map(|reason| NotJudged {
            reason: reason.clone(),
        })
    }
}

/// Returns the lacks of verdicts, each reason once.
fn lacks_of(processes: &[ProcessVerdict], kernel: Option<&KernelVerdict>) -> Vec<Lack> {
    let of_processes = processes.iter().flat_map(|process| &process.lacks);
    let of_kernel = kernel.into_iter().flat_map(|kernel| &kernel.lacks);
    let mut told = BTreeSet::new();
    let all = of_processes.chain(of_kernel);
    all.filter(|lack| told.insert(*lack)).cloned().collect()
}

impl AddressSpace {
    /// The address space of a verdict.
    fn of(verdict: &ProcessVerdict) -> Self {
        Self {
            pid: verdict.process.pid,
            name: verdict.process.name.clone(),
            root: verdict.root,
        }
    }
}
