// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope attach`: a running guest, ours or in an external QEMU.

use std::path::{Path, PathBuf};

use analysis::{external_qemu::Foreign, unattended::Stops as _};
use clap::{Args, Subcommand};
use evidence::{
    elsewhere::{is_mmu_off, no_linux},
    kernel_half, table_of,
};
use serde_json::json;

use super::output::say;
use super::{check, dump, explain, kernel, maps, page, ps, save, watch, Outcome};
use crate::holder::{ask, is_ours};
use crate::{Error, EXIT_OK};

/// Look into a running guest: in a QEMU of your own, or held by `folioscope boot`
#[derive(Args, Debug)]
#[command(
    subcommand_value_name = "WHAT",
    subcommand_help_heading = "What to do there (without one: say what is there)",
    after_help = "QEMU has to be started with shared memory and a QMP socket:\n  qemu-system-aarch64 -machine virt,memory-backend=ram -m 1G -object memory-backend-memfd,id=ram,size=1G,share=on \\\n    -qmp unix:qmp.sock,server=on,wait=off ...\n\nExample: folioscope attach qmp.sock check --json verdict.json"
)]
pub struct Attach {
    /// QEMU's QMP socket, or the control socket that `folioscope boot` prints
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    Check(check::Check),
    Dump(dump::Dump),
    Explain(explain::Explain),
    Save(save::Save),
    Ps(ps::Ps),
    Maps(maps::Maps),
    Page(page::Page),
    Kernel(kernel::Kernel),
    Watch(watch::Watch),
}

impl Attach {
    pub fn run(self) -> Outcome {
        let socket = self.socket;
        match self.what {
            None => found(&socket),
            Some(What::Check(mut check)) => {
                check.source.attach(socket)?;
                check.run()
            }
            Some(What::Dump(mut dump)) => {
                dump.source.attach(socket)?;
                dump.run()
            }
            Some(What::Explain(mut explain)) => {
                explain.source.attach(socket)?;
                explain.run()
            }
            Some(What::Save(mut save)) => {
                if save.guest.replace(socket).is_some() {
                    return Err(Error::Input(
                        "expected one guest and found two: leave out --guest behind attach".into(),
                    ));
                }
                save.run()
            }
            Some(What::Ps(mut ps)) => {
                ps.inside.attach(socket)?;
                ps.run()
            }
            Some(What::Maps(mut maps)) => {
                maps.inside.attach(socket)?;
                maps.run()
            }
            Some(What::Page(mut page)) => {
                page.inside.attach(socket)?;
                page.run()
            }
            Some(What::Kernel(mut kernel)) => {
                kernel.inside.attach(socket)?;
                kernel.run()
            }
            Some(What::Watch(mut watch)) => {
                watch.inside.attach(socket)?;
                watch.run()
            }
        }
    }
}

/// Returns the bytes of whole pages, in MiB where that is a whole number.
fn size(bytes: u64) -> String {
    match bytes % (1 << 20) {
        0 => format!("{} MiB", bytes >> 20),
        _ => format!("{} KiB", bytes >> 10),
    }
}

/// Returns what is there.
fn found(socket: &Path) -> Outcome {
    if is_ours(socket)? {
        let answer = ask(socket, "machine", &json!({}))?;
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        say!(
            "a guest that `folioscope boot` holds: {}, {}",
            text("kind"),
            text("status")
        );
        say!("command  {}", text("command_line"));
        say!(
            "judge    folioscope attach {} check --pid PID",
            socket.display()
        );
        return Ok(EXIT_OK);
    }
    let mut guest = Foreign::new(socket, None)?;
    let instant = guest.instant_at_work(None)?;
    let (stops, longest) = guest.stops;
    let found = guest.found().clone();
    let symbols = match guest.kernel() {
        Ok(kernel) => format!(
            "{} symbols and its types, in its memory",
            kernel.symbols.len()
        ),
        Err(why) => why,
    };
    let release = guest.release().cloned();
    // The guest is not needed while the output is read, however slowly.
    drop(guest);
    let snapshot = instant.snapshot;
    let [major, minor, micro] = found.version;
    say!(
        "QEMU {major}.{minor}.{micro}, {}, {} CPU(s) by {}, process {}, {}",
        found.machine,
        snapshot.cpus.len(),
        found.accelerator,
        found.pid,
        found.status
    );
    for ram in &found.ram {
        say!(
            "RAM      {}, {} of {}: {}",
            ram.range,
            size(ram.range.bytes),
            ram.backend,
            ram.file
        );
    }
    if let [first, ..] = found.left_out.as_slice() {
        let bytes: u64 = found.left_out.iter().map(|part| part.bytes).sum();
        say!(
            "left out {} bytes of RAM in {} parts of pages, with something else beside each in its page; the first is {first}",
            bytes,
            found.left_out.len()
        );
    }
    say!("gdb stub {}", found.stub);
    let notes = &snapshot.notes;
    match &release {
        Ok(found) => say!(
            "kernel   Linux {}, {} KiB pages, by {}",
            found.release,
            notes.page_size / 1024,
            found.by
        ),
        Err(why) => say!("kernel   {why}"),
    }
    // Without Linux nothing else was looked for.
    if no_linux(&snapshot.cpus).is_none() {
        say!("symbols  {symbols}");
    }
    for (cpu, idle) in snapshot.cpus.iter().zip(&instant.work.idle) {
        say!(
            "CPU {:<4} EL{}{}{} PC {:#018x} TTBR0_EL1 {:#018x} TTBR1_EL1 {:#018x} CONTEXTIDR_EL1 {}",
            cpu.index,
            cpu.el(),
            if is_mmu_off(cpu) { " MMU off" } else { "" },
            if *idle { " idle" } else { "" },
            cpu.general.pc,
            cpu.system.ttbr0_el1,
            cpu.system.ttbr1_el1,
            cpu.system.contextidr_el1
        );
    }
    let elsewhere = no_linux(&snapshot.cpus).is_some();
    let half = match kernel_half(&snapshot.cpus) {
        Some(_) => "the kernel half",
        None if elsewhere => "no kernel half, as TTBR1_EL1 is not in use",
        None => "no kernel half, as no CPU shows it now",
    };
    let (others, running): (Vec<_>, Vec<_>) = notes
        .processes
        .iter()
        .partition(|process| table_of(process).is_some());
    let running = running.iter();
    let named = running.map(|process| match process.pid {
        0 => process.name.to_string(),
        pid => format!("process {pid} {}", process.name),
    });
    let mut processes: Vec<String> = named.collect();
    if !others.is_empty() {
        processes.push(format!("{} that no CPU runs now", others.len()));
    }
    let processes = match processes.is_empty() {
        true => "no process, as no CPU is in user mode now".to_owned(),
        false => processes.join(", "),
    };
    if elsewhere && notes.processes.is_empty() {
        say!("judge    nothing, as no tables of EL1 are in use");
    } else {
        say!(
            "judge    {half}; {processes}: folioscope attach {} check",
            socket.display()
        );
    }
    say!(
        "stopped  {stops} time(s) to be read, for {:.1} ms at most",
        longest.as_secs_f64() * 1e3
    );
    Ok(EXIT_OK)
}
