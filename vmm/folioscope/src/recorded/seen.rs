//! What went by between two instants of a recorded guest, for a session's client.

use std::collections::BTreeMap;

use recorder::{casemate, Done, Judge, Scope, Stored};
use schemars::JsonSchema;
use serde::Serialize;
use verdict::Hex;

use super::{End, Names};

/// The answer of `recorded`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Sequences {
    /// What is wrong: of each cause the first few.
    pub findings: Vec<Wrong>,
    /// How many findings there were in all.
    pub total: u64,
    /// What could not be judged since the guest was booted, a sentence each.
    pub not_judged: Vec<String>,
    /// TLB maintenance, in the order in which it came.
    pub tlbis: Vec<Tlbi>,
    /// What was done under each function of the kernel, by its name.
    pub calls: BTreeMap<String, Calls>,
}

/// A sequence that breaks a rule.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Wrong {
    /// S1 to S6.
    pub rule: String,
    /// What was missing.
    pub sentence: String,
    /// Where the Arm ARM says so.
    pub reference: String,
    /// The first VA that the descriptor maps.
    pub va: u64,
    /// Its level.
    pub level: i8,
    /// The word that a TLB may still hold.
    pub old: Hex,
    /// The word that was written.
    pub new: Hex,
    /// How often, at this place in the code.
    pub count: u64,
    /// The process, by its pid and where it is known its name.
    pub process: Option<String>,
    /// The store that made it so.
    pub made: Store,
    /// The store that took the old word away.
    pub broken: Option<Store>,
    /// The TLBI that came nearest.
    pub tlbi: Option<Store>,
}

/// An instruction that was part of it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Store {
    /// The CPU.
    pub cpu: u16,
    /// Its address, by function where that is known.
    pub place: String,
    /// Who called, the nearest first.
    pub callers: Vec<String>,
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
        let store = |by: Stored| Store {
            cpu: by.cpu,
            place: names.of_pc(by.pc),
            callers: names.callers(judge, &by),
        };
        let findings = judge.findings();
        let wrong = findings.kept().iter().map(|finding| Wrong {
            rule: finding.rule.id().into(),
            sentence: finding.sentence.clone(),
            reference: finding.rule.reference().into(),
            va: finding.va,
            level: finding.level.number(),
            old: Hex(finding.old),
            new: Hex(finding.new),
            count: findings.count(finding),
            process: names.process(&finding.made, finding.root),
            made: store(finding.made),
            broken: finding.broken.map(store),
            tlbi: finding.tlbi.map(store),
        });
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
            findings: wrong.collect(),
            total: findings.total,
            not_judged,
            tlbis: tlbis.collect(),
            calls: by_function(judge, names),
        }
    }
}

/// What was done under each function, called by whom it may.
fn by_function(judge: &Judge, names: &Names<'_>) -> BTreeMap<String, Calls> {
    let mut all: BTreeMap<String, Done> = BTreeMap::new();
    for (frames, done) in judge.done() {
        let of = |back: &u64| names.function(back.wrapping_sub(4)).map(|(name, _)| name);
        let mut called: Vec<&str> = frames.iter().filter_map(of).collect();
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
