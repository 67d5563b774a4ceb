//! Processes of one instant, judged together: the one way from a snapshot to verdicts on its processes.
//!
//! A look at a guest with our agent, a saved core, a guest in a QEMU of the user's own and one that hangs differ in how a
//! process is found and in what is known of it ([`One`]). What the rules then are asked is the same.

use snapshot::Snapshot;
use stage1::Regime;
use verdict::{judge_sharing, NotKnown, ProcessVerdict};

use crate::counting::{count, later};
use crate::cpus::kernel_half;
use crate::one::One;
use crate::pages::folios;
use crate::{getters, Gathered};

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
