// SPDX-License-Identifier: GPL-2.0-only
//! Events between two instants of a recorded guest, for a session's client.

use std::collections::BTreeMap;

use recorder::{casemate, Done, Judge, Scope};
use schemars::JsonSchema;
use serde::Serialize;
use verdict::Finding;

use super::end::End;
use super::found;
use super::names::Names;

/// The answer of `recorded`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Sequences {
    /// The first finding of each cause.
    pub findings: Vec<Finding>,
    /// Number of all findings.
    pub total: u64,
    /// One sentence for each kind of event since boot that could not be judged.
    pub not_judged: Vec<String>,
    /// TLB maintenance, in order of time.
    pub tlbis: Vec<Tlbi>,
    /// Operations under each function of the kernel, by its name.
    pub calls: BTreeMap<String, Calls>,
}

/// A TLBI.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Tlbi {
    /// The CPU.
    pub cpu: u16,
    /// Its address, by function where that is known.
    pub place: String,
    /// The operation, as the assembler has it: `vale1is`.
    pub operation: String,
    /// The first VA; null for all.
    pub first: Option<u64>,
    /// The last one.
    pub last: Option<u64>,
    /// The ASID; null for all.
    pub asid: Option<u16>,
    /// The level of its hint; null where it has none.
    pub level: Option<i8>,
    /// True if it leaves out entries that are not of the last level.
    pub last_level: bool,
    /// True if it is for its own CPU alone.
    pub local: bool,
}

/// Numbers of operations.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct Calls {
    /// Stores to descriptors.
    pub stores: u64,
    /// TLBIs.
    pub tlbis: u64,
    /// DSBs.
    pub dsbs: u64,
}

impl Sequences {
    pub(super) fn new(
        judge: &Judge,
        end: &End,
        tlbis: &[(u16, u64, u32, u64)],
        names: &Names<'_>,
    ) -> Self {
        let tlbis = tlbis.iter().map(|(cpu, pc, opcode, operand)| {
            let cover = judge.cover(*cpu, *opcode, *operand);
            let vas = cover.and_then(|cover| cover.vas());
            Tlbi {
                cpu: *cpu,
                place: names.of_pc(*pc),
                operation: casemate::tlbi(*opcode),
                first: vas.map(|[first, _]| first),
                last: vas.map(|[_, last]| last),
                asid: cover.and_then(|cover| cover.asid()),
                level: cover.and_then(|cover| Some(cover.level()?.number())),
                last_level: cover.is_some_and(|cover| cover.last_level()),
                local: cover.is_some_and(|cover| cover.scope == Scope::Local),
            }
        });
        let mut not_judged = judge.not_judged().sentences();
        not_judged.extend(end.said.iter().cloned());
        Self {
            findings: found::findings(judge, names),
            total: judge.findings().total,
            not_judged,
            tlbis: tlbis.collect(),
            calls: by_function(judge, names),
        }
    }
}

/// Returns whether operations under a function are not for its caller: an interrupt's entry, and the scheduler, whose
/// `__switch_to()` has a DSB wherever another thread may get the CPU (`cond_resched()`).
fn is_for_others(name: &str) -> bool {
    name == "el1_interrupt"
        || name.starts_with("el1h_64_irq")
        || name.starts_with("el1h_64_fiq")
        || name == "__schedule"
}

/// Returns the operations under each function, with all its callees. Those of an interrupt or the scheduler meanwhile
/// are theirs.
pub(super) fn by_function(judge: &Judge, names: &Names<'_>) -> BTreeMap<String, Calls> {
    let mut all: BTreeMap<String, Done> = BTreeMap::new();
    for (frames, done) in judge.done() {
        let of = |back: &u64| names.function(back.wrapping_sub(4)).map(|(name, _)| name);
        let called = frames.iter().filter_map(of);
        let mut called: Vec<&str> = called.take_while(|name| !is_for_others(name)).collect();
        called.sort_unstable();
        called.dedup();
        for name in called {
            *all.entry(name.to_owned()).or_default() += done;
        }
    }
    let calls = |(name, done): (String, Done)| {
        let Done {
            stores,
            tlbis,
            dsbs,
        } = done;
        let calls = Calls {
            stores,
            tlbis,
            dsbs,
        };
        (name, calls)
    };
    all.into_iter().map(calls).collect()
}
