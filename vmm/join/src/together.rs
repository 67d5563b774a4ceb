//! Processes of one instant, judged together: the one way from a snapshot to verdicts on its processes.
//!
//! A look at a guest with our agent, a saved core, a guest in a QEMU of the user's own and one that hangs differ in how a
//! process is found and in what is known of it ([`One`]). What the rules then are asked is the same.

use linux::order::OrderRecords;
use linux::release::Release;
use linux::vma::Vma;
use serde_json::Value;
use snapshot::{Memory, Snapshot};
use stage1::Regime;
use verdict::{
    judge, judge_sharing, Expectation, Lack, NotKnown, Process, ProcessInput, ProcessVerdict,
    RuleId,
};

use crate::gathered::{count, later, structures};
use crate::pages::{folios, Read};
use crate::{getters, kernel_half, Gathered};

/// One process that is to be judged.
#[derive(Debug)]
pub(crate) struct One<'a> {
    pub process: Process,
    pub regime: Regime,
    /// Its VMAs; or why they are not known, and whether another instant may show them. Linux's rules on user memory begin
    /// with them.
    pub vmas: Result<Vec<Vma>, (String, bool)>,
    pub orders: Option<OrderRecords>,
    pub expectations: &'a [Expectation],
    pub release: Option<Release>,
    pub contpte: Option<bool>,
    /// What the kernel's own files say of it.
    pub getters: Option<&'a Value>,
}

/// What was judged.
#[derive(Debug)]
pub(crate) struct Together {
    /// In the order of the processes.
    pub verdicts: Vec<ProcessVerdict>,
    /// Whether another instant may show more: something was just being changed.
    pub later: bool,
    /// Whether counts were left open that only this instant leaves so.
    pub uncounted: bool,
}

impl One<'_> {
    pub(crate) fn input<'i>(
        &'i self,
        gathered: &'i Result<Gathered, NotKnown>,
        folios: &'i Result<Read<'_, Memory>, NotKnown>,
    ) -> ProcessInput<'i> {
        let vmas = self.vmas.as_deref().unwrap_or_default();
        ProcessInput {
            process: &self.process,
            regime: &self.regime,
            vmas,
            orders: self.orders.as_ref(),
            expectations: self.expectations,
            release: self.release.filter(|_| self.vmas.is_ok()),
            contpte: self.contpte,
            structures: structures(gathered, folios, &self.regime),
        }
    }

    fn judge(
        &self,
        memory: &Memory,
        gathered: &Result<Gathered, NotKnown>,
        folios: &Result<Read<'_, Memory>, NotKnown>,
    ) -> ProcessVerdict {
        let mut verdict = judge(memory, &self.input(gathered, folios));
        // What is counted of all memory needs no VMAs.
        verdict.set_release(self.release);
        if let Err((why, _)) = &self.vmas {
            use RuleId::{L1, L10, L2, L3, L4, L5, L6, L7, L8, L9};
            verdict.notes.clear();
            let why =
                format!("L1 to L10 were not judged of processes whose VMAs are not known: {why}");
            let rules = [L1, L2, L3, L4, L5, L6, L7, L8, L9, L10];
            verdict.lacks.push(Lack::new(rules, why));
        }
        verdict
    }
}

/// Judges processes of one instant, and what they have in common. `forks`: whether any process may be in the middle of
/// fork(), as where none waits for us.
pub(crate) fn judge_together(
    snapshot: &Snapshot,
    gathered: &Result<Gathered, NotKnown>,
    forks: bool,
    all: &[One<'_>],
) -> Together {
    let memory = &snapshot.memory;
    let upper = kernel_half(&snapshot.cpus);
    let folios = folios(memory, upper.as_ref(), gathered);
    let each = all.iter().map(|one| one.judge(memory, gathered, &folios));
    let mut verdicts: Vec<ProcessVerdict> = each.collect();
    let regimes: Vec<Regime> = all.iter().map(|one| one.regime).collect();
    judge_sharing(memory, &regimes, &mut verdicts);
    let uncounted = count(snapshot, forks, &regimes, gathered, &folios, &mut verdicts);
    for (one, verdict) in all.iter().zip(&mut verdicts) {
        getters::judge(memory, one, (gathered, &folios), verdict);
    }
    let tables: Vec<u64> = regimes.iter().map(|regime| regime.root.0).collect();
    let passing = |one: &One<'_>| one.vmas.as_ref().is_err_and(|(_, later)| *later);
    Together {
        verdicts,
        later: later(gathered, &tables) || all.iter().any(passing),
        uncounted,
    }
}
