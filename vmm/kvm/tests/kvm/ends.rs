// SPDX-License-Identifier: GPL-2.0-only
//! Guests that end or never start, and their state afterwards.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kvm::Kvm;
use machine::{Machine, MachineError, Status};
use protocol::Command;
use stage1::{PhysMemory, PhysicalAddress};

use crate::guest::{Guest, Work, ANSWER, BOOT};

fn threads() -> BTreeSet<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let names = names.map(|name| name.trim().to_owned());
    // Other tests have threads as well.
    let ours = |name: &String| name.starts_with("vcpu") || name == "io" || name == "console";
    names.filter(ours).collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_guest_that_ends_is_told_from_one_that_is_silent() {
    let Some(mut work) = Work::new("end") else {
        return;
    };
    let mut guest = Guest::boot(&work.config);
    guest.send(Command::Poweroff {});
    let error = loop {
        match guest.machine.receive_line(ANSWER) {
            Ok(_) => (),
            Err(error) => break error,
        }
    };
    let MachineError::Ended {
        reset: false,
        console,
    } = error
    else {
        panic!("{error}")
    };
    assert!(console.contains("reboot: Power down"), "{console}");
    assert_eq!(guest.machine.status(), Status::Ended { reset: false });
    // It can still be read, and does not run on.
    for _ in 0..3 {
        let paused = guest.machine.pause().unwrap();
        assert_eq!(paused.cpus.len(), 2);
        assert!(paused
            .memory
            .words(PhysicalAddress(0x4000_0000), 512)
            .is_some());
        paused.resume().unwrap();
        drop(guest.machine.pause_at(1).unwrap());
        assert_eq!(guest.machine.status(), Status::Ended { reset: false });
    }
    guest.machine.kill();
    assert!(matches!(guest.machine.status(), Status::Lost { .. }));
    assert!(guest
        .machine
        .pause()
        .unwrap_err()
        .to_string()
        .contains("ended by us"));
    drop(guest);

    work.config.cmdline = "console=ttyS0 quiet rdinit=/nonexistent".into();
    let mut machine = Kvm::start(&work.config).unwrap();
    let error = machine.receive_line(BOOT).unwrap_err();
    assert!(matches!(error, MachineError::Panicked { .. }), "{error}");
    assert!(error.to_string().contains("Kernel panic"), "{error}");
    assert_eq!(machine.status(), Status::Panicked);
    assert_eq!(machine.pause().unwrap().cpus.len(), 2);
    drop(machine);

    work.config.cmdline = "console=ttyS0 quiet rdinit=/nonexistent panic=-1".into();
    let mut machine = Kvm::start(&work.config).unwrap();
    let error = machine.receive_line(BOOT).unwrap_err();
    assert!(
        matches!(error, MachineError::Ended { reset: true, .. }),
        "{error}"
    );
    assert_eq!(machine.pause().unwrap().cpus.len(), 2);
}

#[test]
fn a_user_without_the_right_is_told_whose_it_is() {
    let Some(_work) = Work::new("right") else {
        return;
    };
    let told = std::thread::spawn(|| {
        const NOBODY: libc::c_long = 65534;
        let change = [libc::SYS_setresgid, libc::SYS_setresuid];
        // SAFETY: plain system calls, which change the rights of this thread, and of no other.
        let changed = change.map(|call| unsafe { libc::syscall(call, NOBODY, NOBODY, NOBODY) });
        (changed == [0, 0]).then(kvm::check_host)
    });
    match told.join().unwrap() {
        Some(Err(error)) => {
            let told = error.to_string();
            assert!(told.contains("belongs to group "), "{told}");
            assert!(told.contains("usermod -aG "), "{told}");
        }
        // A host where every user may use it, or where the user of this test may.
        Some(Ok(())) => eprintln!("NOT TESTED: everybody may use /dev/kvm"),
        None => eprintln!("NOT TESTED: this user cannot become another"),
    }
}

/// Writes an Image whose code is `words`.
fn image(work: &Work, words: &[u32]) -> PathBuf {
    let mut bytes = vec![0; 4096];
    // The header begins with the first instruction, which jumps over it.
    let code = [&[0x1400_0010][..], &[0; 15], words].concat();
    for (to, from) in bytes.chunks_exact_mut(4).zip(code) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    bytes[16..24].copy_from_slice(&4096_u64.to_le_bytes());
    bytes[24..32].copy_from_slice(&0b1010_u64.to_le_bytes());
    bytes[56..60].copy_from_slice(b"ARM\x64");
    let path = work.folder.join("Image");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn nonsense_that_runs_is_no_harm() {
    let Some(mut work) = Work::new("nonsense") else {
        return;
    };
    work.config.initrd = None;
    // b . : a kernel without output.
    work.config.kernel = image(&work, &[0x1400_0000]);
    let mut machine = Kvm::start(&work.config).unwrap();
    let error = machine
        .receive_line(Duration::from_millis(300))
        .unwrap_err();
    assert!(
        error.to_string().contains("said nothing for 300ms"),
        "{error}"
    );
    assert_eq!(machine.status(), Status::Running);
    let paused = machine.pause().unwrap();
    let system = &paused.cpus[0].system;
    // The PC of the exception shows whether memory is absent or has another instruction.
    assert_eq!(paused.cpus[0].general.pc, 0x4000_0040, "{system:x?}");
    assert_eq!(system.sctlr_el1 & 1, 0, "the MMU is off");
    drop(paused);
    drop(machine);

    // udf; and vectors at an address without memory.
    work.config.kernel = image(&work, &[0]);
    let mut machine = Kvm::start(&work.config).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop(machine.pause().unwrap());
    drop(machine);

    // mov x1, #0x5000; ldr x2, [x1]; str x2, [x1]; ldr x3, [x1]; b . : nothing is there, and it reads as zero.
    work.config.kernel = image(
        &work,
        &[
            0xd28a_0001,
            0xf940_0022,
            0xf900_0022,
            0xf940_0023,
            0x1400_0000,
        ],
    );
    let mut machine = Kvm::start(&work.config).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let paused = machine.pause().unwrap();
    let general = paused.cpus[0].general;
    assert_eq!(
        (general.x[2], general.x[3], general.pc),
        (0, 0, 0x4000_0050)
    );
    drop(paused);
    assert_eq!(machine.exits().unclaimed, 3);
    drop(machine);

    // mov x1, #0x5000; ldp x2, x3, [x1]: a load that KVM cannot describe.
    work.config.kernel = image(&work, &[0xd28a_0001, 0xa940_0c22, 0x1400_0000]);
    let mut machine = Kvm::start(&work.config).unwrap();
    let error = machine.receive_line(ANSWER).unwrap_err().to_string();
    println!("{error}");
    assert!(
        error.contains("CPU 0 stopped at PC 0x40000044") && error.contains("0x5000"),
        "{error}"
    );
    assert!(matches!(machine.status(), Status::Lost { .. }));
    assert_eq!(machine.pause().unwrap().cpus[0].general.pc, 0x4000_0044);
}

#[test]
fn nothing_is_left_behind() {
    let Some(work) = Work::new("rest") else {
        return;
    };
    let (threads_before, before) = (threads(), descriptors());
    for round in 0..20 {
        let mut machine = Kvm::start(&work.config).unwrap();
        assert!(threads().contains("vcpu1"));
        // At an arbitrary point of the kernel's work.
        std::thread::sleep(Duration::from_millis(round * 23 % 200));
        if round % 3 == 0 {
            continue;
        }
        // Even from a guest that is paused, and never resumed.
        std::mem::forget(machine.pause().unwrap());
        let start = Instant::now();
        drop(machine);
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(descriptors(), before);
    assert_eq!(threads(), threads_before);
    // A start that fails on its way leaves nothing either.
    let mut config = work.config.clone();
    config.memory_bytes = 64 << 20;
    config.load_offset = 60 << 20;
    let error = Kvm::start(&config).unwrap_err().to_string();
    assert!(
        error.contains("the guest's kernel needs RAM up to"),
        "{error}"
    );
    assert_eq!((descriptors(), threads()), (before, threads_before));
    assert!(Path::new("/dev/kvm").exists());
}
