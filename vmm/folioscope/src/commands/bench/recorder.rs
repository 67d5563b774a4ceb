// SPDX-License-Identifier: GPL-2.0-only
//! Measures the cost of recording a guest: page faults alone, and a whole run.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use protocol::{Advice, Command as Request, Outcome as Reply};
use serde_json::json;

use super::row::{Row, Target, Times};
use super::{ourselves, Helper, Progress};
use crate::guest::{unexpected, Guest};
use crate::ops::{advise, map, write};
use crate::options::GuestOptions;
use crate::recorded::PLUGIN;
use crate::tour::WORKLOADS;
use crate::Error;

const ROUNDS: usize = 7;
const RUNS: usize = 3;
/// Memory that a round writes: 16,384 pages of 4K.
const BYTES: u64 = 64 << 20;
/// The factors that are aimed at.
const FAULTS: f64 = 2.0;
const TOUR: f64 = 1.5;

pub fn measure(options: &GuestOptions, progress: &Progress) -> Result<Vec<Row>, Error> {
    let faults = "recorded page faults, to unrecorded";
    let tour = "recorded run of the tour, to unrecorded";
    if !Path::new(PLUGIN).is_file() {
        let missing = |(name, most): (&str, f64)| Row {
            name: name.into(),
            value: f64::NAN,
            unit: "x",
            target: Target::Unmeasured(most),
            method: format!("not measured: no {PLUGIN}; vmm/setup/plugin.sh builds it"),
            detail: json!({"why": "no plugin"}),
        };
        return Ok([(faults, FAULTS), (tour, TOUR)].map(missing).into());
    }
    progress.say("booting a guest that is recorded and one that is not");
    let mut plain = Guest::boot(options)?;
    let mut recorded = Guest::boot_recorded(&mut options.clone(), Path::new(PLUGIN), None)?;
    progress.say("page faults");
    for guest in [&mut plain, &mut recorded] {
        // The first faults run code that is not translated yet.
        faulted(guest)?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(faulted(&mut plain)?);
        ours.push(faulted(&mut recorded)?);
    }
    let (ours, theirs) = (Times::new(ours), Times::new(theirs));
    let what = "64 MiB written to by single pages";
    let mut rows = vec![ratio(faults, &ours, &theirs, Target::AtMost(FAULTS), what)];
    drop((plain, recorded));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // Without the workloads about sequences, which only one of the two would play.
    let all: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
    let all = all.join(",");
    for round in 1..=RUNS {
        progress.say(&format!("the tour, recorded and not, {round} of {RUNS}"));
        theirs.push(toured(options, &["run", "--only", &all])?);
        ours.push(toured(options, &["run", "--only", &all, "--record"])?);
    }
    let (ours, theirs) = (Times::new(ours), Times::new(theirs));
    let what = "boot, tour and verdict";
    rows.push(ratio(tour, &ours, &theirs, Target::AtMost(TOUR), what));
    Ok(rows)
}

fn ratio(name: &str, ours: &Times, theirs: &Times, target: Target, what: &str) -> Row {
    Row {
        name: name.into(),
        value: ours.median() / theirs.median(),
        unit: "x",
        target,
        method: format!(
            "{what}, in turn, medians: {:.2} s and {:.2} s; of the bests {:.2} x",
            ours.median(),
            theirs.median(),
            ours.best() / theirs.best()
        ),
        detail: json!({"recorded": ours.detail(), "unrecorded": theirs.detail()}),
    }
}

/// Returns how long a new process takes to write to each page of its area, none of them large.
fn faulted(guest: &mut Guest) -> Result<Duration, Error> {
    let process = guest.spawn("bench")?.process;
    let address = match guest.op(process, map(BYTES, 0))? {
        Reply::Mapped { address, .. } => address,
        other => return Err(unexpected("mmap", &other)),
    };
    guest.op(process, advise(address, BYTES, Advice::Nohugepage))?;
    let start = Instant::now();
    guest.op(process, write(address, BYTES))?;
    let took = start.elapsed();
    let deadline = guest.deadline();
    guest.command(Request::Kill { process }, deadline)?;
    Ok(took)
}

fn toured(options: &GuestOptions, arguments: &[&str]) -> Result<Duration, Error> {
    let mut command = ourselves(arguments, options)?;
    let start = Instant::now();
    let mut run = Helper::start(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
    let ended = run.0.wait().map_err(Error::io("wait for folioscope run"))?;
    if !ended.success() {
        return Err(Error::Input(format!(
            "expected folioscope {} to end without a finding and it ended with {ended}; a figure of that says nothing",
            arguments.join(" ")
        )));
    }
    Ok(start.elapsed())
}
