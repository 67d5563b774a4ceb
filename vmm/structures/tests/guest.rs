// SPDX-License-Identifier: GPL-2.0-only
//! A real guest's tasks and VMAs, read from its memory alone, against what its own `/proc` says.
//!
//! `FOLIOSCOPE_TEST_IMAGE` names the kernel, `FOLIOSCOPE_TEST_INITRD` the rig's initramfs. Without them nothing is
//! tested: it says so, and fails where `FOLIOSCOPE_TEST_REQUIRE_GUEST=1` demands a guest.

use std::path::PathBuf;
use std::time::Duration;

use linux::vma::{parse_smaps, Vma};
use machine::qemu::{Config, Qemu};
use machine::Machine;
use protocol::{Answer, Command, Message, Outcome, Request};
use stage1::{Half, Regime};
use structures::tasks::{processes, Process};
use structures::vmas::Layout;
use structures::vmcoreinfo::VmCoreInfo;
use structures::{Kernel, View};

const PATIENCE: Duration = Duration::from_secs(120);

fn boot(name: &str) -> Option<Qemu> {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let image = path("FOLIOSCOPE_TEST_IMAGE");
    let initrd = path("FOLIOSCOPE_TEST_INITRD");
    let (Some(image), Some(initrd)) = (image, initrd) else {
        let demanded = std::env::var_os("FOLIOSCOPE_TEST_REQUIRE_GUEST").is_some_and(|v| v == "1");
        let message = "no guest to test: set FOLIOSCOPE_TEST_IMAGE and FOLIOSCOPE_TEST_INITRD";
        assert!(!demanded, "{message}");
        eprintln!("NOT TESTED: {message}");
        return None;
    };
    let work = std::env::temp_dir().join(format!("structures-{}-{name}", std::process::id()));
    let mut config = Config::new(image, &work);
    config.initrd = Some(initrd);
    config.memory_bytes = 512 << 20;
    config.cmdline = "console=ttyAMA0 rdinit=/init".into();
    let mut machine = Qemu::start(&config).unwrap();
    assert!(!machine.receive_line(PATIENCE).unwrap().is_empty());
    Some(machine)
}

fn ask(machine: &mut Qemu, command: Command) -> Outcome {
    let request = Request {
        id: 1,
        deadline_ms: 60_000,
        command,
    };
    let mut line = serde_json::to_vec(&request).unwrap();
    line.push(b'\n');
    machine.send(&line, PATIENCE).unwrap();
    loop {
        let line = machine.receive_line(PATIENCE).unwrap();
        if let Message::Reply(reply) = serde_json::from_slice(&line).unwrap() {
            match reply.result {
                Answer::Ok(outcome) => return outcome,
                Answer::Error(failure) => panic!("{failure:?}"),
            }
        }
    }
}

fn file(machine: &mut Qemu, path: String) -> String {
    let command = Command::ReadFile {
        path,
        process: None,
        offset: 0,
        max: None,
    };
    match ask(machine, command) {
        Outcome::File(file) => file.content.text().expect("text").to_owned(),
        other => panic!("{other:?}"),
    }
}

/// Facts read of a guest at one instant.
struct Seen {
    /// All processes, and the VMAs of each that has any.
    all: Vec<(Process, Vec<Vma>)>,
    info: VmCoreInfo,
    /// `swapper_pg_dir` in the kernel's symbol table.
    swapper: Option<u64>,
    /// The guest's RAM: where it begins.
    ram: u64,
}

fn seen(machine: &mut Qemu) -> Seen {
    let paused = machine.pause().unwrap();
    let cpu = paused
        .cpus
        .iter()
        .find(|cpu| cpu.el() == 1)
        .expect("an idle CPU");
    let upper = Regime::new(&cpu.system, Half::Upper).unwrap();
    let memory = &paused.memory;
    let kernel = Kernel::find(memory, &upper, cpu.system.vbar_el1.unwrap()).unwrap();
    let view = View {
        memory,
        upper: &upper,
    };
    let layout = Layout::new(&kernel, view).unwrap();
    let all = processes(&kernel, view).unwrap();
    let vmas = |process: &Process| {
        let mm = process.mm;
        mm.map_or(vec![], |mm| layout.vmas(view, mm).unwrap())
    };
    let all = all.into_iter();
    let all = all.map(|process| (vmas(&process), process));
    let seen = Seen {
        all: all.map(|(vmas, process)| (process, vmas)).collect(),
        info: VmCoreInfo::read(&kernel, view).unwrap(),
        swapper: kernel.symbols.address("swapper_pg_dir"),
        ram: memory.regions()[0].range().base.0,
    };
    paused.resume().unwrap();
    seen
}

#[test]
fn tasks_and_vmas_are_those_of_proc() {
    let Some(mut machine) = boot("proc") else {
        return;
    };
    let spawn = Command::Spawn {
        name: "seen-outside".into(),
        cpu: None,
        randomize: false,
    };
    let Outcome::Spawned(spawned) = ask(&mut machine, spawn) else {
        panic!("no process")
    };
    let pid = spawned.pid;
    let seen = seen(&mut machine);
    let all = &seen.all;
    let tgids: Vec<u32> = all.iter().map(|(process, _)| process.tgid).collect();
    let listing = ask(
        &mut machine,
        Command::Run {
            argv: ["busybox", "ls", "/proc"].map(str::to_owned).to_vec(),
            input: None,
            process: None,
        },
    );
    let text = format!("{listing:?}");
    for tgid in &tgids {
        assert!(
            text.contains(&tgid.to_string()),
            "{tgid} is not in /proc: {text}"
        );
    }
    assert!(
        tgids.contains(&1) && tgids.contains(&2),
        "init and kthreadd"
    );

    for wanted in [1, pid as u32] {
        let (process, vmas) = all
            .iter()
            .find(|(process, _)| process.tgid == wanted)
            .unwrap();
        let status = file(&mut machine, format!("/proc/{wanted}/status"));
        assert!(
            status.contains(&format!("Name:\t{}\n", process.name)),
            "{status}"
        );
        assert!(status.contains(&format!("Threads:\t{}\n", process.threads.len())));
        assert!(process.table.is_some());
        let stat = file(&mut machine, format!("/proc/{wanted}/stat"));
        let started: u64 = stat
            .rsplit(") ")
            .next()
            .unwrap()
            .split(' ')
            .nth(19)
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(process.started_ns / 10_000_000, started, "{stat}");
        let smaps = file(&mut machine, format!("/proc/{wanted}/smaps"));
        let inside = parse_smaps(&smaps).unwrap();
        assert!(inside.len() > 4, "{smaps}");
        assert_eq!(*vmas, inside, "process {wanted}");
    }
    // Threads of the kernel have no address space.
    let kthreadd = all.iter().find(|(process, _)| process.tgid == 2).unwrap();
    assert_eq!((kthreadd.0.mm, kthreadd.1.len()), (None, 0));

    // What the kernel wrote for readers of its dumps.
    let info = &seen.info;
    let release = file(&mut machine, "/proc/sys/kernel/osrelease".into());
    assert_eq!(info.value("OSRELEASE"), Some(release.trim()));
    assert!(seen.swapper.is_some());
    assert_eq!(info.symbol("swapper_pg_dir"), seen.swapper);
    assert_eq!(info.number("PHYS_OFFSET"), Some(seen.ram as i64));
}
