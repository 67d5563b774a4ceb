// SPDX-License-Identifier: GPL-2.0-only
//! Peak memory of `folioscope dump` on a live guest with 4 GiB, guest RAM apart.

use std::io::Read as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::row::{Row, Target};
use super::{bare, ourselves, populate, Helper, Progress};
use crate::boot;
use crate::holder::ask;
use crate::options::GuestOptions;
use crate::source::only_socket;
use crate::Error;

const MEMORY: u64 = 4 << 30;
const MAPPED: u64 = 3 << 30;
const MIB: f64 = (1 << 20) as f64;

pub fn measure(options: &GuestOptions, progress: &Progress) -> Result<Vec<Row>, Error> {
    progress.say("booting a guest with 4 GiB");
    let options = GuestOptions {
        memory: MEMORY,
        policy: None,
        // Where it is the only guest.
        out: boot::scratch(&options.out)?.join("dump"),
        ..options.clone()
    };
    let mut command = ourselves(&["boot"], &options)?;
    let holder = Helper::start(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
    let deadline = Instant::now() + bare::PATIENCE;
    let socket = loop {
        if let Ok(socket) = only_socket(&options.out) {
            break socket;
        }
        if Instant::now() > deadline {
            return Err(Error::GuestLost {
                what:
                    "folioscope boot did not come up; see what it says: folioscope boot --memory 4G"
                        .into(),
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    progress.say("writing to 3 GiB of pages in the guest");
    let spawned = populate(MAPPED, |request| {
        let answer = ask(&socket, "command", &json!({"command": request}))?;
        serde_json::from_value(answer)
            .map_err(|error| Error::Input(format!("the guest's holder gave no outcome: {error}")))
    })?;

    progress.say("dumping");
    let mut dump = std::process::Command::new(
        std::env::current_exe().map_err(Error::io("find this program's own executable"))?,
    );
    dump.args(["dump", "--pid", &spawned.pid.to_string(), "--guest"]);
    dump.arg(&socket)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let start = Instant::now();
    let mut dump = Helper::start(&mut dump)?;
    let (over, held) = (AtomicBool::new(false), AtomicU64::new(0));
    let (peak, lines) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let now = status(holder.pid(), "RssAnon:").unwrap_or(0);
                held.fetch_max(now, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let read = read_out(&mut dump);
        over.store(true, Ordering::Relaxed);
        read
    })?;
    let took = start.elapsed().as_secs_f64();
    let held = held.load(Ordering::Relaxed);
    let ended = dump
        .0
        .wait()
        .map_err(Error::io("wait for folioscope dump"))?;
    if !ended.success() || lines < MAPPED / (64 << 10) {
        return Err(Error::Input(format!(
            "folioscope dump printed {lines} lines and ended with {ended}; try it: folioscope boot, then folioscope dump"
        )));
    }
    let detail = json!({
        "dump_peak_resident_bytes": peak,
        "holder_peak_anonymous_bytes": held,
        "lines": lines,
        "seconds": took,
    });
    Ok(vec![
        Row {
            name: "peak memory of dump, 4 GiB guest".into(),
            value: (peak + held) as f64 / MIB,
            unit: "MiB",
            target: Target::AtMost(64.0),
            method: format!(
                "dump: VmHWM {:.1}; holder of the guest: RssAnon {:.1}, polled",
                peak as f64 / MIB,
                held as f64 / MIB
            ),
            detail: detail.clone(),
        },
        Row {
            name: "  its time".into(),
            value: took,
            unit: "s",
            target: Target::None,
            method: format!("live capture to {lines} lines of text, 3 GiB by 4K pages"),
            detail,
        },
    ])
}

/// Reads all output; gives the most memory that was resident, of any kind, and the lines. The process waits
/// for us whenever the pipe is full, so its high-water mark is read at every 64 KiB of output, not by chance.
fn read_out(dump: &mut Helper) -> Result<(u64, u64), Error> {
    let (mut peak, mut lines) = (0, 0);
    let pid = dump.pid();
    let Some(stdout) = &mut dump.0.stdout else {
        return Ok((peak, lines));
    };
    let mut part = vec![0; 64 << 10];
    loop {
        peak = peak.max(status(pid, "VmHWM:").unwrap_or(0));
        match stdout.read(&mut part).map_err(Error::io("read a dump"))? {
            0 => return Ok((peak, lines)),
            count => {
                let ends = part[..count].iter().filter(|&&byte| byte == b'\n');
                lines += ends.count() as u64;
            }
        }
    }
}

/// Returns a size in `/proc/PID/status`, in bytes.
pub(super) fn status(pid: u32, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
