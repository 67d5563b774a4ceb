// SPDX-License-Identifier: GPL-2.0-only
//! The causes of the kernel's instructions.

#[path = "../src/entries.rs"]
mod entries;

use entries::{Cause, Entries};

const READ: Cause = Cause::Syscall(63);
const EXIT: Cause = Cause::Syscall(94);

fn sums(entries: &Entries) -> Vec<(String, u64, u64)> {
    entries
        .sums()
        .map(|(cause, times, count)| (cause.to_string(), times, count))
        .collect()
}

#[test]
fn a_vector_and_its_syndrome() {
    let esr = |class: u64| class << 26 | 0x200_0047;
    assert_eq!(Cause::of(0x400, esr(0x24), 63), Cause::DataAbort);
    assert_eq!(Cause::of(0x400, esr(0x20), 63), Cause::InstructionAbort);
    assert_eq!(Cause::of(0x400, esr(0x15), 63), READ);
    // BRK; and for an interrupt ESR_EL1 still has the value of an earlier exception.
    assert_eq!(Cause::of(0x400, esr(0x3c), 63), Cause::Other);
    assert_eq!(Cause::of(0x480, esr(0x24), 63), Cause::Interrupt);
    assert_eq!(Cause::of(0x580, esr(0x24), 63), Cause::Other);
}

#[test]
fn what_sleeps_goes_on_later() {
    let mut entries = Entries::default();
    entries.runs(0xa, 100);
    entries.left(150);
    // A reads and sleeps; B comes, has a fault and sleeps in another; A is woken.
    entries.entered(READ, 150);
    entries.runs(0xb, 180);
    entries.left(190);
    entries.entered(Cause::DataAbort, 190);
    entries.left(290);
    entries.entered(Cause::DataAbort, 290);
    entries.runs(0xa, 300);
    entries.left(307);
    let told = |name: &str, times, count| (name.to_owned(), times, count);
    assert_eq!(
        sums(&entries),
        [
            // The boot, and B's first return.
            told("own", 0, 150 + 10),
            told("data abort", 2, 100 + 10),
            told("syscall 63", 1, 30 + 7),
        ]
    );
    // All instructions executed are assigned.
    assert_eq!(entries.sums().map(|each| each.2).sum::<u64>(), 307);
}

#[test]
fn who_ends_never_returns() {
    let mut entries = Entries::default();
    entries.runs(0xa, 0);
    entries.entered(EXIT, 0);
    entries.runs(0xc, 500);
    entries.runs(0xc, 520);
    let found = sums(&entries);
    assert!(
        found.contains(&("syscall 94".to_owned(), 1, 500)),
        "{found:?}"
    );
    assert!(found.contains(&("own".to_owned(), 0, 20)), "{found:?}");
}
