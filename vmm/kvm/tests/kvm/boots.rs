// SPDX-License-Identifier: GPL-2.0-only
//! Guests with different CPUs, memory, interrupt controllers, places and channels.

use std::time::Instant;

use kvm::fdt::Gic;
use kvm::Kvm;
use machine::{Machine, MachineError, Status};
use protocol::{Command, Outcome};
use snapshot::Range;
use stage1::{Half, PhysMemory, PhysicalAddress};

use crate::guest::{physical, word, Guest, Work, ANSWER, BOOT};

#[test]
fn one_to_eight_cpus_boot_and_can_be_read() {
    let Some(mut work) = Work::new("cpus") else {
        return;
    };
    for smp in [1, 4, 8] {
        work.config.smp = smp;
        let start = Instant::now();
        let mut guest = Guest::boot(&work.config);
        println!(
            "{smp} CPUs, {:?}: hello after {:?}; exits: {}",
            guest.machine.gic(),
            start.elapsed(),
            guest.machine.exits()
        );
        assert_eq!(guest.machine.status(), Status::Running);
        let range = Range::new(PhysicalAddress(0x4000_0000), 512 << 20).unwrap();
        assert_eq!(guest.machine.ram(), [range]);
        let paused = guest.machine.pause().unwrap();
        assert_eq!(paused.cpus.len(), smp as usize);
        for (index, cpu) in paused.cpus.iter().enumerate() {
            let system = &cpu.system;
            assert_eq!(cpu.index, index);
            assert!(cpu.el() <= 1);
            assert_eq!(system.sctlr_el1 & 1, 1, "the MMU is on");
            assert_ne!(system.tcr_el1 & 0x3f, 0, "T0SZ");
            assert!(system.id_aa64mmfr.iter().all(Option::is_some));
            assert_eq!(
                system.vbar_el1.unwrap() >> 60,
                0xf,
                "vectors in the upper half"
            );
            if cpu.el() == 1 {
                assert_eq!(cpu.general.sp >> 60, 0xf, "the kernel's stack");
                assert_eq!(cpu.general.sp_el0.unwrap() >> 60, 0xf, "the current task");
            }
            // The kernel's text is where its own tables map it.
            let there = physical(&paused, cpu, Half::Upper, system.vbar_el1.unwrap());
            assert_ne!(word(&paused, there), 0);
        }
        std::mem::forget(paused);
        assert_eq!(guest.machine.status(), Status::Paused);
        drop(guest.machine.pause().unwrap());
        assert_eq!(guest.machine.status(), Status::Running);
        assert!(matches!(guest.ask(Command::Ping {}), Outcome::Pong { .. }));
        let exits = guest.machine.exits();
        assert!(exits.mmio_writes > 0 && exits.mmio_reads > 0 && exits.interrupted > 0);
    }
}

/// Returns the interrupt controller of this host by its device tree; `None` if the host describes it otherwise, as by
/// ACPI.
fn host_gic() -> Option<Gic> {
    let nodes = std::fs::read_dir("/proc/device-tree").ok()?;
    nodes.flatten().find_map(|node| {
        let compatible = std::fs::read(node.path().join("compatible")).ok()?;
        let mut names = compatible.split(|byte| *byte == 0);
        names.find_map(|name| match name {
            b"arm,gic-v3" => Some(Gic::V3),
            b"arm,cortex-a15-gic" | b"arm,gic-400" => Some(Gic::V2),
            _ => None,
        })
    })
}

#[test]
fn a_guest_has_the_controller_that_its_host_has() {
    let Some(work) = Work::new("gic") else {
        return;
    };
    let host = host_gic();
    if let Ok(expected) = std::env::var("FOLIOSCOPE_TEST_GIC") {
        let expected = if expected == "2" { Gic::V2 } else { Gic::V3 };
        assert_eq!(
            host,
            Some(expected),
            "the host that is tested on is another"
        );
    }
    let machine = Kvm::start(&work.config).unwrap();
    assert_eq!(machine.gic(), host.unwrap_or(machine.gic()));
    let mut guest = Guest::with(machine, &work.config);
    assert!(matches!(guest.ask(Command::Ping {}), Outcome::Pong { .. }));
    drop(guest);
    if host == Some(Gic::V3) {
        // A host with the compatible mode could serve both; no known one does.
        match Kvm::start_with(&work.config, Some(Gic::V2)) {
            Ok(machine) => {
                assert_eq!(machine.gic(), Gic::V2);
                drop(Guest::with(machine, &work.config));
            }
            Err(error) => {
                assert!(error.to_string().contains("neither a GICv3"), "{error}");
            }
        }
    }
}

#[test]
fn a_kernel_runs_at_another_place() {
    let Some(mut work) = Work::new("offset") else {
        return;
    };
    work.config.load_offset = 34 << 20;
    let mut guest = Guest::boot(&work.config);
    let paused = guest.machine.pause().unwrap();
    let cpu = paused.cpus[0];
    let there = physical(&paused, &cpu, Half::Upper, cpu.system.vbar_el1.unwrap());
    assert!(there.0 >= 0x4000_0000 + (34 << 20), "{there}");
}

#[test]
fn large_memory_is_addressed() {
    let Some(mut work) = Work::new("large") else {
        return;
    };
    work.config.memory_bytes = 2 << 30;
    let mut guest = match Kvm::start(&work.config) {
        Err(MachineError::Config(error)) => {
            let there = host_memory();
            assert!(there < work.config.memory_bytes, "{there} bytes: {error}");
            return eprintln!("NOT TESTED: {error}");
        }
        other => Guest::with(other.unwrap(), &work.config),
    };
    let paused = guest.machine.pause().unwrap();
    assert!(paused
        .memory
        .words(PhysicalAddress(0xbfff_f000), 512)
        .is_some());
}

/// Returns all memory of this host in bytes, by its own account.
fn host_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<u64>().unwrap() * 1024
}

/// Huge pages of 2 MiB reserved on the host. Drop restores the number.
struct Reserved(String);

impl Reserved {
    const PAGES: &str = "/proc/sys/vm/nr_hugepages";

    /// Reserves them; returns `None` if this user may not.
    fn new(pages: u64) -> Option<Self> {
        let before = std::fs::read_to_string(Self::PAGES).unwrap();
        match std::fs::write(Self::PAGES, pages.to_string()) {
            Ok(()) => Some(Self(before)),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
                None
            }
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::PAGES, self.0.trim());
    }
}

#[test]
fn huge_pages_serve() {
    let Some(mut work) = Work::new("huge") else {
        return;
    };
    work.config.memory_bytes = 128 << 20;
    work.config.hugepages = true;
    let Some(_reserved) = Reserved::new(work.config.memory_bytes >> 21) else {
        return eprintln!("NOT TESTED: only root reserves huge pages");
    };
    let free = || -> u64 {
        let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
        std::fs::read_to_string(path)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    };
    let before = free();
    let mut guest = Guest::boot(&work.config);
    let used = before - free();
    assert!(used > 0, "the guest's memory is made of other pages");
    guest.machine.log_writes(true).unwrap();
    assert!(matches!(guest.ask(Command::Ping {}), Outcome::Pong { .. }));
    let mut paused = guest.machine.pause().unwrap();
    let written = paused.written().unwrap().unwrap();
    println!(
        "{used} of {before} huge pages: {} KiB written to",
        written.bytes() / 1024
    );
    assert!(!written.is_empty() && written.bytes() < 64 << 20);
    drop(paused);
    drop(guest);
    assert_eq!(free(), before, "all were given back");
    // If there are fewer than the guest needs, the error has what to do.
    work.config.memory_bytes *= 2;
    let error = Kvm::start(&work.config).unwrap_err().to_string();
    assert!(error.contains("nr_hugepages"), "{error}");
}

#[test]
fn typing_on_the_console_reaches_the_guest() {
    let Some(mut work) = Work::new("typing") else {
        return;
    };
    work.config.cmdline = "console=ttyS0 quiet rdinit=/bin/busybox -- sh".into();
    let machine = Kvm::start(&work.config).unwrap();
    assert!(
        machine.console().wait_for("# ", BOOT),
        "{}",
        machine.console().tail()
    );
    machine.console().write(b"echo $((6 * 7))-typed\n").unwrap();
    let seen = machine.console().wait_for("42-typed", ANSWER);
    assert!(seen, "{}", machine.console().tail());
    // More than a FIFO holds, at once.
    let long = "x".repeat(900);
    machine
        .console()
        .write(format!("echo {long}-long | wc -c\n").as_bytes())
        .unwrap();
    assert!(
        machine.console().wait_for("\n906", ANSWER),
        "{}",
        machine.console().tail()
    );
}

#[test]
fn the_second_uart_serves_where_there_is_no_virtio() {
    let Some(mut work) = Work::new("uart") else {
        return;
    };
    work.config.cmdline += " folioscope.channel=uart";
    let mut guest = Guest::boot(&work.config);
    for _ in 0..20 {
        assert!(matches!(guest.ask(Command::Ping {}), Outcome::Pong { .. }));
    }
    // More than the guest's terminal layer takes at once; each byte is two exits.
    let text = "z".repeat(6_000);
    let command = Command::WriteFile {
        path: "/tmp/long".into(),
        text: text.clone(),
        process: None,
        create: true,
    };
    guest.ask(command);
    let command = Command::ReadFile {
        path: "/tmp/long".into(),
        process: None,
        offset: 0,
        max: None,
    };
    match guest.ask(command) {
        Outcome::File(file) => assert_eq!(file.content, protocol::Content::Text(text)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_guests_do_not_meet() {
    let Some(work) = Work::new("two") else { return };
    let mut one = Guest::boot(&work.config);
    let mut other = work.config.clone();
    other.work_dir = work.folder.join("other");
    let mut two = Guest::boot(&other);
    let paused = one.machine.pause().unwrap();
    assert!(matches!(two.ask(Command::Ping {}), Outcome::Pong { .. }));
    drop(paused);
    one.machine.kill();
    assert_eq!(two.machine.status(), Status::Running);
    assert!(matches!(two.ask(Command::Ping {}), Outcome::Pong { .. }));
}
