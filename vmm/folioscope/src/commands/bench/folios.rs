// SPDX-License-Identifier: GPL-2.0-only
//! Measures the full verdict: tables, folios, VMAs and all rules, for growing numbers of mappings, of one process and
//! of many that share pages; and how long a guest is stopped for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use analysis::Look;
use evidence::{Capture, Extent};
use protocol::{Command as Request, Operation, Outcome as Reply, ProcessId};
use serde_json::json;

use super::dump::status;
use super::row::{Row, Target, Times};
use super::{populate, Progress};
use crate::guest::{unexpected, Guest};
use crate::options::GuestOptions;
use crate::Error;

const ROUNDS: usize = 9;
const MIB: f64 = (1 << 20) as f64;
/// A million pages of 4 KiB, each mapped once.
const WHOLE: u64 = 4 << 30;
/// Memory that a thousand processes share: a thousand pages.
const SHARED: u64 = 1000 << 12;
const SHARERS: u32 = 1000;

pub fn measure(options: &GuestOptions, progress: &Progress) -> Result<Vec<Row>, Error> {
    progress.say("booting a guest with 6 GiB");
    let options = GuestOptions {
        memory: 6 << 30,
        ..options.clone()
    };
    let mut guest = Guest::boot(&options)?;
    if guest.hello().anon_order_policy.is_some() {
        guest.set_policy("baseline")?;
    }
    let mut rows = Vec::new();

    progress.say("a tenth of a million pages in one process");
    let few = filled(&mut guest, WHOLE / 10)?;
    rows.extend(judged(
        &mut guest,
        &[few],
        "0.1 M pages, full verdict",
        None,
        None,
    )?);
    end(&mut guest, few)?;

    progress.say("a million pages in one process: 4 GiB are written to");
    let many = filled(&mut guest, WHOLE)?;
    let (most, least) = (Some(100.0), Some(20e6));
    rows.extend(judged(
        &mut guest,
        &[many],
        "1 M pages, full verdict",
        most,
        least,
    )?);

    progress.say("four million mappings in four processes");
    let mut all = vec![many];
    guest.release(many)?;
    for _ in 1..4 {
        all.push(fork(&mut guest, many)?);
    }
    // A process's first table is known once it has waited.
    for &process in all.iter().rev() {
        guest.hold(process)?;
        if process != many {
            guest.capture(process, Extent::default(), &[])?;
            guest.release(process)?;
        }
    }
    rows.extend(judged(
        &mut guest,
        &all,
        "4 M mappings, 4 processes, full verdict",
        None,
        None,
    )?);
    guest.release(many)?;
    for process in all {
        end(&mut guest, process)?;
    }

    progress.say("a thousand processes that share a thousand pages");
    let first = filled(&mut guest, SHARED)?;
    guest.release(first)?;
    for _ in 1..SHARERS {
        fork(&mut guest, first)?;
    }
    guest.hold(first)?;
    rows.extend(judged(
        &mut guest,
        &[first],
        "1 of 1,000 processes that share 1,000 pages",
        None,
        None,
    )?);
    Ok(rows)
}

/// Returns a new process that has written to so many bytes, by pages of the smallest size.
fn filled(guest: &mut Guest, bytes: u64) -> Result<ProcessId, Error> {
    let deadline = guest.deadline();
    let process = populate(bytes, |request| guest.command(request, deadline))?.process;
    guest.hold(process)?;
    Ok(process)
}

fn fork(guest: &mut Guest, process: ProcessId) -> Result<ProcessId, Error> {
    let op = Operation::Fork {
        name: String::new(),
    };
    match guest.op(process, op)? {
        Reply::Spawned(child) => Ok(child.process),
        other => Err(unexpected("fork", &other)),
    }
}

fn end(guest: &mut Guest, process: ProcessId) -> Result<(), Error> {
    let deadline = guest.deadline();
    if guest.held().any(|(held, _)| held == process) {
        guest.release(process)?;
    }
    guest.command(Request::Kill { process }, deadline).map(drop)
}

/// Captures the first of `processes`, which waits, beside the others, and judges all.
fn judged(
    guest: &mut Guest,
    processes: &[ProcessId],
    name: &str,
    most: Option<f64>,
    least: Option<f64>,
) -> Result<Vec<Row>, Error> {
    let (mut stopped, mut times, mut mappings) = (Vec::new(), Vec::new(), 0);
    let before = status(std::process::id(), "RssAnon:").unwrap_or(0);
    let (over, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| -> Result<(), Error> {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let now = status(std::process::id(), "RssAnon:").unwrap_or(0);
                peak.fetch_max(now, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut all = || -> Result<(), Error> {
            for _ in 0..ROUNDS {
                let others = &processes[1..];
                let capture = guest.capture_with(processes[0], others, Extent::default(), &[])?;
                stopped.push(capture.stopped);
                let (took, found) = judge(capture)?;
                times.push(took);
                mappings = found;
            }
            Ok(())
        };
        let done = all();
        over.store(true, Ordering::Relaxed);
        done
    })?;
    let (times, stopped) = (Times::new(times), Times::new(stopped));
    let beside = peak.load(Ordering::Relaxed).saturating_sub(before) as f64 / MIB;
    let detail = json!({
        "judged": times.detail(),
        "stopped": stopped.detail(),
        "mappings": mappings,
        "memory_mib": beside,
    });
    let row = Row::of(&detail);
    Ok(vec![
        row(
            name,
            times.best() * 1e3,
            "ms",
            most.map_or(Target::None, Target::AtMost),
            format!("tables, folios, VMAs, all rules, {mappings} pages mapped by those judged, best of {ROUNDS}"),
        ),
        row(
            "  entries",
            mappings as f64 / times.best(),
            "entries/s",
            least.map_or(Target::None, Target::AtLeast),
            "of those judged, with their folios, one core".into(),
        ),
        row(
            "  guest stopped for it",
            stopped.median() * 1e3,
            "ms",
            Target::None,
            format!("median of {ROUNDS}; best {:.1}", stopped.best() * 1e3),
        ),
        row(
            "  memory for it",
            beside,
            "MiB",
            Target::AtMost(256.0),
            "RssAnon of this process, polled: copy and verdict, beside guest RAM".into(),
        ),
    ])
}

/// Returns how long the verdict takes, and the pages that those judged map.
fn judge(capture: Capture) -> Result<(Duration, u64), Error> {
    let start = Instant::now();
    let look = Look::of(capture, &[])?;
    let took = start.elapsed();
    let processes = &look.judged.processes;
    for verdict in processes {
        if verdict.errors() > 0 || !verdict.not_judged.is_empty() || verdict.folios.is_empty() {
            return Err(Error::Input(format!(
                "expected a process without errors, judged with its folios, and found {} errors and {:?}; a figure of that says nothing",
                verdict.errors(),
                verdict.not_judged
            )));
        }
    }
    let pages = processes.iter().map(|verdict| verdict.entries.pages);
    Ok((took, pages.sum()))
}
