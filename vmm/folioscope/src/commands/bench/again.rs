// SPDX-License-Identifier: GPL-2.0-only
//! Measures a capture after one fault, from the last capture and the machine's record of writes, beside a whole one.

use std::time::{Duration, Instant};

use evidence::{Extent, Facts};
use protocol::{Advice, Outcome, ProcessId};
use serde_json::json;

use super::row::{Row, Target, Times};
use crate::guest::{unexpected, Guest};
use crate::ops::{map, write};
use crate::Error;

const NAME: &str = "dirty-log capture after a 64 KiB fault";
/// Target, as a part of a whole capture.
const MOST: f64 = 0.1;
const FAULT: u64 = 64 << 10;
/// Faults in one area of 1 MiB: it has one table, and no block fits into it. The first makes the table.
const ROUNDS: u64 = 15;
const AREA: u64 = (ROUNDS + 1) * FAULT;

/// Measures the captures of `process`, which waits, and waits again afterwards.
pub fn measure(guest: &mut Guest, process: ProcessId) -> Result<Vec<Row>, Error> {
    if let Err(why) = guest.records_writes()? {
        return Ok(vec![Row {
            name: NAME.into(),
            value: f64::NAN,
            unit: "x",
            target: Target::Unmeasured(MOST),
            method: format!("not measured: {why}"),
            detail: json!({"why": why}),
        }]);
    }
    guest.release(process)?;
    if guest.hello().anon_order_policy.is_some() {
        guest.set_policy("variable")?;
    }
    let address = match guest.op(process, map(AREA, 0))? {
        Outcome::Mapped { address, .. } => address,
        other => return Err(unexpected("mmap", &other)),
    };
    guest.hint(process, address, AREA, Advice::Hugepage)?;
    guest.op(process, write(address, FAULT))?;
    guest.hold(process)?;
    guest.capture_again(process, &[], Extent::default())?;

    let (mut whole, mut again) = ([vec![], vec![]], [vec![], vec![]]);
    let (mut read, mut tables, mut record) = (0, 0, vec![]);
    for round in 1..=ROUNDS {
        guest.release(process)?;
        guest.op(process, write(address + round * FAULT, FAULT))?;
        guest.hold(process)?;
        let (captured, read_again) = guest.capture_again(process, &[], Extent::default())?;
        again[0].push(read_again.took);
        record.push(read_again.record);
        again[1].push(captured.stopped);
        let found = read_again.tables.map_err(Error::Input)?;
        (read, tables) = (found.tables.max(read), found.of);
        let facts = Facts::of(&captured.snapshot);
        whole[0].push(walk_and_copy(guest, process, facts)?);
        whole[1].push(guest.capture(process, Extent::default(), &[])?.stopped);
    }
    let [copied, stopped] = [0, 1].map(|part| {
        let times = |times: &[Vec<Duration>; 2]| Times::new(times[part].iter().copied());
        (times(&again), times(&whole))
    });
    let ratio = |(again, whole): &(Times, Times)| again.median() / whole.median();
    let method = |(again, whole): &(Times, Times), what: &str| {
        let [again, whole] = [again, whole].map(|times| times.median() * 1e6);
        format!("{what}: {again:.0} us, and {whole:.0} us for a whole capture")
    };
    let record = Times::new(record);
    let what = format!(
        "{read} of {tables} tables read again at most; the machine's log ({:.0} us), tables and copy",
        record.median() * 1e6
    );
    let detail = |(again, whole): &(Times, Times)| json!({"again": again.detail(), "whole": whole.detail(), "log": record.detail(), "read_again": read, "tables": tables});
    Ok(vec![
        Row {
            name: NAME.into(),
            value: ratio(&copied),
            unit: "x",
            target: Target::AtMost(MOST),
            method: method(&copied, &what),
            detail: detail(&copied),
        },
        Row {
            name: "  guest stopped for it".into(),
            value: ratio(&stopped),
            unit: "x",
            target: Target::None,
            method: method(&stopped, "with stop, registers and go on"),
            detail: detail(&stopped),
        },
    ])
}

/// Walks and copies the tables as [`Guest::capture`] does while the guest is stopped.
fn walk_and_copy(guest: &mut Guest, process: ProcessId, facts: Facts) -> Result<Duration, Error> {
    /// An interrupt may have taken the CPU away, at most so often.
    const STOPS: u32 = 400;
    let held = guest.held().find(|(id, _)| *id == process);
    let Some(checkpoint) = held.and_then(|(_, process)| process.checkpoint) else {
        return Err(Error::Input(format!("{process} does not wait")));
    };
    for _ in 0..STOPS {
        let paused = guest.machine().pause_at(checkpoint.nonce)?;
        let root = paused.cpus.iter().find(|cpu| checkpoint.holds(cpu));
        if root.is_some() {
            let start = Instant::now();
            let (memory, cpus) = (&paused.memory, &paused.cpus);
            let pages = evidence::pages(memory, cpus, root, facts, Extent::default());
            let copied = evidence::copy(memory, &pages)?;
            let took = start.elapsed();
            paused.resume()?;
            drop(copied);
            return Ok(took);
        }
        paused.resume()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::GuestLost {
        what: format!("{process} was to wait in user mode, and in {STOPS} stops it was not seen"),
    })
}
