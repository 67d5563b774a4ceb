//! The loop in which a workload process waits in user mode while the host looks.

use std::arch::global_asm;
use std::ops::Range;

use crate::doorbell::Doorbell;
use crate::slots::Slot;

// folioscope_spin(slot, number, nonce, pid, bell)
//
// Announces the checkpoint in the slot's first word and then reads the second until the checkpoint
// is released there. Both words are on the same page, which the announcement has made present and
// writable, and the code is within one cache line: from the announcement on there is no fault of
// its own and no system call. Now and then it stores the nonce to the bell: where the machine has a
// doorbell, that store leaves the guest, and the machine can be stopped right there. Elsewhere
// the bell is a word that is never read. While it waits:
//   x19 nonce, x20 pid, x21 number, x22 slot, x23 bell, pc in folioscope_spin_start..folioscope_spin_end
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.folioscope_spin, \"ax\", %progbits",
    ".balign 128",
    ".type folioscope_spin, %function",
    ".globl folioscope_spin, folioscope_spin_start, folioscope_spin_end",
    "folioscope_spin:",
    "stp x19, x20, [sp, #-48]!",
    "stp x21, x22, [sp, #16]",
    "str x23, [sp, #32]",
    "mov x22, x0",
    "mov x21, x1",
    "mov x19, x2",
    "mov x20, x3",
    "mov x23, x4",
    "add x0, x22, #8",
    "stlr x21, [x22]",
    "folioscope_spin_start:",
    "str x19, [x23]",
    "mov x2, #64", // a ring may cost as much as an interrupt
    "0:",
    "yield", // lets another virtual CPU run where they share one thread
    "ldar x1, [x0]",
    "cmp x1, x21",
    "b.eq folioscope_spin_end",
    "subs x2, x2, #1",
    "b.ne 0b",
    "b folioscope_spin_start",
    "folioscope_spin_end:",
    "ldr x23, [sp, #32]",
    "ldp x21, x22, [sp, #16]",
    "ldp x19, x20, [sp], #48",
    "ret",
    ".size folioscope_spin, . - folioscope_spin",
    ".popsection",
);

// The same loop for the developer's machine, so that checkpoints can be tried without a guest.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.folioscope_spin, \"ax\", @progbits",
    ".balign 64",
    ".globl folioscope_spin, folioscope_spin_start, folioscope_spin_end",
    "folioscope_spin:",
    "xchg [rdi], rsi",
    "mov rsi, [rdi]",
    "folioscope_spin_start:",
    "pause",
    "cmp [rdi + 8], rsi",
    "jne folioscope_spin_start",
    "folioscope_spin_end:",
    "ret",
    ".popsection",
);

extern "C" {
    fn folioscope_spin(slot: *const Slot, number: u64, nonce: u64, pid: u64, bell: *mut u64);
    static folioscope_spin_start: u8;
    static folioscope_spin_end: u8;
}

/// Announces a checkpoint and waits for its release, ringing the machine's doorbell where it has one.
pub fn wait(slot: &'static Slot, bell: Option<Doorbell>, number: u64, nonce: u64, pid: u32) {
    let bell = bell.map_or(slot.unheard.as_ptr(), Doorbell::as_ptr);
    // SAFETY: the function keeps the calling convention and touches the slot's words, which are
    // atomics in a mapping that stays, and the bell: the slot's own, or the page of the machine.
    unsafe { folioscope_spin(slot, number, nonce, u64::from(pid), bell) }
}

/// Returns where the program counter is while a process waits.
pub fn range() -> Range<u64> {
    (&raw const folioscope_spin_start) as u64..(&raw const folioscope_spin_end) as u64
}
