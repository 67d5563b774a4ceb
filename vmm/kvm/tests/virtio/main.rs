// SPDX-License-Identifier: GPL-2.0-only
//! The virtio-console device, as a driver and a host see it.

mod driver;
#[path = "../edges/mod.rs"]
mod edges;
mod refused;

use std::io::{ErrorKind, Read, Write};

use driver::*;
use kvm::layout::{RAM, VIRTIO_CONSOLE};
use vm_memory::Bytes;

fn read_all(guest: &mut Guest) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match guest.host.read(&mut buffer) {
            Ok(0) => return all,
            Ok(count) => all.extend(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns bytes of which no two neighbours are equal.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

#[test]
fn it_is_a_modern_console_with_two_ports() {
    let guest = Guest::new();
    assert_eq!(guest.read(register::MAGIC), 0x7472_6976);
    assert_eq!(guest.read(register::VERSION), 2);
    assert_eq!(guest.read(register::DEVICE), 3);
    let offered: Vec<u32> = [0, 1, 2]
        .into_iter()
        .map(|half| {
            guest.write(register::OFFERED_SELECT, half);
            guest.read(register::OFFERED)
        })
        .collect();
    assert_eq!(offered, [1 << 1, 1 << 0, 0], "MULTIPORT and VERSION_1");
    for queue in 0..8 {
        guest.write(register::QUEUE_SELECT, queue);
        let most = guest.read(register::QUEUE_MOST);
        assert_eq!(most, if queue < 6 { 32 } else { 0 });
        assert_eq!(guest.read(register::QUEUE_READY), 0);
    }
    assert_eq!(guest.read(register::CONFIG + 4), 2, "max_nr_ports");
    let mut columns = [0xee; 2];
    assert!(guest.bus.read(VIRTIO_CONSOLE + 0x100, &mut columns));
    assert_eq!(columns, [0, 0]);
    let mut beyond = [0xee; 8];
    assert!(guest.bus.read(VIRTIO_CONSOLE + 0x1f8, &mut beyond));
    assert_eq!(beyond, [0; 8]);
}

#[test]
fn registers_are_read_whole() {
    let guest = Guest::new();
    for (at, bytes) in [(0, 1), (0, 2), (1, 4), (0, 8), (2, 2)] {
        let mut data = vec![0xee; bytes];
        assert!(guest.bus.read(VIRTIO_CONSOLE + at, &mut data));
        assert_eq!(data, vec![0; bytes], "{bytes} bytes at {at}");
        assert!(guest
            .bus
            .write(VIRTIO_CONSOLE + register::STATUS + at, &[1; 8][..bytes]));
    }
    assert_eq!(guest.read(register::STATUS), 0);
}

#[test]
fn features_that_are_not_offered_are_refused() {
    let mut guest = Guest::new();
    assert!(!guest.negotiate(1 << 1), "not without VERSION_1");
    assert!(!guest.negotiate(1 << 32 | 1 << 40));
    assert!(!guest.negotiate(1 << 32 | 1 << 29));
    assert!(guest.negotiate(1 << 32));
    assert!(guest.negotiate(1 << 32 | 1 << 1));
    // Too late.
    guest.write(register::TAKEN_SELECT, 0);
    guest.write(register::TAKEN, 1 << 5);
    guest.write(register::STATUS, 15);
    assert_eq!(guest.read(register::STATUS), 15);
}

#[test]
fn the_port_is_added_named_and_opened() {
    let mut guest = Guest::new();
    guest.start();
    assert_eq!(guest.edges.take(), 0);
    guest.open();
    assert!(guest.edges.take() > 0);
    assert_eq!(guest.read(register::INTERRUPTS), 1);
    guest.write(register::ACKNOWLEDGE, 1);
    assert_eq!(guest.read(register::INTERRUPTS), 0);
    assert_eq!(guest.device().broken(), None);
}

#[test]
fn messages_wait_for_buffers_and_nonsense_is_ignored() {
    let mut guest = Guest::new();
    guest.start();
    for (port, event, value) in [(0, 3, 1), (7, 6, 1), (1, 99, 1), (1, 5, 1), (1, 3, 0)] {
        guest.control(port, event, value);
    }
    assert_eq!(guest.messages(), []);
    // Far more than there are buffers: each kind is sent once.
    for _ in 0..100 {
        guest.control(1, 3, 1);
    }
    let before = guest.used(CONTROL_RECEIVE).len();
    assert_eq!(before, usize::from(ENTRIES), "no more than it had buffers");
    assert_eq!(guest.device().broken(), None);
}

#[test]
fn bytes_go_both_ways() {
    let mut guest = Guest::ready();
    guest.edges.take();
    guest.send(TRANSMIT, 3, b"to the host\n");
    assert_eq!(guest.used(TRANSMIT), [(3, 0)]);
    assert_eq!(guest.edges.take(), 1);
    assert_eq!(read_all(&mut guest), b"to the host\n");

    guest.host.write_all(b"to the guest\n").unwrap();
    assert!(guest.device().wants_input());
    guest.device().host_readable();
    assert_eq!(guest.edges.take(), 1);
    assert_eq!(guest.received(RECEIVE), [b"to the guest\n"]);
}

#[test]
fn chains_of_several_buffers_are_one_stream() {
    let mut guest = Guest::ready();
    let bytes = pattern(700);
    let at = Guest::buffer(TRANSMIT, 0);
    guest
        .memory
        .write_slice(&bytes, vm_memory::GuestAddress(at))
        .unwrap();
    let buffers = [
        (at, 1, 0),
        (at + 1, 0, 0),
        (at + 1, 600, 0),
        (at + 601, 99, 0),
    ];
    guest.give(TRANSMIT, 4, &buffers);
    guest.notify(TRANSMIT);
    assert_eq!(guest.used(TRANSMIT), [(4, 0)]);
    assert_eq!(read_all(&mut guest), bytes);
}

#[test]
fn an_indirect_table_is_followed() {
    let mut guest = Guest::ready();
    // The table is queue 1's: it is in no other use.
    guest.describe(1, 0, Guest::buffer(TRANSMIT, 1), 3, NEXT, 1);
    guest.describe(1, 1, Guest::buffer(TRANSMIT, 1), 2, 0, 0);
    let at = vm_memory::GuestAddress(Guest::buffer(TRANSMIT, 1));
    guest.memory.write_slice(b"abc", at).unwrap();
    guest.give(TRANSMIT, 0, &[(Guest::places(1)[0], 32, INDIRECT)]);
    guest.notify(TRANSMIT);
    assert_eq!(read_all(&mut guest), b"abcab");
}

#[test]
fn a_long_message_comes_in_pieces_and_loses_nothing() {
    let mut guest = Guest::ready();
    let bytes = pattern(1_000_000);
    let mut sent = 0;
    let mut all = Vec::new();
    while all.len() < bytes.len() {
        if sent < bytes.len() {
            sent += guest.host.write(&bytes[sent..]).unwrap_or(0);
        }
        guest.device().host_readable();
        let pieces = guest.received(RECEIVE);
        assert!(!pieces.is_empty());
        all.extend(pieces.concat());
    }
    assert_eq!(all, bytes);
}

#[test]
fn the_hosts_bytes_wait_until_the_port_is_open() {
    let mut guest = Guest::new();
    guest.host.write_all(b"early").unwrap();
    guest.device().host_readable();
    guest.start();
    guest.device().host_readable();
    assert!(!guest.device().wants_input());
    assert_eq!(guest.used(RECEIVE), []);
    guest.open();
    assert_eq!(guest.received(RECEIVE), [b"early"]);
    // And again after it was closed.
    guest.control(1, 6, 0);
    guest.host.write_all(b"late").unwrap();
    guest.device().host_readable();
    assert_eq!(guest.used(RECEIVE), []);
    guest.control(1, 6, 1);
    assert_eq!(guest.received(RECEIVE), [b"late"]);
}

#[test]
fn the_hosts_bytes_wait_for_buffers() {
    let mut guest = Guest::ready();
    // All buffers are filled, and the driver gives none back.
    for _ in 0..ENTRIES {
        assert!(guest.device().wants_input());
        guest.host.write_all(b"x").unwrap();
        guest.device().host_readable();
    }
    assert!(!guest.device().wants_input());
    guest.host.write_all(b"more").unwrap();
    guest.device().host_readable();
    assert_eq!(
        guest.received(RECEIVE).concat(),
        b"x".repeat(ENTRIES.into())
    );
    assert_eq!(guest.received(RECEIVE), [b"more"], "taken as buffers came");
}

#[test]
fn a_host_that_is_gone_hangs_up() {
    let mut guest = Guest::ready();
    guest.host.write_all(b"last words").unwrap();
    let (other, _) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(std::mem::replace(&mut guest.host, other));
    guest.device().host_readable();
    guest.device().host_readable();
    assert_eq!(guest.received(RECEIVE), [b"last words"]);
    assert_eq!(guest.messages(), [(1, 6, 0, String::new())]);
    assert!(!guest.device().wants_input());
    // The guest's bytes are now taken and dropped.
    for _ in 0..3 {
        guest.send(TRANSMIT, 0, b"anyone?");
        assert_eq!(guest.used(TRANSMIT), [(0, 0)]);
    }
    assert!(!guest.device().wants_output());
    // A driver that starts anew gets no message that the host is open.
    guest.start();
    guest.control(u32::MAX, 0, 1);
    guest.control(1, 3, 1);
    let events: Vec<u16> = guest.messages().iter().map(|message| message.1).collect();
    assert_eq!(events, [1, 7]);
}

#[test]
fn a_host_that_does_not_read_leaves_buffers_with_the_device() {
    let mut guest = Guest::ready();
    let bytes = pattern(BUFFER as usize);
    let mut free: Vec<u16> = (0..ENTRIES).collect();
    let mut sent = 0;
    while let Some(slot) = free.pop() {
        guest.send(TRANSMIT, slot, &bytes);
        sent += 1;
        free.extend(guest.used(TRANSMIT).iter().map(|used| used.0 as u16));
        assert!(sent < 4000, "it is bounded");
    }
    assert!(sent * bytes.len() > 1 << 20, "about 1 MiB is kept");
    assert!(guest.device().wants_output());
    assert_eq!(guest.device().broken(), None);
    let mut all = Vec::new();
    while guest.device().wants_output() {
        all.extend(read_all(&mut guest));
        guest.device().host_writable();
    }
    all.extend(read_all(&mut guest));
    assert_eq!(all.len(), sent * bytes.len());
    assert!(all.chunks(bytes.len()).all(|chunk| chunk == bytes));
    assert_eq!(guest.used(TRANSMIT).len(), usize::from(ENTRIES));
}

#[test]
fn one_call_does_not_move_gigabytes() {
    let mut guest = Guest::ready();
    // All of RAM, again and again: 32 MiB in all. The host reads at the same time.
    for slot in 0..ENTRIES {
        guest.give(TRANSMIT, slot, &[(RAM, RAM_BYTES as u32, 0)]);
    }
    let mut host = guest.host.try_clone().unwrap();
    host.set_nonblocking(false).unwrap();
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        let mut all = 0;
        while all < usize::from(ENTRIES) * RAM_BYTES {
            all += host.read(&mut buffer).unwrap();
        }
    });
    guest.notify(TRANSMIT);
    assert!(guest.device().wants_output());
    assert!(guest.used(TRANSMIT).is_empty());
    while guest.device().wants_output() {
        guest.device().host_writable();
    }
    assert_eq!(guest.used(TRANSMIT).len(), usize::from(ENTRIES));
    reader.join().unwrap();
}

#[test]
fn a_reset_forgets_everything_and_it_works_again() {
    let mut guest = Guest::ready();
    guest.write(register::STATUS, 0);
    assert_eq!(guest.read(register::STATUS), 0);
    assert_eq!(guest.read(register::INTERRUPTS), 0);
    guest.write(register::QUEUE_SELECT, RECEIVE as u32);
    assert_eq!(guest.read(register::QUEUE_READY), 0);
    assert!(!guest.device().wants_input());
    let image = guest.image();
    guest.host.write_all(b"nobody there").unwrap();
    guest.device().host_readable();
    guest.notify(TRANSMIT);
    assert!(image == guest.image());
    guest.start();
    guest.open();
    assert_eq!(guest.received(RECEIVE), [b"nobody there"]);
    guest.send(TRANSMIT, 0, b"again");
    assert_eq!(read_all(&mut guest), b"again");
}

#[test]
fn a_frozen_device_touches_nothing_and_catches_up() {
    let mut guest = Guest::ready();
    guest.device().freeze(true);
    let at = Guest::buffer(TRANSMIT, 0);
    guest
        .memory
        .write_slice(b"later", vm_memory::GuestAddress(at))
        .unwrap();
    guest.give(TRANSMIT, 0, &[(at, 5, 0)]);
    let image = guest.image();
    guest.host.write_all(b"then").unwrap();
    guest.notify(TRANSMIT);
    assert!(!guest.device().wants_input());
    assert!(!guest.device().wants_output());
    guest.device().host_readable();
    guest.device().host_writable();
    assert!(image == guest.image());
    assert_eq!(read_all(&mut guest), b"");
    guest.device().freeze(false);
    assert_eq!(read_all(&mut guest), b"later");
    assert_eq!(guest.received(RECEIVE), [b"then"]);
}

#[test]
fn the_pages_that_were_written_are_told() {
    let mut guest = Guest::ready();
    guest.device().take_written();
    let before = guest.image();
    guest.host.write_all(&pattern(9000)).unwrap();
    guest.device().host_readable();
    guest.send(TRANSMIT, 0, b"x");
    let after = guest.image();
    let written = guest.device().take_written();
    // Its own buffer is the driver's doing.
    let own = [TRANSMIT].map(|queue| Guest::buffer(queue, 0) & !0xfff);
    for (page, (old, new)) in before.chunks(4096).zip(after.chunks(4096)).enumerate() {
        let at = RAM + 4096 * page as u64;
        let told = written
            .iter()
            .any(|&(start, bytes)| at >= start && at < start + bytes);
        assert!(old == new || told || own.contains(&at), "{at:#x}");
    }
    let pages: u64 = written.iter().map(|range| range.1 / 4096).sum();
    assert_eq!(
        pages,
        3 + 2,
        "three buffers and two used rings: {written:x?}"
    );
    assert_eq!(guest.device().take_written(), []);
}

#[test]
fn a_queue_can_be_stopped() {
    let mut guest = Guest::ready();
    guest.write(register::QUEUE_SELECT, TRANSMIT as u32);
    guest.write(register::QUEUE_READY, 0);
    assert_eq!(guest.read(register::QUEUE_READY), 0);
    guest.send(TRANSMIT, 0, b"into the void");
    assert_eq!(guest.used(TRANSMIT), []);
    assert_eq!(read_all(&mut guest), b"");
    assert_eq!(guest.device().broken(), None);
}
