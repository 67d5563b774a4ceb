//! What went by between two instants of a recorded guest, for a session's client.

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
    /// What is wrong: of each cause the first.
    pub findings: Vec<Finding>,
    /// How many findings there were in all.
    pub total: u64,
    /// What could not be judged since the guest was booted, a sentence each.
    pub not_judged: Vec<String>,
    /// TLB maintenance, in the order in which it came.
    pub tlbis: Vec<Tlbi>,
    /// What was done under each function of the kernel, by its name.
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
    /// Whether it leaves out what is not a last level's.
    pub last_level: bool,
    /// Whether it is for its own CPU alone.
    pub local: bool,
}

/// How much was done.
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

/// Whether what is done under a function is not done for whoever called it: an interrupt's entry, and the scheduler, whose
/// `__switch_to()` has a DSB wherever another thread may have the CPU (`cond_resched()`).
fn is_for_others(name: &str) -> bool {
    name == "el1_interrupt"
        || name.starts_with("el1h_64_irq")
        || name.starts_with("el1h_64_fiq")
        || name == "__schedule"
}

/// What was done under each function, called by whom it may; what an interrupt or the scheduler does meanwhile is theirs.
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
