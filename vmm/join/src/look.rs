//! Processes of one instant, judged.

use linux::order::OrderRecord;
use snapshot::Snapshot;
use stage1::{Half, Regime};
use verdict::{
    judge, judge_sharing, Expectation, NotJudged, Process, ProcessInput, ProcessVerdict, Step,
};

use crate::{foreign, judge_kernel_half, parse_vmas, Capture, Error, Reread, Subject};

/// What was seen of a process at one instant.
#[derive(Debug)]
pub struct Look {
    /// The instant.
    pub capture: Capture,
    /// What the rules say of it.
    pub verdict: ProcessVerdict,
    /// The processes that were looked at beside it: what is exclusive here must not be mapped there.
    pub companions: Vec<ProcessVerdict>,
    /// The process's own order records, oldest first.
    pub orders: Vec<OrderRecord>,
    /// Where only tables that were written to were to be read: how many those were.
    pub reread: Option<Reread>,
}

impl Look {
    /// Judges the only process of a capture, and its companions.
    ///
    /// # Errors
    /// Where the process's tables are not proved to be its own.
    pub fn of(capture: Capture, expectations: &[Expectation]) -> Result<Self, Error> {
        let subject = Subject::find(&capture.snapshot, None)?;
        let (verdict, orders) = judge_process(&capture.snapshot, None, expectations)?;
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
            };
            verdicts.push(judge(&capture.snapshot.memory, &input));
            regimes.push(regime);
        }
        judge_sharing(&capture.snapshot.memory, &regimes, &mut verdicts);
        let verdict = verdicts.remove(0);
        Ok(Self {
            capture,
            verdict,
            companions: verdicts,
            orders,
            reread: None,
        })
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
        },
    );
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
    if foreign::is_foreign(snapshot) {
        return foreign::step(snapshot, pid);
    }
    let (verdict, _) = judge_process(snapshot, pid, &[])?;
    let mut step = Step {
        workload: "check".into(),
        step: format!("pid {}", verdict.process.pid),
        processes: vec![verdict],
        ..Step::default()
    };
    match judge_kernel_half(snapshot) {
        Ok(kernel) => step.kernel = Some(kernel),
        Err(error) => step.not_judged.push(NotJudged {
            reason: error.to_string(),
        }),
    }
    Ok(step)
}
