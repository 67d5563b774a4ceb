// SPDX-License-Identifier: GPL-2.0-only
//! A real guest under a real QEMU.
//!
//! `FOLIOSCOPE_TEST_IMAGE` names the kernel, `FOLIOSCOPE_TEST_INITRD` an initramfs whose `/init` sends a line on the
//! channel. Without them these tests have nothing to test. They print that, and fail if
//! `FOLIOSCOPE_TEST_REQUIRE_GUEST=1` requires a guest.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use machine::qemu::Qemu;
use machine::{Machine, MachineError, Status};
use snapshot::{read_core, write_core, Range, RangeSet, PAGE};
use stage1::{PhysMemory, PhysicalAddress, VirtualAddress};

mod rig;

use rig::{boot, config, Work, BOOT};

/// The agent runs on CPU 0; this one is idle, at EL1, whose translation is that of the kernel half.
const IDLE: usize = 1;

/// Returns the words at `address` as QEMU itself reads them.
fn xp(machine: &mut Qemu, address: PhysicalAddress, count: usize) -> Vec<u64> {
    let text = machine
        .monitor(&format!("xp /{count}gx {:#x}", address.0))
        .unwrap();
    text.lines()
        .flat_map(|line| line.split_once(':').unwrap().1.split_whitespace())
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap())
        .collect()
}

#[test]
fn each_cpu_model_gives_registers_and_memory() {
    for cpu in ["max", "cortex-a72", "neoverse-n1"] {
        let work = Work::new(cpu);
        let Some(mut config) = config(&work) else {
            return;
        };
        config.cpu = cpu.into();
        let mut machine = boot(&config);
        assert_eq!(machine.status(), Status::Running);
        let ram = machine.ram();
        assert_eq!(
            ram,
            [Range::new(PhysicalAddress(0x4000_0000), 512 << 20).unwrap()]
        );

        let mut paused = machine.pause().unwrap();
        assert_eq!(paused.cpus.len(), 2);
        for (index, cpu) in paused.cpus.iter().enumerate() {
            let system = &cpu.system;
            assert_eq!(cpu.index, index);
            assert!(cpu.el() <= 1);
            assert_eq!(system.sctlr_el1 & 1, 1, "the MMU is on");
            assert_ne!(system.tcr_el1 & 0x3f, 0, "T0SZ");
            let table = PhysicalAddress(system.ttbr1_el1 & 0x0000_ffff_ffff_f000);
            assert!(
                paused.memory.is_ram(table),
                "TTBR1_EL1 {:#x}",
                system.ttbr1_el1
            );
            if index == IDLE {
                assert_eq!(cpu.general.sp_el0.unwrap() >> 60, 0xf, "the current task");
            }
            assert!(system.id_aa64mmfr.iter().all(Option::is_some));
            assert_eq!(
                system.vbar_el1.unwrap() >> 60,
                0xf,
                "vectors in the upper half"
            );
        }
        let vectors = VirtualAddress(paused.cpus[IDLE].system.vbar_el1.unwrap());
        let there = paused
            .translate(IDLE, vectors)
            .unwrap()
            .expect("vectors are mapped");
        assert_eq!(
            paused
                .translate(IDLE, VirtualAddress(0xffff_ffff_ffff_f000))
                .unwrap(),
            None
        );
        let ours = paused.memory.words(there, 64).unwrap().to_vec();
        paused.resume().unwrap();
        assert_eq!(machine.status(), Status::Running);
        assert_eq!(xp(&mut machine, there, 64), ours, "kernel text on {cpu}");
    }
}

#[test]
fn a_write_from_outside_is_what_qemu_sees() {
    let work = Work::new("write");
    let Some(config) = config(&work) else { return };
    let mut machine = boot(&config);
    // The guest is left paused, as by a program that forgot to resume it.
    let mut paused = machine.pause().unwrap();
    let vectors = VirtualAddress(paused.cpus[IDLE].system.vbar_el1.unwrap());
    let there = paused.translate(IDLE, vectors);
    let there = there.unwrap().unwrap();
    let before = paused.memory.words(there, 1).unwrap()[0];
    let after = !before;
    paused.write(there, &after.to_le_bytes()).unwrap();
    assert_eq!(paused.memory.words(there, 1).unwrap(), [after]);
    std::mem::forget(paused);
    assert_eq!(machine.status(), Status::Paused);
    assert_eq!(xp(&mut machine, there, 1), [after]);
    let mut paused = machine.pause().unwrap();
    paused.write(there, &before.to_le_bytes()).unwrap();
    drop(paused);
    assert_eq!(machine.status(), Status::Running);
    assert_eq!(xp(&mut machine, there, 1), [before]);
}

#[test]
fn numa_memory_is_several_regions() {
    let work = Work::new("numa");
    let Some(mut config) = config(&work) else {
        return;
    };
    config.nodes = 2;
    let mut machine = boot(&config);
    let ram = machine.ram();
    assert_eq!(ram.len(), 2);
    for range in ram {
        let paused = machine.pause().unwrap();
        let ours = paused.memory.words(range.base, 512).unwrap().to_vec();
        let last = PhysicalAddress(range.end() - PAGE);
        assert!(paused.memory.words(last, 512).is_some());
        std::mem::forget(paused);
        assert_eq!(xp(&mut machine, range.base, 512), ours, "{range}");
        drop(machine.pause().unwrap());
    }
}

#[test]
fn pausing_is_quick_and_leaves_nothing_behind() {
    let work = Work::new("pause");
    let Some(config) = config(&work) else { return };
    let start = Instant::now();
    let mut machine = Qemu::start(&config).unwrap();
    println!("until the guest runs: {:?}", start.elapsed());
    machine.receive_line(BOOT).unwrap();
    println!("until the agent's first line: {:?}", start.elapsed());
    let mut stopped = Vec::new();
    let mut reading = Vec::new();
    for _ in 0..200 {
        let paused = machine.pause().unwrap();
        let read = Instant::now();
        let words = paused
            .memory
            .words(PhysicalAddress(0x4100_0000), (2 << 20) / 8)
            .unwrap();
        std::hint::black_box(words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        reading.push(read.elapsed());
        stopped.push(paused.resume().unwrap());
        std::thread::sleep(Duration::from_millis(2));
    }
    stopped.sort();
    reading.sort();
    println!(
        "guest stopped, registers of 2 CPUs and 2 MiB read: median {:?}, worst {:?}; of it reading {:?}",
        stopped[100], stopped[199], reading[100]
    );
    assert_eq!(machine.status(), Status::Running);
}

#[test]
fn the_gdb_stub_can_be_lent() {
    let work = Work::new("gdb");
    let Some(config) = config(&work) else { return };
    let mut machine = boot(&config);
    let socket = work.0.join("gdb.sock");
    machine.lend_gdb(&socket).unwrap();
    assert!(matches!(
        machine.pause().unwrap_err(),
        MachineError::GdbLent(_)
    ));
    assert_eq!(machine.status(), Status::Running);
    let mut debugger = UnixStream::connect(&socket).unwrap();
    debugger.write_all(b"$?#3f").unwrap();
    let mut answer = [0; 5];
    debugger.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+$T05");
    assert!(matches!(
        machine.take_gdb_back().unwrap_err(),
        MachineError::GdbLent(_)
    ));
    // As gdb leaves: by detaching, which resumes the guest.
    debugger.write_all(b"+$D#44").unwrap();
    debugger.read_exact(&mut answer).unwrap();
    drop(debugger);
    machine.take_gdb_back().unwrap();
    machine.lend_gdb(&socket).unwrap();
    machine.take_gdb_back().unwrap();
    assert!(!socket.exists());
    assert_eq!(machine.pause().unwrap().cpus.len(), 2);
    assert_eq!(machine.status(), Status::Running);
    let odd = machine.lend_gdb(Path::new("/tmp/a,b")).unwrap_err();
    assert!(
        odd.to_string().contains("cannot be a debugger's socket"),
        "{odd}"
    );
}

#[test]
fn a_live_guest_can_be_saved() {
    let work = Work::new("save");
    let Some(config) = config(&work) else { return };
    let mut machine = boot(&config);
    let core = work.0.join("core");
    let mut paused = machine.pause().unwrap();
    paused.notes_mut().page_size = 4096;
    let first = Range::new(PhysicalAddress(0x4000_0000), 1 << 20).unwrap();
    let ranges: RangeSet = [first].into_iter().collect();
    let mut out = std::io::BufWriter::new(std::fs::File::create(&core).unwrap());
    write_core(
        &mut out,
        &paused.cpus,
        &ranges,
        &paused.memory,
        &paused.notes,
    )
    .unwrap();
    let saved = read_core(&core).unwrap();
    assert_eq!(saved.cpus, paused.cpus);
    assert_eq!(saved.notes, paused.notes);
    assert_eq!(
        saved.memory.words(first.base, 512),
        paused.memory.words(first.base, 512)
    );
    drop(paused);
    if let Some(keep) = std::env::var_os("FOLIOSCOPE_TEST_KEEP_CORE") {
        std::fs::copy(&core, keep).unwrap();
    }
}

#[test]
fn a_guest_that_panics_is_told_from_one_that_is_silent() {
    let work = Work::new("panic");
    let Some(mut config) = config(&work) else {
        return;
    };
    config.cmdline = "console=ttyAMA0 rdinit=/nonexistent".into();
    let mut machine = Qemu::start(&config).unwrap();
    let error = machine.receive_line(BOOT).unwrap_err();
    assert!(matches!(error, MachineError::Panicked { .. }), "{error}");
    assert!(error.to_string().contains("Kernel panic"), "{error}");
    assert_eq!(machine.status(), Status::Panicked);
    // Its tables can still be read.
    let paused = machine.pause().unwrap();
    assert_eq!(paused.cpus.len(), 2);
    paused.resume().unwrap();
    assert_eq!(machine.status(), Status::Panicked);

    config.cmdline = "console=ttyAMA0 rdinit=/nonexistent panic=-1".into();
    let mut machine = Qemu::start(&config).unwrap();
    let error = machine.receive_line(BOOT).unwrap_err();
    let ended = matches!(error, MachineError::Ended { reset: true, .. });
    // Where the kernel drives the panic device, QEMU stops the guest before it can reset.
    assert!(
        ended || matches!(error, MachineError::Panicked { .. }),
        "{error}"
    );
    let paused = machine.pause().unwrap();
    assert_eq!(paused.cpus.len(), 2);
}

#[test]
fn silence_ends_in_time() {
    let work = Work::new("silence");
    let Some(config) = config(&work) else { return };
    let mut machine = boot(&config);
    let start = Instant::now();
    let error = loop {
        match machine.receive_line(Duration::from_millis(300)) {
            Ok(_) => (),
            Err(error) => break error,
        }
    };
    assert!(
        error.to_string().contains("said nothing for 300ms"),
        "{error}"
    );
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_qemu_that_is_gone_is_lost() {
    let work = Work::new("lost");
    let Some(config) = config(&work) else { return };
    let mut machine = boot(&config);
    let pid = libc::pid_t::try_from(machine.pid()).unwrap();
    // SAFETY: kill takes no memory; the process is a child of ours that has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSEGV) }, 0);
    let error = loop {
        match machine.receive_line(BOOT) {
            Ok(_) => (),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, MachineError::Lost { .. }), "{error}");
    assert!(error.to_string().contains("signal: 11"), "{error}");
    assert!(matches!(machine.status(), Status::Lost { .. }));
    assert!(matches!(
        machine.pause().unwrap_err(),
        MachineError::Lost { .. }
    ));
}

#[test]
fn what_qemu_refuses_is_passed_on() {
    let work = Work::new("refuse");
    let Some(mut config) = config(&work) else {
        return;
    };
    config.cpu = "nonsense".into();
    let error = Qemu::start(&config).unwrap_err().to_string();
    assert!(
        error.contains("unable to find CPU model 'nonsense'"),
        "{error}"
    );
}

#[test]
fn two_guests_do_not_meet() {
    let (one, two) = (Work::new("one"), Work::new("two"));
    let (Some(a), Some(b)) = (config(&one), config(&two)) else {
        return;
    };
    let mut a = boot(&a);
    let mut b = boot(&b);
    let paused = a.pause().unwrap();
    assert_eq!(b.status(), Status::Running);
    drop(b.pause().unwrap());
    drop(paused);
    a.kill();
    assert_eq!(b.status(), Status::Running);
}

/// Not a test by itself: the program that the next test kills.
#[test]
#[ignore = "run by a_killed_program_takes_its_guest_along"]
fn helper_boots_and_waits() {
    let work = Work::new("helper");
    let machine = boot(&config(&work).unwrap());
    println!("qemu {}", machine.pid());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_killed_program_takes_its_guest_along() {
    let work = Work::new("outer");
    if config(&work).is_none() {
        return;
    }
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "helper_boots_and_waits",
            "--ignored",
            "--nocapture",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(helper.stdout.take().unwrap()).lines();
    let qemu: u32 = lines
        .map_while(Result::ok)
        .find_map(|line| line.split("qemu ").nth(1)?.trim().parse().ok())
        .expect("the helper names its QEMU");
    let process = format!("/proc/{qemu}");
    assert!(Path::new(&process).exists());
    let lives = || {
        std::fs::read_to_string(format!("{process}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
    };
    helper.kill().unwrap();
    helper.wait().unwrap();
    let start = Instant::now();
    while lives() {
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "QEMU outlived the program"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("QEMU was gone after {:?}", start.elapsed());
    let folder = format!("folioscope-qemu-{}-helper", helper.id());
    let _ = std::fs::remove_dir_all(std::env::temp_dir().join(folder));
}
