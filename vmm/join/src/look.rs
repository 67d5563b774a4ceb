//! Processes of one instant, judged.

use linux::order::OrderRecord;
use snapshot::{Memory, Process as Captured, Snapshot};
use stage1::{Half, Regime};
use verdict::{
    judge, judge_sharing, Expectation, KernelVerdict, NotJudged, NotKnown, Process, ProcessInput,
    ProcessVerdict, Step,
};

use crate::gathered::{count, later, structures};
use crate::pages::{folios, Read};
use crate::settle::{settle, Judged, Verdict};
use crate::unattended::process_of;
use crate::{
    came, getters, judge_kernel_half, kernel_half, parse_vmas, unattended, Capture, Error,
    Gathered, ReadAgain, Sight, Subject,
};

/// Of a snapshot that nobody has looked at more than once.
pub(crate) const ONE_LOOK: &str =
    "it was taken at one instant, at which an update that is under way may look like an error";

/// What was seen of a process at one instant.
#[derive(Debug)]
pub struct Look {
    /// The instant.
    pub capture: Capture,
    /// What the rules say of it.
    pub verdict: ProcessVerdict,
    /// The processes that were looked at beside it: what is exclusive here must not be mapped there.
    pub companions: Vec<ProcessVerdict>,
    /// The kernel half, where the capture holds it: what the rules say of it, or why nothing.
    pub kernel: Option<Result<KernelVerdict, String>>,
    /// The process's own order records, oldest first.
    pub orders: Vec<OrderRecord>,
    /// What the looks before this one came to with it.
    pub sight: Sight,
    /// Whether another instant may show more of the kernel's structures: they were just being changed.
    later: bool,
    /// See [`Judged::uncounted`].
    uncounted: bool,
    /// Where only tables that were written to were to be read: how many those were.
    pub read_again: Option<ReadAgain>,
}

impl Look {
    /// Judges the only process of a capture, and its companions.
    ///
    /// # Errors
    /// Where the process's tables are not proved to be its own.
    pub fn of(capture: Capture, expectations: &[Expectation]) -> Result<Self, Error> {
        let subject = Subject::find(&capture.snapshot, None)?;
        let gathered = Gathered::of(&capture.snapshot);
        let upper = kernel_half(&capture.snapshot.cpus);
        let folios = folios(&capture.snapshot.memory, upper.as_ref(), &gathered);
        let (verdict, orders) =
            judge_one(&capture.snapshot, None, expectations, &gathered, &folios)?;
        let (mut regimes, mut verdicts) = (vec![subject.regime], vec![verdict]);
        for companion in &capture.companions {
            let regime = Regime::new(&companion.cpu.system, Half::Lower)?;
            let process = Process {
                pid: companion.pid,
                name: companion.name.clone(),
            };
            let input = ProcessInput {
                process: &process,
                regime: &regime,
                vmas: &parse_vmas(&companion.maps)?,
                orders: None,
                expectations: &[],
                release: subject.release,
                contpte: subject.contpte,
                structures: structures(&gathered, &folios, &regime),
            };
            verdicts.push(judge(&capture.snapshot.memory, &input));
            regimes.push(regime);
        }
        judge_sharing(&capture.snapshot.memory, &regimes, &mut verdicts);
        let uncounted = count(
            &capture.snapshot,
            false,
            &regimes,
            &gathered,
            &folios,
            &mut verdicts,
        );
        getters::judge(
            &capture.snapshot.memory,
            &subject,
            &gathered,
            &folios,
            &mut verdicts[0],
        );
        let tables: Vec<u64> = regimes.iter().map(|regime| regime.root.0).collect();
        let later = later(&gathered, &tables);
        let verdict = verdicts.remove(0);
        let kernel = capture.extent.kernel;
        let kernel = kernel.then(|| judge_kernel_half(&capture.snapshot));
        Ok(Self {
            kernel: kernel.map(|kernel| kernel.map_err(|error| error.to_string())),
            capture,
            verdict,
            companions: verdicts,
            orders,
            sight: Sight::default(),
            later,
            uncounted,
            read_again: None,
        })
    }

    /// Looks until what is wrong is known to stay wrong; `look` makes one look after the other. Errors that are not
    /// known to stay are taken back, counted, and said to be not judged.
    ///
    /// # Errors
    /// As `look`.
    pub fn settled<E>(mut look: impl FnMut() -> Result<Self, E>) -> Result<Self, E> {
        let (mut last, settled) = settle(true, std::thread::sleep, |_| look())?;
        let sight = Sight::new(&settled, true);
        sight.keep(&mut last.capture.snapshot.notes);
        let root = last.kernel_root();
        for verdict in std::iter::once(&mut last.verdict).chain(&mut last.companions) {
            sight.hold_process(verdict);
        }
        if let Some(Ok(kernel)) = &mut last.kernel {
            sight.hold_kernel(kernel, root);
        }
        let shown = last.verdicts().iter().map(|it| it.owner().1).collect();
        let gone = sight.of_others(&shown).map(|open| NotJudged {
            reason: open.reason.clone(),
        });
        last.verdict.not_judged.extend(gone);
        last.sight = sight;
        Ok(last)
    }

    /// All processes that were looked at.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessVerdict> {
        std::iter::once(&self.verdict).chain(&self.companions)
    }

    fn kernel_root(&self) -> u64 {
        kernel_half(&self.capture.snapshot.cpus).map_or(0, |upper| upper.root.0)
    }
}

impl Judged for Look {
    fn capture(&self) -> &Capture {
        &self.capture
    }

    fn later(&self) -> bool {
        self.later
    }

    fn uncounted(&self) -> bool {
        self.uncounted
    }

    fn verdicts(&self) -> Vec<Verdict<'_>> {
        let kernel = self.kernel.iter().flatten();
        let kernel = kernel.map(|verdict| Verdict::Kernel(verdict, self.kernel_root()));
        let processes = self.processes().map(Verdict::Process);
        processes.chain(kernel).collect()
    }
}

/// Judges one process of a snapshot: the one with this pid, or the only one.
///
/// # Errors
/// Where there is none such, or its tables are not proved to be its own.
pub fn judge_process(
    snapshot: &Snapshot,
    pid: Option<u32>,
    expectations: &[Expectation],
) -> Result<(ProcessVerdict, Vec<OrderRecord>), Error> {
    let (mut verdicts, orders) = judge_with(snapshot, pid, expectations, &[])?;
    Ok((verdicts.remove(0), orders))
}

/// Judges the process with this pid; without one the only one that a CPU runs, and beside it all that are known by their
/// tasks.
fn judge_all(snapshot: &Snapshot, pid: Option<u32>) -> Result<Vec<ProcessVerdict>, Error> {
    let processes = snapshot.notes.processes.iter();
    let others = processes.filter(|it| pid.is_none() && unattended::table_of(it).is_some());
    let others: Vec<&Captured> = others.collect();
    judge_with(snapshot, pid, &[], &others).map(|(verdicts, _)| verdicts)
}

fn judge_with(
    snapshot: &Snapshot,
    pid: Option<u32>,
    expectations: &[Expectation],
    others: &[&Captured],
) -> Result<(Vec<ProcessVerdict>, Vec<OrderRecord>), Error> {
    let gathered = Gathered::of(snapshot);
    let upper = kernel_half(&snapshot.cpus);
    let folios = folios(&snapshot.memory, upper.as_ref(), &gathered);
    let (verdict, orders) = judge_one(snapshot, pid, expectations, &gathered, &folios)?;
    let (mut verdicts, mut regimes) = (vec![verdict], vec![Subject::find(snapshot, pid)?.regime]);
    for other in others {
        let (verdict, regime) = process_of(snapshot, other, &gathered, &folios)?;
        verdicts.push(verdict);
        regimes.push(regime);
    }
    count(snapshot, false, &regimes, &gathered, &folios, &mut verdicts);
    let subject = Subject::find(snapshot, pid)?;
    let (memory, first) = (&snapshot.memory, &mut verdicts[0]);
    getters::judge(memory, &subject, &gathered, &folios, first);
    Ok((verdicts, orders))
}

fn judge_one(
    snapshot: &Snapshot,
    pid: Option<u32>,
    expectations: &[Expectation],
    gathered: &Result<Gathered, NotKnown>,
    folios: &Result<Read<'_, Memory>, NotKnown>,
) -> Result<(ProcessVerdict, Vec<OrderRecord>), Error> {
    let subject = Subject::find(snapshot, pid)?;
    let process = Process {
        pid: subject.process.pid,
        name: subject.process.name.clone(),
    };
    let mut verdict = judge(
        &snapshot.memory,
        &ProcessInput {
            process: &process,
            regime: &subject.regime,
            vmas: &subject.vmas,
            orders: subject.orders.as_ref().ok(),
            expectations,
            release: subject.release,
            contpte: subject.contpte,
            structures: structures(gathered, folios, &subject.regime),
        },
    );
    let (all, came) = (snapshot.cpus.len(), came(&snapshot.cpus));
    if came < all {
        verdict.notes.push(format!(
            "{} of {all} CPUs, from CPU {came} on, never came up: the kernel knows of fewer, and what it keeps of its CPUs was read of the others",
            all - came
        ));
    }
    let orders = match subject.orders {
        Ok(all) => all
            .records
            .into_iter()
            .filter(|record| record.tgid == process.pid)
            .collect(),
        // A kernel without our patches has no record: that is no fault of this verdict. One that has it and
        // cannot be read is.
        Err(why) if subject.has_records => {
            verdict.not_judged.push(NotJudged { reason: why });
            Vec::new()
        }
        Err(_) => Vec::new(),
    };
    Ok((verdict, orders))
}

/// The verdict on a snapshot: the process with this pid, or the only one, and the kernel half. Where the snapshot
/// is of a guest without an agent, that is what several looks bore out.
///
/// # Errors
/// Where there is no such process, or its tables are not proved to be its own.
pub fn step(snapshot: &Snapshot, pid: Option<u32>) -> Result<Step, Error> {
    if unattended::is_unattended(snapshot) {
        return unattended::step(snapshot, pid);
    }
    let mut verdicts = judge_all(snapshot, pid)?;
    let sight = Sight::of(&snapshot.notes);
    for verdict in &mut verdicts {
        match &sight {
            Some(sight) => sight.hold_process(verdict),
            None => verdict.notes.push(ONE_LOOK.into()),
        }
    }
    let mut step = Step {
        workload: "check".into(),
        step: match verdicts.as_slice() {
            [only] => format!("pid {}", only.process.pid),
            all => format!("{} processes", all.len()),
        },
        processes: verdicts,
        ..Step::default()
    };
    match judge_kernel_half(snapshot) {
        Ok(mut kernel) => {
            let root = kernel_half(&snapshot.cpus).map_or(0, |upper| upper.root.0);
            if let Some(sight) = &sight {
                sight.hold_kernel(&mut kernel, root);
            }
            step.kernel = Some(kernel);
        }
        Err(error) => step.not_judged.push(NotJudged {
            reason: error.to_string(),
        }),
    }
    Ok(step)
}
