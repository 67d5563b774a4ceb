// SPDX-License-Identifier: GPL-2.0-only
//! QEMU's emulation.

use std::path::Path;

use machine::qemu::{Config, Counting, Qemu, Threads};
use machine::{private, Machine};

use super::backend::{command_line, Backend, Launch, TcgThread};
use crate::Error;

pub(super) const TCG: Backend = Backend {
    name: "tcg",
    about: "QEMU's emulation",
    kind: |_| "tcg",
    cpu: None,
    is_tcg: true,
    is_in_process: false,
    start,
};

/// Starts QEMU.
fn start(launch: &Launch<'_>) -> Result<Box<dyn Machine>, Error> {
    if launch.hugepages {
        return Err(Error::Input(
            "--hugepages is for guests on KVM, and this one runs under TCG; leave it out, or see --machine".into(),
        ));
    }
    let mut config = Config::new(launch.image, launch.scratch);
    launch.qemu.clone_into(&mut config.qemu);
    config.initrd = Some(launch.initrd.to_path_buf());
    launch.cpu.clone_into(&mut config.cpu);
    config.memory_bytes = launch.memory;
    config.smp = launch.smp;
    config.recording = launch.recording.cloned();
    config.counting = counting(launch)?;
    config.icount = launch.icount;
    config.threads = threads(launch.tcg_thread, launch.icount, launch.marks.is_some())?;
    // The early console shows a kernel that dies before it has a driver for the UART.
    config.cmdline = command_line("console=ttyAMA0 earlycon=pl011,0x9000000", launch);
    Ok(Box::new(Qemu::start(&config)?))
}

/// Returns how TCG runs the guest's CPUs: as the user says, else in threads if a plugin counts each; `-icount` has one.
///
/// # Errors
/// If the options contradict each other.
pub fn threads(chosen: Option<TcgThread>, icount: bool, marked: bool) -> Result<Threads, Error> {
    match (chosen, icount) {
        (Some(TcgThread::Multi), true) => Err(Error::Input(
            "--icount has all CPUs run in one thread, and --tcg-thread multi does not; leave one of them out".into(),
        )),
        (Some(TcgThread::Single), false) if marked => Err(Error::Input(
            "--marks needs a thread for each CPU or --icount, and --tcg-thread single has neither; leave one of them out".into(),
        )),
        (Some(TcgThread::Multi), false) => Ok(Threads::Multi),
        (None, false) if marked => Ok(Threads::Multi),
        (Some(TcgThread::Single) | None, _) => Ok(Threads::Single),
    }
}

fn counting(launch: &Launch<'_>) -> Result<Option<Counting>, Error> {
    let Some(marks) = launch.marks else {
        return Ok(None);
    };
    if !launch.counter.is_file() {
        return Err(Error::Input(format!(
            "expected the counter's plugin at {} and found no file there; build it with: vmm/setup/plugin.sh",
            launch.counter.display()
        )));
    }
    if launch.entries && launch.smp != 1 {
        return Err(Error::Input(format!(
            "--entries is for guests with one CPU and this one has {}; say --smp 1, or leave it out",
            launch.smp
        )));
    }
    if let Some(list) = launch.functions.filter(|list| !list.is_file()) {
        return Err(Error::Input(format!(
            "expected a list of functions at {} and found no file there; check --functions",
            list.display()
        )));
    }
    // If a plugin rejects its arguments, QEMU reports no more than that.
    for file in [Some(marks), launch.executed].into_iter().flatten() {
        private::create(file).map_err(Error::io(format!("write {}", file.display())))?;
    }
    let whole =
        |path: &Path| std::path::absolute(path).map_err(Error::io("find the working directory"));
    Ok(Some(Counting {
        plugin: whole(launch.counter)?,
        marks: whole(marks)?,
        entries: launch.entries,
        functions: launch.functions.map(whole).transpose()?,
        executed: launch.executed.map(whole).transpose()?,
    }))
}
