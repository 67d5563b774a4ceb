// SPDX-License-Identifier: GPL-2.0-only
//! Measures how long a guest is stopped for a capture of 1 GiB of 4K pages, and the cost of a capture.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use analysis::judge_process;
use evidence::{Capture, Extent, Facts, Subject};
use protocol::ProcessId;
use serde_json::json;
use snapshot::Cpu;
use stage1::Level;

use super::row::{Row, Target, Times};
use super::{again, populate, Progress};
use crate::boot::save;
use crate::guest::Guest;
use crate::machines::carried;
use crate::options::GuestOptions;
use crate::Error;

const MAPPED: u64 = 1 << 30;
const ROUNDS: usize = 41;
/// The walk among the parts of a capture.
const WALK: usize = 2;
/// Run time of the guest between two captures.
const PAUSE: Duration = Duration::from_millis(10);
/// Duration of captures and verdicts without a pause.
const BUSY: Duration = Duration::from_secs(3);

pub fn measure(options: &GuestOptions, progress: &Progress) -> Result<Vec<Row>, Error> {
    progress.say("booting a guest with 2 GiB");
    let options = GuestOptions {
        memory: 2 << 30,
        ..options.clone()
    };
    let mut guest = Guest::boot(&options)?;
    if guest.hello().anon_order_policy.is_some() {
        guest.set_policy("baseline")?;
    }
    progress.say("writing to 1 GiB of pages in the guest");
    let deadline = guest.deadline();
    let process = populate(MAPPED, |request| guest.command(request, deadline))?.process;
    guest.hold(process)?;

    progress.say("capturing");
    let mut stopped = Vec::new();
    for _ in 0..ROUNDS {
        stopped.push(guest.capture(process, Extent::default(), &[])?.stopped);
        std::thread::sleep(PAUSE);
    }
    let captured = guest.capture(process, Extent::default(), &[])?;
    let parts = parts(&mut guest, process, Facts::of(&captured.snapshot))?;
    let pages = pages(&captured)?;
    if pages < MAPPED / guest.hello().page_size {
        return Err(Error::Input(format!(
            "expected {} pages in the capture and found {pages}; this kernel maps larger ones in spite of MADV_NOHUGEPAGE",
            MAPPED / guest.hello().page_size
        )));
    }
    let stopped = Times::new(stopped);
    let walk = parts[WALK].1.median();
    let emulated = carried();
    let milliseconds = |times: &Times| times.median() * 1e3;
    let mut rows = vec![Row {
        name: "guest stopped per checkpoint".into(),
        value: milliseconds(&stopped),
        unit: "ms",
        target: match guest.machine().kind() {
            // Under emulation the ratio below counts.
            "kvm" if emulated => Target::None,
            "kvm" => Target::AtMost(10.0),
            _ => Target::AtMost(20.0),
        },
        method: format!(
            "median of {ROUNDS} with 1 GiB by 4K pages and their folios; best {:.1}, worst {:.1}",
            stopped.best() * 1e3,
            stopped.worst() * 1e3
        ),
        detail: json!({"stopped": stopped.detail(), "pages": pages}),
    }];
    if guest.machine().kind() == "kvm" {
        rows.push(Row {
            name: "  to the walk alone".into(),
            value: stopped.median() / walk,
            unit: "x",
            target: if emulated {
                Target::AtMost(1.5)
            } else {
                Target::None
            },
            method: "of the medians: all that the guest stands still for, to walk and copy".into(),
            detail: json!({}),
        });
    }
    for (name, times, method) in parts {
        rows.push(Row {
            name: format!("  {name}"),
            value: milliseconds(&times),
            unit: "ms",
            target: Target::None,
            method: method.into(),
            detail: times.detail(),
        });
    }
    progress.say("capturing as fast as it goes");
    rows.push(rate(&mut guest, process)?);
    rows.push(core(&guest, &captured)?);
    progress.say("capturing again after one fault");
    rows.extend(again::measure(&mut guest, process)?);
    Ok(rows)
}

/// Measures the steps of a capture as [`Guest::capture`] takes them; `facts` as it found them.
fn parts(
    guest: &mut Guest,
    process: ProcessId,
    facts: Facts,
) -> Result<[(&'static str, Times, &'static str); 4], Error> {
    let held = guest.held().find(|(id, _)| *id == process);
    let checkpoint = held.and_then(|(_, process)| process.checkpoint);
    let mut times: [Vec<Duration>; 4] = Default::default();
    // An interrupt may have taken the CPU away, on an emulated host more often than not.
    for _ in 0..10 * ROUNDS {
        if times[0].len() == ROUNDS {
            break;
        }
        let start = Instant::now();
        let paused = match checkpoint {
            Some(checkpoint) => guest.machine().pause_at(checkpoint.nonce)?,
            None => guest.machine().pause()?,
        };
        let read = start.elapsed();
        let waits = |cpu: &&Cpu| checkpoint.as_ref().is_some_and(|at| at.holds(cpu));
        let root = paused.cpus.iter().find(waits);
        if root.is_some() {
            times[0].push(paused.stopping());
            times[1].push(read.saturating_sub(paused.stopping()));
            let start = Instant::now();
            let (memory, cpus) = (&paused.memory, &paused.cpus);
            let pages = evidence::pages(memory, cpus, root, facts, Extent::default());
            let copied = evidence::copy(memory, &pages)?;
            times[2].push(start.elapsed());
            let start = Instant::now();
            paused.resume()?;
            times[3].push(start.elapsed());
            drop(copied);
        }
        std::thread::sleep(PAUSE);
    }
    let [stop, registers, copy, resume] = times.map(Times::new);
    let how = match guest.machine().kind() {
        "kvm" => [
            "until all CPUs are out of KVM_RUN",
            "KVM_GET_ONE_REG, all CPUs",
            "until all CPUs may go on",
        ],
        _ => [
            "QMP stop, to its answer",
            "gdb stub, all CPUs",
            "QMP cont, to its answer",
        ],
    };
    Ok([
        ("stop", stop, how[0]),
        ("registers", registers, how[1]),
        ("walk and copy", copy, "the tables, and the order records"),
        ("go on", resume, how[2]),
    ])
}

fn pages(captured: &Capture) -> Result<u64, Error> {
    let subject = Subject::find(&captured.snapshot, None)?;
    let (first, last) = subject.bounds();
    let mut sink = |violation| drop(violation);
    let memory = &captured.snapshot.memory;
    Ok(stage1::check(memory, &subject.regime, first, last, &mut sink).leaves[Level::L3.index()])
}

fn rate(guest: &mut Guest, process: ProcessId) -> Result<Row, Error> {
    let (start, mut judging, mut done) = (Instant::now(), Duration::ZERO, 0);
    while start.elapsed() < BUSY {
        let captured = guest.capture(process, Extent::default(), &[])?;
        let judge = Instant::now();
        judge_process(&captured.snapshot, None, &[])?;
        judging += judge.elapsed();
        done += 1;
    }
    let each = judging.as_secs_f64() * 1e3 / f64::from(done);
    Ok(Row {
        name: "captures of 1 GiB, judged".into(),
        value: f64::from(done) / start.elapsed().as_secs_f64(),
        unit: "captures/s",
        target: Target::None,
        method: format!("{done} one after the other; judging takes {each:.1} ms of each"),
        detail: json!({"captures": done, "judging_ms": each}),
    })
}

fn core(guest: &Guest, captured: &Capture) -> Result<Row, Error> {
    let path = guest.scratch().join("bench.core");
    save(&captured.snapshot, &path)?;
    let metadata =
        std::fs::metadata(&path).map_err(Error::io(format!("look at {}", path.display())))?;
    let _ = std::fs::remove_file(&path);
    let on_disk = metadata.blocks() * 512;
    Ok(Row {
        name: "saved core of 1 GiB by 4K pages".into(),
        value: metadata.len() as f64 / f64::from(1 << 20),
        unit: "MiB",
        target: Target::None,
        method: format!(
            "boot::save; {:.2} MiB on disk",
            on_disk as f64 / f64::from(1 << 20)
        ),
        detail: json!({"bytes": metadata.len(), "bytes_on_disk": on_disk}),
    })
}
