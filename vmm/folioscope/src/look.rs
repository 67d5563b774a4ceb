//! One process, captured and judged.

use std::time::Duration;

use linux::order::OrderRecord;
use protocol::ProcessId;
use snapshot::Snapshot;
use stage1::{Half, Regime};
use verdict::{
    judge, judge_sharing, Expectation, NotJudged, Process, ProcessInput, ProcessVerdict, RuleId,
    Severity,
};

use crate::capture::{parse_vmas, Capture, Extent, Subject};
use crate::guest::{Guest, Poke, Reread};
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
    /// Where only tables that were written to were to be read: how many those were.
    pub reread: Option<Reread>,
}

/// Looks at one process at most, until two agree.
const LOOKS: u32 = 8;

/// Lets the process wait, captures it, judges the copy, lets it go on.
///
/// # Errors
/// Where the state cannot be had cleanly, or the guest is lost.
pub fn look(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
) -> Result<Look, Error> {
    look_whole(guest, process, expectations, Extent::default())
}

/// The same, as much of the guest as `extent` says.
///
/// # Errors
/// As [`look`].
pub fn look_whole(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
    extent: Extent,
) -> Result<Look, Error> {
    guest.hold(process)?;
    let seen = settled(guest, expectations, |guest, others| {
        let capture = guest.capture_with(process, others, extent, &[])?;
        Ok((capture, None))
    });
    released(guest, process, seen)
}

/// As [`look`], reading only tables that were written to since the last look of this kind, where the machine
/// can tell which those are.
///
/// # Errors
/// As [`look`].
pub fn look_again(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
) -> Result<Look, Error> {
    guest.hold(process)?;
    let seen = look_held_again(guest, process, expectations);
    released(guest, process, seen)
}

fn released(
    guest: &mut Guest,
    process: ProcessId,
    seen: Result<Look, Error>,
) -> Result<Look, Error> {
    if !seen.as_ref().is_err_and(Error::lost) {
        guest.release(process)?;
    }
    seen
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
    settled(guest, expectations, |guest, others| {
        let capture = guest.capture_with(process, others, Extent::default(), pokes)?;
        Ok((capture, None))
    })
}

/// [`look_again`] for a process that waits already, which goes on waiting.
///
/// # Errors
/// As [`look`].
pub fn look_held_again(
    guest: &mut Guest,
    process: ProcessId,
    expectations: &[Expectation],
) -> Result<Look, Error> {
    // A look may take several captures; what the look before did not know is what any of them has read.
    let mut all: Option<Reread> = None;
    settled(guest, expectations, |guest, others| {
        let (capture, now) = guest.recapture(process, others, Extent::default())?;
        let sum = match all.take() {
            Some(before) => before.and(now),
            None => now,
        };
        all = Some(sum.clone());
        Ok((capture, Some(sum)))
    })
}

/// A look that shows no kernel thread at work on the tables.
///
/// The process waits, but compaction, reclaim and khugepaged do not: a machine may be stopped while one of them has
/// cleared half a group, or put migration entries where pages are on their way. What is wrong with a table
/// stays wrong, so an error counts when a second look, a little later, shows the same.
fn settled(
    guest: &mut Guest,
    expectations: &[Expectation],
    mut capture: impl FnMut(&mut Guest, &[ProcessId]) -> Result<(Capture, Option<Reread>), Error>,
) -> Result<Look, Error> {
    let others = guest.known();
    let mut before = None;
    for attempt in 1.. {
        let (copy, reread) = capture(guest, &others)?;
        let mut seen = judged(copy, expectations)?;
        seen.reread = reread;
        let errors = seen.errors();
        if !seen.moving() && (errors.is_empty() || before.as_ref() == Some(&errors)) {
            return Ok(seen);
        }
        if attempt == LOOKS {
            seen.nothing_is_sure();
            return Ok(seen);
        }
        before = Some(errors);
        std::thread::sleep(Duration::from_millis(2 << attempt));
    }
    unreachable!("the last attempt returns")
}

impl Look {
    fn verdicts(&self) -> impl Iterator<Item = &ProcessVerdict> {
        std::iter::once(&self.verdict).chain(&self.companions)
    }

    /// What is wrong, and where: to be compared with another look.
    fn errors(&self) -> Vec<(u32, RuleId, u64)> {
        let of = |verdict: &ProcessVerdict| {
            let pid = verdict.process.pid;
            let errors = verdict.findings.iter();
            let errors = errors.filter(|finding| finding.severity == Severity::Error);
            errors
                .map(|finding| (pid, finding.rule, finding.va.0))
                .collect::<Vec<_>>()
        };
        self.verdicts().flat_map(of).collect()
    }

    /// Whether pages are on their way.
    fn moving(&self) -> bool {
        self.verdicts().any(|verdict| verdict.entries.moving > 0)
    }

    /// Takes every error back: the tables did not stand still.
    fn nothing_is_sure(&mut self) {
        for verdict in std::iter::once(&mut self.verdict).chain(&mut self.companions) {
            let errors = verdict.errors();
            let moving = verdict.entries.moving;
            if errors == 0 && moving == 0 {
                continue;
            }
            verdict
                .findings
                .retain(|finding| finding.severity != Severity::Error);
            verdict.dropped.retain(|rule, _| *rule == RuleId::Eligible);
            verdict.not_judged.push(NotJudged {
                reason: format!(
                    "the tables of process {} did not stand still: in {LOOKS} looks no two showed the same, the last one \
                     {moving} entries in migration and {errors} errors; look again when the guest has less to do",
                    verdict.process.pid
                ),
            });
        }
    }
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
        reread: None,
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
