//! Processes of one instant, judged.

use linux::order::OrderRecord;
use snapshot::Snapshot;
use stage1::{Half, Regime};
use verdict::basis::{Input, Known};
use verdict::{
    Basis, Expectation, KernelVerdict, NotJudged, NotKnown, Process, ProcessVerdict, Step,
};

use crate::basis::{known, records, with_gathered};
use crate::cpus::{came, kernel_half};
use crate::one::One;
use crate::proof::table_of;
use crate::settle::{settle, Judged, Verdict};
use crate::sight::ONE_LOOK;
use crate::together::{judge_together, Together};
use crate::{
    getters, judge_kernel_half, log, parse_vmas, unattended, Capture, Error, Gathered, ReadAgain,
    Sight, Subject,
};

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
    /// What the verdicts stand on.
    pub basis: Basis,
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
        let mut all = vec![one(&subject, expectations)];
        for companion in &capture.companions {
            all.push(One {
                process: Process {
                    pid: companion.pid,
                    name: companion.name.clone(),
                },
                regime: Regime::new(&companion.cpu.system, Half::Lower)?,
                vmas: Ok(parse_vmas(&companion.maps)?),
                orders: None,
                expectations: &[],
                release: subject.release,
                contpte: subject.contpte,
                getters: None,
            });
        }
        let Together {
            mut verdicts,
            later,
            uncounted,
        } = judge_together(&capture.snapshot, &gathered, false, &all);
        let orders = finish(&capture.snapshot, &subject, &mut verdicts[0]);
        let kernel = capture.extent.kernel;
        let kernel = kernel.then(|| judge_kernel_half(&capture.snapshot));
        let kernel = kernel.map(|kernel| kernel.map_err(|error| error.to_string()));
        let pid = Some(subject.process.pid);
        let known = Known {
            expectations: match expectations {
                [] => Input::NotAsked,
                _ => Input::Given,
            },
            no_kernel_half: kernel.as_ref().and_then(|it| it.as_ref().err().cloned()),
            ..attended(&capture.snapshot, &subject, pid, &gathered)
        };
        let basis = Basis::new(
            known,
            &verdicts,
            kernel.as_ref().and_then(|it| it.as_ref().ok()),
        );
        let verdict = verdicts.remove(0);
        Ok(Self {
            kernel,
            basis,
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
    let subject = Subject::find(snapshot, pid)?;
    let gathered = Gathered::of(snapshot);
    let all = [one(&subject, expectations)];
    let mut together = judge_together(snapshot, &gathered, false, &all);
    let mut verdict = together.verdicts.remove(0);
    let orders = finish(snapshot, &subject, &mut verdict);
    Ok((verdict, orders))
}

/// A process that waits for us, to be judged.
fn one<'s>(subject: &'s Subject<'_>, expectations: &'s [Expectation]) -> One<'s> {
    One {
        process: Process {
            pid: subject.process.pid,
            name: subject.process.name.clone(),
        },
        regime: subject.regime,
        vmas: Ok(subject.vmas.clone()),
        orders: subject.orders.as_ref().ok().cloned(),
        expectations,
        release: subject.release,
        contpte: subject.contpte,
        getters: getters::kept(subject.process),
    }
}

/// Adds to the verdict on a process that waits for us what is known of its guest; gives the process's own order records.
fn finish(
    snapshot: &Snapshot,
    subject: &Subject<'_>,
    verdict: &mut ProcessVerdict,
) -> Vec<OrderRecord> {
    let (all, came) = (snapshot.cpus.len(), came(&snapshot.cpus));
    if came < all {
        verdict.notes.push(format!(
            "{} of {all} CPUs, from CPU {came} on, never came up: the kernel knows of fewer, and what it keeps of its CPUs was read of the others",
            all - came
        ));
    }
    match &subject.orders {
        Ok(all) => {
            let own = all.records.iter();
            let own = own.filter(|record| record.tgid == subject.process.pid);
            own.cloned().collect()
        }
        // A kernel without our patches has no record: that is no fault of this verdict. One that has it and
        // cannot be read is.
        Err(why) if subject.has_records => {
            verdict.not_judged.push(NotJudged {
                reason: why.clone(),
            });
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

/// What is known of a snapshot in which a process waits for us, beside the verdicts.
fn attended(
    snapshot: &Snapshot,
    subject: &Subject<'_>,
    pid: Option<u32>,
    gathered: &Result<Gathered, NotKnown>,
) -> Known {
    let known = known(snapshot, pid);
    Known {
        records: records(subject, gathered.as_ref().err().filter(|why| !why.later)),
        getters: match getters::kept(subject.process) {
            Some(_) => Input::Given,
            None => Input::NotAsked,
        },
        ..with_gathered(known, gathered.as_ref().ok())
    }
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
    let subject = Subject::find(snapshot, pid)?;
    let gathered = Gathered::of(snapshot);
    let mut all = vec![one(&subject, &[])];
    // Beside it all that are known by their tasks.
    let others = snapshot.notes.processes.iter();
    let others = others.filter(|it| pid.is_none() && table_of(it).is_some());
    let others: Vec<Subject<'_>> = others
        .map(|other| Subject::of(snapshot, other))
        .collect::<Result<_, _>>()?;
    all.extend(others.iter().map(unattended::one));
    let mut verdicts = judge_together(snapshot, &gathered, false, &all).verdicts;
    finish(snapshot, &subject, &mut verdicts[0]);
    let sight = Sight::of(&snapshot.notes);
    for verdict in &mut verdicts {
        match &sight {
            Some(sight) => sight.hold_process(verdict),
            None => verdict.notes.push(ONE_LOOK.into()),
        }
    }
    let mut kernel = judge_kernel_half(snapshot);
    if let (Ok(kernel), Some(sight)) = (&mut kernel, &sight) {
        let root = kernel_half(&snapshot.cpus).map_or(0, |upper| upper.root.0);
        sight.hold_kernel(kernel, root);
    }
    let reported = log::Reported::of(&snapshot.notes);
    let known = Known {
        console: reported.input.clone(),
        no_kernel_half: kernel.as_ref().err().map(ToString::to_string),
        ..attended(snapshot, &subject, pid, &gathered)
    };
    let mut kernel = kernel.ok();
    let basis = Basis::new(known, &verdicts, kernel.as_ref());
    reported.tell(&mut kernel);
    Ok(Step {
        workload: "check".into(),
        step: match verdicts.as_slice() {
            [only] => format!("pid {}", only.process.pid),
            all => format!("{} processes", all.len()),
        },
        basis: Some(basis),
        processes: verdicts,
        kernel,
        ..Step::default()
    })
}
