//! One process, captured and judged.

use linux::order::OrderRecord;
use protocol::ProcessId;
use snapshot::Snapshot;
use stage1::{Half, Regime};
use verdict::{
    judge, judge_sharing, Expectation, NotJudged, Process, ProcessInput, ProcessVerdict,
};

use crate::capture::{parse_vmas, Capture, Extent, Subject};
use crate::guest::{Guest, Poke};
use crate::Error;

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
}

/// Lets the process wait, captures it, lets it go on, judges the copy.
///
/// # Errors
/// Where the state cannot be had cleanly, or the guest is lost.
pub fn look(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
) -> Result<Look, Error> {
    guest.hold(process)?;
    let others = guest.known();
    let captured = guest.capture_with(process, &others, Extent::default(), &[]);
    if !captured.as_ref().is_err_and(Error::lost) {
        guest.release(process)?;
    }
    judged(captured?, expectations)
}

/// The same for a process that waits already, which goes on waiting.
///
/// # Errors
/// As [`look`].
pub fn look_held(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
    pokes: &[Poke],
) -> Result<Look, Error> {
    let others = guest.known();
    judged(
        guest.capture_with(process, &others, Extent::default(), pokes)?,
        expectations,
    )
}

fn judged(capture: Capture, expectations: &[Expectation]) -> Result<Look, Error> {
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
    Ok(Look {
        capture,
        verdict,
        companions: verdicts,
        orders,
    })
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
