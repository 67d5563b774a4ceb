// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope bench`: measures the costs of the rig on this machine.
//!
//! Figures depend on the machine and its load, so none is ever a test. Figures that are compared are measured in turn
//! in the same run.

mod again;
mod bare;
mod boot;
mod checkpoint;
mod dump;
mod exits;
mod folios;
mod judge;
mod kvmtool;
mod recorder;
mod row;
mod tour;
mod walk;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use machine::process::without_descriptors;
use protocol::{Advice, Command as Request, Operation, Outcome as Reply, Spawned};
use serde_json::json;

use super::Outcome;
use crate::guest::unexpected;
use crate::knob::Knob;
use crate::ops::{advise, map, write};
use crate::options::GuestOptions;
use crate::replace::replace;
use crate::{Error, EXIT_OK};
use row::Row;

/// Measure walk, rules, boot, checkpoint, folios, dump, tour and recorder; print a table with the targets
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope bench --only walk,checkpoint --json out/bench.json")]
pub struct Bench {
    #[command(flatten)]
    pub(super) guest: GuestOptions,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A kvmtool to hold the monitor against, on KVM
    #[arg(long, value_name = "FILE", env = "KVMTOOL")]
    kvmtool: Option<PathBuf>,
    /// Only these measurements
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Walk,
    Judge,
    Boot,
    Checkpoint,
    Folios,
    Dump,
    Tour,
    Recorder,
}

impl Bench {
    pub fn run(self) -> Outcome {
        let started = Instant::now();
        let progress = Progress { started };
        let (mut rows, mut failed) = (Vec::new(), None);
        let on_kvm = self.guest.machine().is_in_process;
        for part in Part::value_variants() {
            if !self.only.is_empty() && !self.only.contains(part) {
                continue;
            }
            let measured = match part {
                Part::Walk => walk::measure(&self.guest, &progress),
                Part::Judge => judge::measure(&progress),
                Part::Boot if on_kvm => self.on_kvm(&progress),
                Part::Boot => boot::measure(&self.guest, &progress),
                Part::Checkpoint => checkpoint::measure(&self.guest, &progress),
                Part::Folios => folios::measure(&self.guest, &progress),
                Part::Dump => dump::measure(&self.guest, &progress),
                Part::Tour => tour::measure(&self.guest, &progress),
                // Only TCG reports stores.
                Part::Recorder if on_kvm => Ok(Vec::new()),
                Part::Recorder => recorder::measure(&self.guest, &progress),
            };
            progress.done();
            match measured {
                Ok(measured) => rows.extend(measured),
                // The measurements so far count.
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        row::print(&mut io::stdout().lock(), &rows)
            .map_err(Error::io("write to standard output"))?;
        if let Some(path) = &self.json {
            write_json(path, &rows, started.elapsed())?;
        }
        failed.map_or(Ok(EXIT_OK), Err)
    }
}

impl Bench {
    fn on_kvm(&self, progress: &Progress) -> Result<Vec<Row>, Error> {
        let mut rows = exits::measure(&self.guest, progress)?;
        if let Some(kvmtool) = &self.kvmtool {
            rows.extend(kvmtool::measure(kvmtool, &self.guest, progress)?);
        }
        Ok(rows)
    }
}

fn write_json(path: &Path, rows: &[Row], took: Duration) -> Result<(), Error> {
    let all = json!({
        "format": "folioscope-bench-1",
        "version": env!("CARGO_PKG_VERSION"),
        "host": {
            "cpu": cpu_model(),
            "cpus": std::thread::available_parallelism().map_or(1, usize::from),
            "load_average": load_average(),
        },
        "seconds": took.as_secs_f64(),
        "rows": rows,
    });
    let attempt = format!("write {}", path.display());
    replace(path, |error| error, |file| writeln!(file, "{all:#}")).map_err(Error::io(attempt))
}

fn cpu_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the load average of the last minute: the other work of the host.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Prints on standard error what is being measured.
struct Progress {
    started: Instant,
}

impl Progress {
    fn say(&self, what: &str) {
        let seconds = self.started.elapsed().as_secs();
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[Kbench, {seconds} s: {what} ...\r");
            let _ = io::stderr().flush();
        } else {
            eprintln!("folioscope: bench, {seconds} s: {what}");
        }
    }

    fn done(&self) {
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }
}

/// Returns another process of this program.
fn ourselves(arguments: &[&str], options: &GuestOptions) -> Result<Command, Error> {
    let program =
        std::env::current_exe().map_err(Error::io("find this program's own executable"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(kernel) = &options.kernel {
        command.arg("--kernel").arg(kernel);
    }
    if let Some(vmlinux) = &options.vmlinux {
        command.arg("--vmlinux").arg(vmlinux);
    }
    if let Some(initrd) = &options.initrd {
        command.arg("--initrd").arg(initrd);
    }
    command.args(["--machine", options.machine().name]);
    if options.hugepages {
        command.arg("--hugepages");
    }
    command.args(["--granule", options.granule.name()]);
    command.args(["--cpu", &options.cpu]);
    command.args(["--memory", &options.memory.to_string()]);
    command.args(["--smp", &options.smp.to_string()]);
    if !options.append.is_empty() {
        command.arg(format!("--append={}", options.append));
    }
    for Knob { path, text } in &options.knob {
        command.arg(format!("--knob={path}={text}"));
    }
    command.arg("--qemu").arg(&options.qemu);
    command.arg("--out").arg(&options.out);
    Ok(command)
}

/// A child that ends with us, and when this is dropped.
struct Helper(Child);

impl Helper {
    fn start(command: &mut Command) -> Result<Self, Error> {
        use std::os::unix::process::CommandExt as _;
        let name = command.get_program().to_string_lossy().into_owned();
        // SAFETY: between fork and exec only prctl runs, which is a plain system call.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = without_descriptors(command.stderr(Stdio::null())).spawn();
        child
            .map(Self)
            .map_err(Error::io(format!("start {name} (is it installed?)")))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Gone already, perhaps.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Maps `bytes` of memory by pages of the smallest size in a new process and writes to each; gives the
/// process's two numbers.
fn populate(
    bytes: u64,
    mut ask: impl FnMut(Request) -> Result<Reply, Error>,
) -> Result<Spawned, Error> {
    /// A request's deadline is for a quarter of this on a busy host.
    const AT_ONCE: u64 = 64 << 20;
    let request = Request::Spawn {
        name: "bench".into(),
        cpu: None,
        randomize: false,
    };
    let spawned = match ask(request)? {
        Reply::Spawned(spawned) => spawned,
        other => return Err(unexpected("spawn", &other)),
    };
    let process = spawned.process;
    let mut op = |op: Operation| ask(Request::Op { process, op });
    let address = match op(map(bytes, 0))? {
        Reply::Mapped { address, .. } => address,
        other => return Err(unexpected("mmap", &other)),
    };
    op(advise(address, bytes, Advice::Nohugepage))?;
    for offset in (0..bytes).step_by(AT_ONCE as usize) {
        op(write(address + offset, AT_ONCE.min(bytes - offset)))?;
    }
    Ok(spawned)
}
