// SPDX-License-Identifier: GPL-2.0-only
//! S1 to S7: rules on sequences of stores and TLB maintenance. Their checks are [`recorder::Judge`]'s.

use recorder::Rule as Checked;

use super::rule::RuleId;
use crate::check::Check;
use crate::rules::rule::{
    AffectedPart, Identity, Need, OnBreak, Releases, Rule, Tier, V6_12_117, V6_18_15, V7_3_4,
};

pub(super) static RULES: &[&Rule] = &[&S1, &S2, &S3, &S4, &S5, &S6, &S7];

const fn rule(
    name: &'static str,
    checked: Checked,
    asserts: &'static str,
    sources: &'static [&'static str],
    synthetic: &'static [&'static str],
    live: &'static [&'static str],
) -> Rule {
    Rule {
        name,
        title: checked.title(),
        asserts,
        tier: Tier::Architecture,
        sources,
        needs: &[(Need::Recording, AffectedPart::All)],
        releases: Releases {
            since: None,
            until: None,
            tried: &[V6_12_117, V6_18_15, V7_3_4],
        },
        known: &[],
        identity: Identity::Words,
        on_break: OnBreak::GoOn,
        checks: &[Check::Elsewhere("`vmm/recorder`")],
        synthetic,
        live,
    }
}

pub(crate) static S1: Rule = rule(
    "S1",
    Checked::S1,
    "Where a change of a live descriptor needs break-before-make, an invalid word is written between the old valid one and the new.",
    &[Checked::S1.reference()],
    &["wrong"],
    LIVE,
);

pub(crate) static S2: Rule = rule(
    "S2",
    Checked::S2,
    "Between the two, a TLBI covers every CPU that may hold the old word, by its ASID and VA. A page that one thread of a \
     process faults in where another's TLBI is still to come breaks neither this rule nor S3: Linux allows it, and keeps the \
     old page until that TLBI, which S7 asks for all the same. A note of the recording has their number.",
    &[Checked::S2.reference()],
    &["wrong"],
    LIVE,
);

pub(crate) static S3: Rule = rule(
    "S3",
    Checked::S3,
    "A DSB is between the store that takes the old word away and that TLBI, and one between the TLBI and the new word, each of \
     a domain and type that do.",
    &[Checked::S3.reference()],
    &["wrong"],
    LIVE,
);

pub(crate) static S4: Rule = rule(
    "S4",
    Checked::S4,
    "No member of a contiguous group is written, while others are valid, that does not go with these: by the bit or by its \
     output address.",
    &[Checked::S4.reference()],
    &["groups"],
    LIVE,
);

pub(crate) static S5: Rule = rule(
    "S5",
    Checked::S5,
    "A page that a TLB may know as a table is not written to or mapped as a page, and none that it may know as a page becomes a \
     table, or a page of other memory while its old address space goes on. Lower half.",
    &[Checked::S5.reference()],
    &["pages_that_are_used_too_soon", "a_page_that_is_given_away"],
    LITMUS,
);

pub(crate) static S6: Rule = rule(
    "S6",
    Checked::S6,
    "Level hint, last-level form and range of that TLBI do not leave out what changed.",
    &[Checked::S6.reference()],
    &["wrong"],
    LITMUS,
);

pub(crate) static S7: Rule = Rule {
    tier: Tier::Linux,
    ..rule(
        "S7",
        Checked::S7,
        "When a thread goes back to EL0, no CPU may hold a descriptor of its address space that it has taken away by itself and \
         that is invalid still. Nor one from which it has taken a right by itself, as long as that is taken: to access, to write, to \
         execute, or to write without the PE noting it as dirty. Lower half; needs CONFIG_PID_IN_CONTEXTIDR.",
        &[Checked::S7.reference()],
        &["a_tlbi_that_never_comes"],
        LIVE,
    )
};

const LIVE: &[&str] = &["test_a_wrong_kernel", "test_each_case"];
const LITMUS: &[&str] = &["test_each_case"];

impl From<Checked> for RuleId {
    fn from(rule: Checked) -> Self {
        match rule {
            Checked::S1 => S1.id(),
            Checked::S2 => S2.id(),
            Checked::S3 => S3.id(),
            Checked::S4 => S4.id(),
            Checked::S5 => S5.id(),
            Checked::S6 => S6.id(),
            Checked::S7 => S7.id(),
        }
    }
}
