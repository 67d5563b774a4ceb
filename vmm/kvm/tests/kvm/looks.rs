// SPDX-License-Identifier: GPL-2.0-only
//! A guest that is stopped, read, written to, and resumed.

use std::time::{Duration, Instant};

use machine::{Machine, Status};
use protocol::{Access, Command, Operation, Outcome};
use snapshot::{Range, PAGE};
use stage1::Half;

use crate::guest::{at, physical, waits, word, Guest, Work};

#[test]
fn pausing_is_quick_and_loses_no_kick() {
    let Some(mut work) = Work::new("pause") else {
        return;
    };
    work.config.smp = 4;
    let mut guest = Guest::boot(&work.config);
    let (mut stopping, mut stopped) = (Vec::new(), Vec::new());
    for round in 0..300_u64 {
        let paused = guest.machine.pause().unwrap();
        assert_eq!(paused.cpus.len(), 4);
        stopping.push(paused.stopping());
        stopped.push(paused.resume().unwrap());
        // Some while CPUs are only on their way into the guest.
        std::thread::sleep(Duration::from_micros(round % 5 * 500));
    }
    stopping.sort();
    stopped.sort();
    println!(
        "to stand still: median {:?}, worst {:?}; stopped, with the registers of 4 CPUs: median {:?}, worst {:?}",
        stopping[150], stopping[299], stopped[150], stopped[299]
    );
    assert_eq!(guest.machine.status(), Status::Running);
    assert!(matches!(guest.ask(Command::Ping {}), Outcome::Pong { .. }));
}

#[test]
fn a_waiting_process_is_found_at_its_ring() {
    let Some(work) = Work::new("ring") else {
        return;
    };
    let mut guest = Guest::boot(&work.config);
    let process = guest.spawn();
    let address = guest.mmap(process, 16 * PAGE);
    guest.poke(process, address, 0x1234_5678_9abc_def0);
    // No process rings with this nonce.
    let start = Instant::now();
    drop(guest.machine.pause_at(1).unwrap());
    assert!(start.elapsed() < Duration::from_secs(5));

    let checkpoint = guest.checkpoint(process, 0xfeed_0001);
    let mut at_once = 0;
    let mut took = Vec::new();
    for _ in 0..100 {
        let start = Instant::now();
        let paused = guest.machine.pause_at(checkpoint.nonce).unwrap();
        took.push(start.elapsed());
        at_once += usize::from(paused.cpus.iter().any(|cpu| waits(cpu, &checkpoint)));
        drop(paused);
    }
    took.sort();
    let rings = guest.machine.exits().doorbell;
    println!(
        "of 100 pauses at a ring {at_once} met it, {rings} rings, median {:?}",
        took[50]
    );
    assert!(rings > 0, "the waiting process never rang");
    assert!(at_once >= 95, "{at_once} of 100");
    at(&mut guest.machine, &checkpoint, |paused, cpu| {
        let pid = checkpoint.pid as u64;
        assert_eq!(cpu.general.x[20], pid);
        let contextidr = cpu.system.contextidr_el1;
        assert!([0, pid].contains(&contextidr), "{contextidr:#x}");
        assert_eq!(cpu.general.sp, cpu.general.sp_el0.unwrap());
        let there = physical(paused, cpu, Half::Lower, address);
        assert_eq!(word(paused, there), 0x1234_5678_9abc_def0);
    });
    guest.ask(Command::Release { process });
    guest.op(process, Operation::Peek { address, words: 1 });
}

#[test]
fn a_write_from_outside_is_what_the_guest_sees() {
    let Some(work) = Work::new("write") else {
        return;
    };
    let mut guest = Guest::boot(&work.config);
    let process = guest.spawn();
    let address = guest.mmap(process, PAGE);
    guest.poke(process, address, 7);
    let checkpoint = guest.checkpoint(process, 0xfeed_0002);
    at(&mut guest.machine, &checkpoint, |paused, cpu| {
        let there = physical(paused, cpu, Half::Lower, address);
        paused.write(there, &8_u64.to_le_bytes()).unwrap();
    });
    guest.ask(Command::Release { process });
    let peek = Operation::Peek { address, words: 1 };
    assert_eq!(guest.op(process, peek), Outcome::Words { words: vec![8] });
}

#[test]
fn what_was_written_to_is_told() {
    let Some(work) = Work::new("written") else {
        return;
    };
    let mut guest = Guest::boot(&work.config);
    let process = guest.spawn();
    let length = 64 * PAGE;
    let address = guest.mmap(process, length);
    let touch = Operation::Touch {
        address,
        length,
        stride: None,
        access: Access::Write,
        order: Default::default(),
        salt: 0,
    };
    guest.op(process, touch);
    let checkpoint = guest.checkpoint(process, 0xfeed_0003);
    let pages: Vec<Range> = at(&mut guest.machine, &checkpoint, |paused, cpu| {
        assert!(paused.written().unwrap().is_none(), "no record is kept");
        let page = |page| {
            let there = physical(paused, cpu, Half::Lower, address + page * PAGE);
            Range::new(there, PAGE).unwrap()
        };
        (0..64).map(page).collect()
    });
    guest.ask(Command::Release { process });

    guest.machine.log_writes(true).unwrap();
    guest.poke(process, address + 7 * PAGE, 1);
    // A new record does not contain the old one's pages.
    guest.machine.log_writes(true).unwrap();
    guest.poke(process, address + 5 * PAGE, 1);
    guest.poke(process, address + 63 * PAGE, 1);
    let mut paused = guest.machine.pause().unwrap();
    let written = paused.written().unwrap().unwrap();
    println!(
        "{} ranges, {} KiB written to",
        written.len(),
        written.bytes() / 1024
    );
    for (number, page) in pages.iter().enumerate() {
        assert_eq!(
            written.touches(page),
            [5, 63].contains(&number),
            "page {number}"
        );
    }
    // It begins anew.
    let again = paused.written().unwrap().unwrap();
    assert!(again.is_empty(), "{again:?}");
    drop(paused);
    guest.machine.log_writes(false).unwrap();
    assert!(guest.machine.pause().unwrap().written().unwrap().is_none());
}
