// SPDX-License-Identifier: GPL-2.0-only
//! Measures our monitor beside kvmtool on the same KVM, in turn: the same kernel, memory and init, from starting the
//! program to its end. The init prints a line and switches the machine off.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::json;

use super::row::{Row, Target, Times};
use super::{bare, Helper, Progress};
use crate::boot::scratch;
use crate::kernel::Kernel;
use crate::options::GuestOptions;
use crate::Error;

const ROUNDS: usize = 7;
/// Memory of the guest in MiB.
const MEMORY: u64 = 512;

pub fn measure(
    kvmtool: &Path,
    options: &GuestOptions,
    progress: &Progress,
) -> Result<Vec<Row>, Error> {
    let scratch = scratch(&options.out)?;
    let kernel = Kernel::prepare(options, &scratch)?;
    let initramfs = bare::initramfs(&scratch, bare::Then::PowersOff)?;
    let program =
        std::env::current_exe().map_err(Error::io("find this program's own executable"))?;
    let mut rows = Vec::new();
    for (name, words) in [("quiet", "quiet"), ("all console bytes", "")] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 1..=ROUNDS {
            progress.say(&format!("ours and kvmtool, {name}, {round} of {ROUNDS}"));
            let mut command = Command::new(&program);
            command
                .args(["boot", "--console", "--machine", "kvm", "--cpus", "1"])
                .args(["--memory", &format!("{MEMORY}M")])
                .arg(format!("--append={words}"))
                .arg("--kernel")
                .arg(&kernel.image)
                .arg("--initrd")
                .arg(&initramfs)
                .arg("--out")
                .arg(&options.out);
            ours.push(to_end(&mut command, "ours")?);
            let mut command = Command::new(kvmtool);
            command
                .args(["run", "--cpus", "1", "--mem", &MEMORY.to_string()])
                .args(["--console", "serial", "--params"])
                .arg(format!(
                    "console=ttyS0 earlycon=uart8250,mmio,0x1000000 {words}"
                ))
                .arg("--kernel")
                .arg(&kernel.image)
                .arg("--initrd")
                .arg(&initramfs)
                // It keeps a socket there.
                .env("HOME", &scratch);
            theirs.push(to_end(&mut command, "kvmtool")?);
        }
        let (ours, theirs) = (Times::new(ours), Times::new(theirs));
        rows.push(Row {
            name: format!("start to power off, to kvmtool, {name}"),
            value: ours.median() / theirs.median(),
            unit: "x",
            target: Target::AtMost(0.8),
            method: format!(
                "medians of {ROUNDS} in turn, {:.2} s and {:.2} s; bests {:.2} s and {:.2} s",
                ours.median(),
                theirs.median(),
                ours.best(),
                theirs.best()
            ),
            detail: json!({"ours": ours.detail(), "kvmtool": theirs.detail()}),
        });
    }
    Ok(rows)
}

/// Measures the time from a program's start to its end. Its guest must print its line.
fn to_end(command: &mut Command, name: &str) -> Result<Duration, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let start = Instant::now();
    let mut child = Helper::start(command)?;
    let mut said = Vec::new();
    let stdout = child.0.stdout.take();
    // Dropping the child ends it, and with it the output read here.
    let (tell, told) = channel();
    let took = std::thread::scope(|scope| {
        if let Some(mut stdout) = stdout {
            let said = &mut said;
            scope.spawn(move || {
                let _ = stdout.read_to_end(said);
                let _ = tell.send(());
            });
        }
        let hangs = told.recv_timeout(bare::PATIENCE) == Err(RecvTimeoutError::Timeout);
        let ended = match hangs {
            true => None,
            false => child.0.wait().ok(),
        };
        let took = start.elapsed();
        drop(child);
        ended.map(|_| took)
    });
    let wanted = bare::READY.as_bytes();
    let ready = said.windows(wanted.len()).any(|window| window == wanted);
    took.filter(|_| ready).ok_or_else(|| Error::GuestLost {
        what: format!(
            "the guest of {name} did not print {:?} and end within {} s; see what it says: {command:?}",
            bare::READY,
            bare::PATIENCE.as_secs()
        ),
    })
}
