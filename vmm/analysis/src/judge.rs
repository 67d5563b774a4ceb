// SPDX-License-Identifier: GPL-2.0-only
//! Judges one instant. No other module asks the rules about a process.

use linux::order::OrderRecord;
use snapshot::{Cpu, Snapshot};
use stage1::{Half, Regime};
use verdict::basis::Context;
use verdict::rules::without::without;
use verdict::rules::Need;
use verdict::{judge_sharing, Basis, KernelVerdict, NotJudged, ProcessVerdict};

use evidence::{
    came, elsewhere::no_linux, folios, kernel_half, Evidence, ProcessEvidence, Subject,
};

use crate::counting::{count, later};
use crate::judge_kernel_half;
use crate::process::{judge_procfs, judge_tables};

/// Returns the note on the rules that need more than tables and VMAs.
fn need_more() -> String {
    let said = without(&[Need::Expectations]).sentence();
    format!("{said}: they need what the process did, and no agent of the guest tells")
}

/// Verdicts on one instant. Errors in them are not confirmed yet.
#[derive(Debug, Default)]
pub struct Judged {
    /// One verdict per judged process. A process at a checkpoint comes first.
    pub processes: Vec<ProcessVerdict>,
    /// The verdict on the kernel half, or why it was not judged; `None` if it was not asked for.
    pub kernel: Option<Result<KernelVerdict, String>>,
    /// Physical address of the kernel half's root table; 0 if no CPU has it.
    pub kernel_root: u64,
    /// The order records of the process at a checkpoint, oldest first.
    pub orders: Vec<OrderRecord>,
    /// One sentence for each process that could not be judged.
    pub lost: Vec<String>,
    /// True if another instant may show more, because a structure was being changed.
    pub later: bool,
    /// True if L9 left counts open that exceed their entries, because a structure was being changed. Such counts are not
    /// reported, even if they are wrong.
    pub uncounted: bool,
}

impl Judged {
    /// Returns the basis of the verdicts.
    #[must_use]
    pub fn basis(&self, known: Context) -> Basis {
        let kernel = self.kernel.as_ref();
        let known = Context {
            no_kernel_half: kernel.and_then(|it| it.as_ref().err().cloned()),
            lacks: self.lost.clone(),
            ..known
        };
        let kernel = kernel.and_then(|it| it.as_ref().ok());
        Basis::new(known, &self.processes, kernel)
    }
}

/// Judges each process, the pages that processes share, and the kernel half.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Judged {
    let Evidence {
        snapshot, gathered, ..
    } = evidence;
    let all = evidence.processes.as_slice();
    let memory = &snapshot.memory;
    let upper = kernel_half(&snapshot.cpus);
    let folios = folios(memory, upper.as_ref(), gathered);
    let each = all
        .iter()
        .map(|one| judge_tables(one, memory, gathered, &folios));
    let mut verdicts: Vec<ProcessVerdict> = each.collect();
    let regimes: Vec<Regime> = all.iter().map(|one| one.regime).collect();
    judge_sharing(memory, &regimes, &mut verdicts);
    // Without a checkpoint any process may be inside fork().
    let forks = evidence.waiting.is_none();
    let uncounted = count(snapshot, forks, &regimes, gathered, &folios, &mut verdicts);
    for (one, verdict) in all.iter().zip(&mut verdicts) {
        judge_procfs(memory, one, (gathered, &folios), verdict);
        if !one.held && !verdict.vmas.is_empty() {
            verdict.notes.push(need_more());
        }
    }
    let tables: Vec<u64> = regimes.iter().map(|regime| regime.root.0).collect();
    let passing = |one: &ProcessEvidence<'_>| one.vmas.as_ref().is_err_and(|(_, later)| *later);
    let mut judged = Judged {
        later: later(gathered, &tables) || all.iter().any(passing),
        uncounted,
        kernel: evidence.kernel_half.then(|| kernel(snapshot)),
        kernel_root: upper.map_or(0, |upper| upper.root.0),
        lost: evidence.unproved.clone(),
        ..Judged::default()
    };
    if let (Some(waiting), Some(verdict)) = (&evidence.waiting, verdicts.first_mut()) {
        verdict.notes.extend(cpus_that_never_came(snapshot));
        judged.orders = orders(waiting, verdict);
    }
    for (one, verdict) in all.iter().zip(verdicts) {
        match one.may_be_empty && shows_nothing(&verdict) {
            false => judged.processes.push(verdict),
            true => judged.lost.push(format!(
                "process {} {}: its CPU was in the kernel and had an empty table in TTBR0_EL1",
                one.process.pid, one.process.name
            )),
        }
    }
    judged
}

/// Judges the kernel half, or returns why it was not judged.
fn kernel(snapshot: &Snapshot) -> Result<KernelVerdict, String> {
    match judge_kernel_half(snapshot) {
        // While the kernel changes its own first table it has an empty one in TTBR1_EL1.
        Ok(verdict) if verdict.mapped.is_empty() && verdict.findings.is_empty() => Err("the kernel half was not judged: TTBR1_EL1 led to an empty table, as it does for a moment while the kernel sets up its own; look again".into()),
        Ok(verdict) => Ok(verdict),
        Err(error) => Err(why_no_kernel_half(snapshot).unwrap_or(error.to_string())),
    }
}

/// Returns the reason that the CPUs' registers give: none, if one of them has an upper half, in the trampoline or not.
fn why_no_kernel_half(snapshot: &Snapshot) -> Option<String> {
    if let Some(why) = no_linux(&snapshot.cpus) {
        return Some(format!("the kernel half was not judged: {why}"));
    }
    let why = |cpu: &Cpu| Regime::new(&cpu.system, Half::Upper).err();
    let all: Option<Vec<_>> = snapshot.cpus.iter().map(why).collect();
    let (cpu, why) = snapshot.cpus.iter().zip(all?).next()?;
    let index = cpu.index;
    Some(format!(
        "the kernel half was not judged: by CPU {index} {why}"
    ))
}

/// Returns whether the tables are empty. TTBR0_EL1 has an empty table while the kernel needs none.
fn shows_nothing(verdict: &ProcessVerdict) -> bool {
    let entries = &verdict.entries;
    entries.pages == 0
        && entries.blocks.values().all(|count| *count == 0)
        && verdict.findings.is_empty()
}

fn cpus_that_never_came(snapshot: &Snapshot) -> Option<String> {
    let (all, came) = (snapshot.cpus.len(), came(&snapshot.cpus));
    (came < all).then(|| {
        format!(
            "{} of {all} CPUs, from CPU {came} on, never came up: the kernel knows of fewer, and what it keeps of its CPUs was read of the others",
            all - came
        )
    })
}

/// Returns the process's order records, oldest first.
fn orders(subject: &Subject<'_>, verdict: &mut ProcessVerdict) -> Vec<OrderRecord> {
    match &subject.orders {
        Ok(all) => {
            let own = all.records.iter();
            let own = own.filter(|record| record.tgid == subject.process.pid);
            own.cloned().collect()
        }
        // A kernel without our patches keeps no records. Records that exist and cannot be read are a lack.
        Err(why) if subject.has_records => {
            verdict.not_judged.push(NotJudged {
                reason: why.clone(),
            });
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}
