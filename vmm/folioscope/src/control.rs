//! The session protocol: one JSON object a line in, one out, on standard input and output or a Unix socket.
//!
//! ```text
//! > {"id": 1, "method": "look", "deadline_ms": 20000, "params": {"process": 1}}
//! < {"id": 1, "ok": {...}}
//! < {"id": 2, "error": {"kind": "errno", "message": "...", "detail": {...}, "lost": false}}
//! ```
//!
//! `look` and `judge` with `"again": true` read only the tables that were written to since the last time it was said,
//! where the machine records writes: the answer's `reread` says how many `tables` those were `of` all. It is null where
//! everything was read, and `read_whole_because` says why; the verdict is the same in either case.
//!
//! `command` passes a command of the guest's agent through; the other methods are the host's own.

mod translate;

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use join::{Extent, Look, Reread, Subject};
use protocol::{Command, ProcessId};
use serde::{Deserialize, Deserializer};
use serde_json::{json, Value};
use stage1::{PhysMemory, PhysicalAddress};
use verdict::Expectation;

use crate::boot;
use crate::guest::{Guest, Poke, DEADLINE};
use crate::look::{look, look_again, look_held, look_held_again, look_whole};
use crate::rows;
use crate::stage::{allow_allocations, fail_allocations, Played, Spoil, Stage};
use crate::tour::WORKLOADS;
use crate::Error;

/// A line from whoever drives.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: u64,
    method: String,
    #[serde(default = "default_deadline")]
    deadline_ms: u64,
    #[serde(default)]
    params: Value,
}

fn default_deadline() -> u64 {
    20_000
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfProcess {
    process: ProcessId,
    #[serde(default)]
    expectations: Vec<Expectation>,
    #[serde(default)]
    pokes: Vec<RawPoke>,
    /// Read only tables that were written to since the last time.
    #[serde(default)]
    again: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPoke {
    #[serde(deserialize_with = "hex")]
    address: u64,
    #[serde(deserialize_with = "hex")]
    word: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failing {
    process: ProcessId,
    order: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tour {
    name: String,
    policy: Option<String>,
    /// Something that is wrong at one checkpoint, which a rule must name.
    spoil: Option<Spoil>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bundle {
    path: PathBuf,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Save {
    path: PathBuf,
    process: ProcessId,
    #[serde(default)]
    kernel: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Snap {
    path: PathBuf,
    pid: Option<i32>,
}

/// `"0x1f"`: what JSON readers cannot round.
fn hex<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    crate::options::parse_address(&text).map_err(serde::de::Error::custom)
}

/// Obeys until the input ends. The guest is the caller's to drop.
///
/// # Errors
/// Where the input or output fails.
pub fn serve(
    guest: &mut Guest,
    out: &std::path::Path,
    input: impl BufRead,
    mut output: impl Write,
) -> std::io::Result<()> {
    for line in input.lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let answer = match serde_json::from_str::<Line>(&line) {
            Err(error) => {
                json!({"id": null, "error": {"kind": "bad_request", "message": format!("expected a request as one JSON object and found {error}"), "lost": false}})
            }
            Ok(request) if request.method == "quit" => {
                writeln!(output, "{}", json!({"id": request.id, "ok": {}}))?;
                return output.flush();
            }
            Ok(request) => {
                let id = request.id;
                match obey(guest, request) {
                    Ok(value) => json!({"id": id, "ok": value}),
                    Err(error) => json!({"id": id, "error": describe(guest, out, error)}),
                }
            }
        };
        serde_json::to_writer(&mut output, &answer)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

/// An error as JSON; where the guest is lost, what there is of it is kept first.
fn describe(guest: &mut Guest, out: &std::path::Path, error: Error) -> Value {
    let lost = error.lost();
    let (kind, detail) = match &error {
        Error::Guest { failure, .. } => {
            let value = serde_json::to_value(failure).unwrap_or_default();
            match value.as_object().and_then(|object| object.iter().next()) {
                Some((kind, detail)) => (kind.clone(), detail.clone()),
                None => ("unknown".into(), Value::Null),
            }
        }
        Error::Input(_) => ("bad_request".into(), Value::Null),
        _ if lost => ("lost".into(), Value::Null),
        _ => ("not_judged".into(), Value::Null),
    };
    let error = if lost { keep(guest, out, error) } else { error };
    json!({"kind": kind, "message": error.to_string(), "detail": detail, "lost": lost})
}

/// Makes a bundle of a guest that was lost by `error`, and names it in the error.
pub fn keep(guest: &mut Guest, out: &std::path::Path, error: Error) -> Error {
    let kept = boot::bundle_directory(out)
        .and_then(|directory| bundle(guest, &directory, &error.to_string()));
    boot::with_bundle(error, kept)
}

/// Writes a bundle of the guest as it is.
///
/// # Errors
/// Where a file cannot be written.
pub fn bundle(guest: &mut Guest, directory: &std::path::Path, why: &str) -> Result<PathBuf, Error> {
    let capture = guest.capture_all();
    boot::bundle(
        guest.link().machine.as_ref(),
        capture.as_ref().ok(),
        directory,
        why,
        guest.kernel(),
    )?;
    for name in ["channel.log", "console.log"] {
        let _ = std::fs::copy(guest.scratch().join(name), directory.join(name));
    }
    Ok(directory.to_path_buf())
}

fn params<'v, T: Deserialize<'v>>(method: &str, value: &'v Value) -> Result<T, Error> {
    T::deserialize(value)
        .map_err(|error| Error::Input(format!("the parameters of {method} make no sense: {error}")))
}

fn obey(guest: &mut Guest, request: Line) -> Result<Value, Error> {
    let deadline = Duration::from_millis(request.deadline_ms);
    let (method, value) = (request.method.as_str(), &request.params);
    match method {
        "command" => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Passed {
                command: Command,
            }
            let passed: Passed = params(method, value)?;
            let outcome = guest.command(passed.command, deadline)?;
            Ok(serde_json::to_value(outcome).unwrap_or_default())
        }
        "look" => {
            let p: OfProcess = params(method, value)?;
            let seen = if p.again {
                look_again(guest, p.process, &p.expectations)
            } else {
                look(guest, p.process, &p.expectations)
            };
            seen.map(|seen| look_json(&seen))
        }
        "judge" => {
            let p: OfProcess = params(method, value)?;
            let pokes: Vec<Poke> = p
                .pokes
                .iter()
                .map(|poke| Poke {
                    address: PhysicalAddress(poke.address),
                    word: poke.word,
                })
                .collect();
            let mut seen = if p.again && pokes.is_empty() {
                look_held_again(guest, p.process, &p.expectations)?
            } else {
                look_held(guest, p.process, &p.expectations, &pokes)?
            };
            if p.again && !pokes.is_empty() {
                seen.reread = Some(Reread::none(
                    "words were written from outside (pokes), which no machine records",
                ));
            }
            Ok(look_json(&seen))
        }
        "hold" => guest
            .hold(params::<OfProcess>(method, value)?.process)
            .map(|()| json!({})),
        "release" => guest
            .release(params::<OfProcess>(method, value)?.process)
            .map(|()| json!({})),
        "fail_allocations" => {
            let p: Failing = params(method, value)?;
            fail_allocations(guest, p.process, p.order).map(|()| json!({}))
        }
        "allow_allocations" => {
            allow_allocations(guest, params::<OfProcess>(method, value)?.process)
                .map(|()| json!({}))
        }
        "tour" => {
            let p: Tour = params(method, value)?;
            let workload = WORKLOADS
                .iter()
                .find(|workload| workload.name == p.name)
                .ok_or_else(|| {
                    Error::Input(format!("there is no workload {:?} in the tour", p.name))
                })?;
            let policy = p.policy.unwrap_or_else(|| "variable".into());
            Stage::new(guest, &policy)?
                .spoiling(p.spoil)
                .play(workload.run)
                .map(|played| tour_json(&played))
        }
        "translate" => translate::translate(guest, &params(method, value)?),
        "poke" => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Words {
                pokes: Vec<RawPoke>,
            }
            let p: Words = params(method, value)?;
            guest.forget_copy();
            let mut paused = guest.machine().pause()?;
            for poke in &p.pokes {
                paused.write(PhysicalAddress(poke.address), &poke.word.to_le_bytes())?;
            }
            paused.resume()?;
            Ok(json!({}))
        }
        "words" => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Range {
                #[serde(deserialize_with = "hex")]
                address: u64,
                count: usize,
            }
            let p: Range = params(method, value)?;
            let paused = guest.machine().pause()?;
            let words = paused.memory.words(PhysicalAddress(p.address), p.count);
            let words = words.map(|words| {
                words
                    .iter()
                    .map(|word| format!("{word:#x}"))
                    .collect::<Vec<_>>()
            });
            paused.resume()?;
            words.map(|words| json!({"words": words})).ok_or_else(|| {
                Error::Input(format!(
                    "{} words from {:#x} on are not all guest RAM",
                    p.count, p.address
                ))
            })
        }
        "kernel_half" => kernel_half(guest, params::<OfProcess>(method, value)?.process),
        "snapshot" => snapshot(guest, &params(method, value)?),
        "save" => {
            let p: Save = params(method, value)?;
            let capture = guest.capture(p.process, Extent { kernel: p.kernel }, &[])?;
            boot::save(&capture.snapshot, &p.path)?;
            Ok(json!({"path": p.path}))
        }
        "bundle" => {
            let p: Bundle = params(method, value)?;
            bundle(guest, &p.path, &p.why).map(|path| json!({"path": path}))
        }
        "machine" => {
            let status = format!("{:?}", guest.machine().status());
            let console = guest.machine().console().tail();
            Ok(
                json!({"kind": guest.machine().kind(), "command_line": guest.machine().command_line(), "status": status, "console": console, "ready_after_s": guest.ready_after().as_secs_f64()}),
            )
        }
        _ => Err(Error::Input(format!(
            "there is no method {method:?} in this session"
        ))),
    }
}

fn look_json(seen: &Look) -> Value {
    let snapshot = &seen.capture.snapshot;
    let entries = Subject::find(snapshot, None)
        .map(|subject| rows::rows(&snapshot.memory, &subject.regime))
        .unwrap_or_default();
    let mut json = json!({
        "verdict": seen.verdict,
        "companions": seen.companions,
        "entries": entries,
        "records": seen.orders,
        "stopped_us": u64::try_from(seen.capture.stopped.as_micros()).unwrap_or(u64::MAX),
    });
    match seen.reread.as_ref().map(|reread| &reread.tables) {
        None => {}
        Some(Ok(reread)) => json["reread"] = json!({"tables": reread.tables, "of": reread.of}),
        Some(Err(why)) => {
            json["reread"] = Value::Null;
            json["read_whole_because"] = json!(why);
        }
    }
    json
}

fn tour_json(played: &Played) -> Value {
    let checkpoints: Vec<Value> = played
        .seen
        .iter()
        .map(
            |seen| json!({"label": seen.label, "areas": seen.areas, "look": look_json(&seen.look)}),
        )
        .collect();
    json!({"left_out": played.left_out, "checkpoints": checkpoints})
}

/// Takes a process, by its pid or the only one, through a checkpoint into a file: both halves and the records.
fn snapshot(guest: &mut Guest, p: &Snap) -> Result<Value, Error> {
    let outcome = guest.command(Command::Processes {}, DEADLINE)?;
    let protocol::Outcome::Processes { processes } = outcome else {
        return Err(crate::guest::unexpected("processes", &outcome));
    };
    let found: Vec<_> = processes
        .iter()
        .filter(|info| p.pid.is_none_or(|pid| info.pid == pid))
        .collect();
    let [only] = found.as_slice() else {
        let listed: Vec<String> = processes
            .iter()
            .map(|info| format!("{} ({})", info.pid, info.name))
            .collect();
        return Err(Error::Input(format!(
            "expected one workload process to look at and found {}; choose one of {} with --pid",
            found.len(),
            listed.join(", ")
        )));
    };
    let process = only.process;
    let seen = look_whole(guest, process, &[], Extent { kernel: true })?;
    boot::save(&seen.capture.snapshot, &p.path)?;
    Ok(json!({"path": p.path}))
}

/// The kernel's tables, entry by entry, and what the rules say of them.
fn kernel_half(guest: &mut Guest, process: ProcessId) -> Result<Value, Error> {
    let capture = guest.capture(process, Extent { kernel: true }, &[])?;
    let snapshot = &capture.snapshot;
    let upper = join::kernel_half(&snapshot.cpus).ok_or_else(|| {
        Error::Input(
            "no CPU shows the kernel's own half: all are at EL0 with KPTI's trampoline".into(),
        )
    })?;
    Ok(json!({"first": upper.first.0, "entries": rows::rows(&snapshot.memory, &upper)}))
}
