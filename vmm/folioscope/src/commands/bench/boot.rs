// SPDX-License-Identifier: GPL-2.0-only
//! Measures the time from starting our own command to the agent's greeting, beside bare QEMU with a do-nothing init.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::{json, Value};

use super::row::{Row, Target, Times};
use super::{bare, ourselves, Helper, Progress};
use crate::boot::scratch;
use crate::kernel::Kernel;
use crate::machines::threads;
use crate::options::GuestOptions;
use crate::Error;

const ROUNDS: usize = 7;
const LEAST: usize = 5;
/// Time after which no more rounds than the minimum are run.
const BUDGET: Duration = Duration::from_secs(45);

pub fn measure(options: &GuestOptions, progress: &Progress) -> Result<Vec<Row>, Error> {
    let scratch = scratch(&options.out)?;
    let kernel = Kernel::prepare(options, &scratch)?;
    let initramfs = bare::initramfs(&scratch, bare::Then::Waits)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for round in 0..ROUNDS {
        if round >= LEAST && start.elapsed() > BUDGET {
            break;
        }
        progress.say(&format!(
            "boot, ours and bare QEMU, {} of {ROUNDS}",
            round + 1
        ));
        let (took, command_line) = session(options)?;
        ours.push(took);
        theirs.push(bare_qemu(
            options,
            &kernel.image,
            &initramfs,
            &command_line,
        )?);
    }
    let (rounds, ours, theirs) = (ours.len(), Times::new(ours), Times::new(theirs));
    let detail = json!({
        "ours": ours.detail(),
        "bare": theirs.detail(),
        "ratio_of_bests": ours.best() / theirs.best(),
    });
    let row = Row::of(&detail);
    Ok(vec![
        row(
            "start to agent ready, to bare QEMU",
            ours.median() / theirs.median(),
            "x",
            Target::AtMost(1.2),
            format!(
                "medians of {rounds} in turn; bests {:.2} s and {:.2} s, {:.2} x",
                ours.best(),
                theirs.best(),
                ours.best() / theirs.best()
            ),
        ),
        row(
            "  ours",
            ours.median(),
            "s",
            Target::None,
            "exec of folioscope session to its ready line".into(),
        ),
        row(
            "  bare QEMU",
            theirs.median(),
            "s",
            Target::None,
            "exec to the line of an init that does nothing else; same kernel, CPU, memory".into(),
        ),
    ])
}

/// Starts a session; gives how long it took to its ready line, and the kernel's command line.
pub fn session(options: &GuestOptions) -> Result<(Duration, String), Error> {
    let mut command = ourselves(&["session"], options)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let start = Instant::now();
    let mut child = Helper::start(&mut command)?;
    let mut line = String::new();
    if let Some(stdout) = child.0.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(Error::io("read what a session says"))?;
    }
    let took = start.elapsed();
    let answer: Value = serde_json::from_str(&line).unwrap_or_default();
    match answer["ready"]["hello"]["cmdline"].as_str() {
        Some(command_line) => Ok((took, command_line.trim().to_owned())),
        None => Err(Error::GuestLost {
            what: format!(
                "expected a session's ready line and found {:?}; see whether this kernel boots: folioscope boot",
                line.trim_end()
            ),
        }),
    }
}

/// Boots the same kernel with the same CPUs and memory, a console and nothing else.
fn bare_qemu(
    options: &GuestOptions,
    kernel: &Path,
    initramfs: &Path,
    command_line: &str,
) -> Result<Duration, Error> {
    let mut command = Command::new(&options.qemu);
    command
        .args(["-M", "virt,gic-version=3"])
        .args([
            "-accel",
            threads(options.tcg_thread, options.icount, options.marks.is_some())?.accelerator(),
        ])
        .args(["-cpu", &options.cpu, "-smp", &options.smp.to_string()])
        .args(["-m", &format!("{}k", options.memory / 1024)])
        .args(["-nodefaults", "-display", "none", "-serial", "stdio"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", command_line])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let start = Instant::now();
    let mut child = Helper::start(&mut command)?;
    let Some(mut stdout) = child.0.stdout.take() else {
        return Err(bare::silent());
    };
    // A guest that hangs is ended by its own time-out: the read ends when QEMU does.
    let (pid, (over, ended)) = (child.pid(), std::sync::mpsc::channel::<()>());
    let watch = std::thread::spawn(move || {
        let hangs =
            ended.recv_timeout(bare::PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if hangs {
            // The child has not been waited for, so the number is its own.
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
    });
    let took = until_ready(&mut stdout).map(|()| start.elapsed());
    drop(over);
    let _ = watch.join();
    took.ok_or_else(bare::silent)
}

/// Reads to the line of the init; nothing where the guest ends before.
fn until_ready(stdout: &mut impl Read) -> Option<()> {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let count = stdout.read(&mut part).ok().filter(|&count| count > 0)?;
        let searched = all.len().saturating_sub(bare::READY.len());
        all.extend_from_slice(&part[..count]);
        let wanted = bare::READY.as_bytes();
        if all[searched..]
            .windows(wanted.len())
            .any(|window| window == wanted)
        {
            return Some(());
        }
    }
}
