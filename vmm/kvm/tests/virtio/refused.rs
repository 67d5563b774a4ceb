// SPDX-License-Identifier: GPL-2.0-only
//! Drivers that break the protocol.

use std::io::Write;

use kvm::layout::RAM;
use vm_memory::Bytes;

use crate::driver::*;
use crate::read_all;

/// Each of these breaks the protocol; a good driver then resets the device and continues.
#[test]
fn a_driver_that_breaks_the_protocol_must_reset_the_device() {
    type Misdeed = fn(&mut Guest);
    let misdeeds: [(&str, Misdeed); 14] = [
        ("a loop", |guest| {
            let at = Guest::buffer(TRANSMIT, 0);
            guest.describe(TRANSMIT, 0, at, 1, NEXT, 1);
            guest.describe(TRANSMIT, 1, at, 1, NEXT, 0);
            guest.make_available(TRANSMIT, 0);
        }),
        ("next beyond the table", |guest| {
            guest.describe(TRANSMIT, 0, Guest::buffer(TRANSMIT, 0), 1, NEXT, 9999);
            guest.make_available(TRANSMIT, 0);
        }),
        ("a head beyond the table", |guest| {
            guest.make_available(TRANSMIT, ENTRIES);
        }),
        ("a buffer below RAM", |guest| {
            guest.give(TRANSMIT, 0, &[(RAM - 1, 2, 0)]);
        }),
        ("a buffer over the end", |guest| {
            guest.describe(RECEIVE, 0, RAM, u32::MAX, WRITE, 0);
            guest.host.write_all(b"x").unwrap();
        }),
        ("a buffer at the end of everything", |guest| {
            guest.give(TRANSMIT, 0, &[(u64::MAX, u32::MAX, 0)]);
        }),
        ("over 4 GiB in all", |guest| {
            let all = [(RAM, RAM_BYTES as u32, 0), (RAM, u32::MAX, 0)];
            guest.give(TRANSMIT, 0, &all);
        }),
        ("more entries than the ring", |guest| {
            let at = Guest::places(TRANSMIT)[1] + 2;
            guest
                .memory
                .write_obj(ENTRIES + 1, vm_memory::GuestAddress(at))
                .unwrap();
        }),
        ("an indirect table within another", |guest| {
            guest.describe(1, 0, Guest::places(1)[0], 16, INDIRECT, 0);
            guest.give(TRANSMIT, 0, &[(Guest::places(1)[0], 16, INDIRECT)]);
        }),
        ("an indirect table in nowhere", |guest| {
            guest.give(TRANSMIT, 0, &[(0, 0xffff_fff0, INDIRECT)]);
        }),
        ("an indirect table longer than the queue", |guest| {
            for slot in 0..64 {
                guest.describe(1, slot, Guest::buffer(TRANSMIT, 0), 1, NEXT, slot + 1);
            }
            guest.give(TRANSMIT, 0, &[(Guest::places(1)[0], 1024, INDIRECT)]);
        }),
        ("a short control message", |guest| {
            let at = Guest::buffer(CONTROL_TRANSMIT, 0);
            guest.give(CONTROL_TRANSMIT, 0, &[(at, 7, 0)]);
        }),
        ("a control message to be written", |guest| {
            let at = Guest::buffer(CONTROL_TRANSMIT, 0);
            guest.give(CONTROL_TRANSMIT, 0, &[(at, 8, WRITE)]);
        }),
        ("nothing to receive in", |guest| {
            let at = Guest::buffer(RECEIVE, 0);
            guest.describe(RECEIVE, 0, at, 8, 0, 0);
            guest.host.write_all(b"x").unwrap();
        }),
    ];
    for (what, misdeed) in misdeeds {
        let mut guest = Guest::ready();
        guest.write(register::ACKNOWLEDGE, 3);
        guest.edges.take();
        misdeed(&mut guest);
        guest.notify(TRANSMIT);
        assert_eq!(guest.read(register::STATUS), 15 | NEEDS_RESET, "{what}");
        assert_eq!(guest.read(register::INTERRUPTS) & 2, 2, "{what}");
        assert!(guest.edges.take() > 0, "{what}");
        assert!(guest.device().broken().is_some(), "{what}");
        assert!(!guest.device().wants_input(), "{what}");
        let image = guest.image();
        guest.notify(TRANSMIT);
        guest.device().host_readable();
        assert!(image == guest.image(), "{what}");
        guest.start();
        guest.open();
        read_all(&mut guest);
        guest.send(TRANSMIT, 0, b"better now");
        assert_eq!(read_all(&mut guest), b"better now", "{what}");
    }
}

#[test]
fn queues_that_cannot_be_are_refused() {
    let [table, available, used] = Guest::places(0);
    for (what, size, places) in [
        ("no entries", 0, [table, available, used]),
        ("not a power of two", 12, [table, available, used]),
        ("too many", 64, [table, available, used]),
        ("far too many", 0x1_0010, [table, available, used]),
        ("a table below RAM", 16, [0, available, used]),
        ("a table in nowhere", 16, [!15, available, used]),
        ("an odd table", 16, [table + 8, available, used]),
        ("an odd available ring", 16, [table, available + 1, used]),
        ("an odd used ring", 16, [table, available, used + 2]),
        (
            "a used ring over the end",
            16,
            [table, available, RAM + RAM_BYTES as u64 - 8],
        ),
    ] {
        let mut guest = Guest::new();
        assert!(guest.negotiate(1 << 32));
        guest.set_queue(0, size, places);
        assert_eq!(guest.read(register::QUEUE_READY), 0, "{what}");
        assert_eq!(guest.read(register::STATUS), 11 | NEEDS_RESET, "{what}");
        guest.write(register::STATUS, 15);
        guest.notify(0);
        assert!(guest.device().broken().is_some(), "{what}");
    }
    let mut guest = Guest::new();
    guest.negotiate(1 << 40);
    guest.write(register::STATUS, 7);
    assert_eq!(guest.read(register::STATUS), 7 | NEEDS_RESET);
}
