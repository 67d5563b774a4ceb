// SPDX-License-Identifier: GPL-2.0-only
//! F1: a fault lets the access get on. Its check is [`crate::stops::FaultStops`]'s.

use crate::check::Check;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier, V6_12_117};

/// The rule.
pub static RULE: Rule = Rule {
    name: "F1",
    title: "a fault lets the access get on",
    asserts: "No process faults for ever on one address. Only where its operation is past its deadline: its CPU has to \
              show one and the same address as that of its last fault at every stop, while the kernel's own count of \
              its faults goes up and up.",
    tier: Tier::Linux,
    sources: &["mm/memory.c, handle_pte_fault(); Arm ARM D24.2, FAR_EL1, ESR_EL1"],
    needs: &[Need::Deadline.all()],
    releases: Releases {
        since: None,
        until: None,
        tried: &[V6_12_117],
    },
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Elsewhere("the recorded stops of a guest, `stops::FaultStops`")],
    synthetic: &["f1_one_address_at_every_stop"],
    live: &["test_broken_entry_spins"],
};
