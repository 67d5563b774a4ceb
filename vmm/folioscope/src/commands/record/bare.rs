// SPDX-License-Identifier: GPL-2.0-only
//! Records a guest without an operating system of ours until it ends by itself.

use std::path::Path;
use std::time::{Duration, Instant};

use machine::qemu::{Config, Qemu};
use machine::{Machine as _, Status};
use untrusted::escaped;

use super::{of_trace, Record};
use crate::boot;
use crate::commands::output::say;
use crate::commands::Outcome;
use crate::recorded::{Live, Names, LAST};
use crate::Error;

/// Time between two checks.
const TICK: Duration = Duration::from_millis(10);

impl Record {
    pub(super) fn bare(&self, image: &Path) -> Outcome {
        let mut guest = self.guest.clone();
        guest.only_tcg()?;
        let initrd = guest.initrd.is_some().then(|| guest.initrd_path());
        let initrd = initrd.transpose()?;
        let live = Live::begin(&self.plugin, self.trace.as_deref())?;
        let mut config = Config::new(image, boot::scratch(&guest.out)?);
        config.qemu.clone_from(&guest.qemu);
        config.cpu.clone_from(&guest.cpu);
        config.memory_bytes = guest.memory;
        config.smp = guest.smp;
        config.cmdline.clone_from(&guest.append);
        config.initrd = initrd;
        config.recording = Some(live.recording());
        let started = Qemu::start(&config);
        let live = live.booted();
        let ended = started.map_err(Error::from).and_then(|mut machine| {
            let deadline = Instant::now() + Duration::from_secs(guest.boot_timeout);
            let ended = wait(&mut machine, deadline, guest.boot_timeout);
            let console = machine.console().tail();
            machine.quit(LAST);
            for line in console.trim_end().lines() {
                // A UART's lines end in both.
                say!("{}", escaped(line.trim_end_matches('\r')));
            }
            ended
        });
        let (judge, end) = live.join();
        if !end.has_begun() {
            ended?;
            return Err(Error::Input(end.said.join("; ")));
        }
        let symbols = self.symbols()?;
        let names = Names::linked(symbols.as_ref());
        let status = self.report.told(of_trace(), &judge, &end, &names)?;
        ended.map(|()| status)
    }
}

/// Waits for the end of a guest.
fn wait(machine: &mut Qemu, deadline: Instant, seconds: u64) -> Result<(), Error> {
    loop {
        match machine.status() {
            Status::Ended { .. } => return Ok(()),
            Status::Running if Instant::now() < deadline => std::thread::sleep(TICK),
            status => {
                return Err(Error::Input(format!(
                    "expected the guest to power off by itself within {seconds} s (--boot-timeout) and it is {status:?}"
                )))
            }
        }
    }
}
