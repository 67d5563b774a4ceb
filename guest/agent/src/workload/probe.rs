//! Single accesses to memory that may not be there.
//!
//! An access that raises SIGSEGV or SIGBUS continues at a landing that reports it: the handler moves the program
//! counter there, as the kernel does with its own exception table. A signal anywhere else is a true crash and ends the
//! process.

use std::arch::global_asm;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use protocol::Failure;

use crate::names;

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.folioscope_probe, \"ax\", %progbits",
    ".balign 64",
    ".globl folioscope_load, folioscope_store, folioscope_fault",
    "folioscope_load:",
    "ldr x2, [x0]",
    "str x2, [x1]",
    "mov x0, #0",
    "ret",
    "folioscope_store:",
    "str x1, [x0]",
    "mov x0, #0",
    "ret",
    "folioscope_fault:",
    "mov x0, #1",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.folioscope_probe, \"ax\", @progbits",
    ".balign 64",
    ".globl folioscope_load, folioscope_store, folioscope_fault",
    "folioscope_load:",
    "mov rdx, [rdi]",
    "mov [rsi], rdx",
    "xor eax, eax",
    "ret",
    "folioscope_store:",
    "mov [rdi], rsi",
    "xor eax, eax",
    "ret",
    "folioscope_fault:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

extern "C" {
    /// Returns its first instruction is the access; so is that of the store.
    fn folioscope_load(address: u64, value: *mut u64) -> u64;
    fn folioscope_store(address: u64, value: u64) -> u64;
    fn folioscope_fault();
}

/// True while a signal that tells of a page with a hardware error is no crash.
static POISONING: AtomicBool = AtomicBool::new(false);
static SIGNAL: AtomicI32 = AtomicI32::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);
static ADDRESS: AtomicU64 = AtomicU64::new(0);

/// Installs the handlers.
pub fn install() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: an all-zero sigaction is a valid one. The handler has the signature that SA_SIGINFO requires, and only
        // touches atomics and the context that it gets.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a ucontext.
    let pc = unsafe { program_counter(&mut *context.cast()) };
    let probes = [
        folioscope_load as *const () as u64,
        folioscope_store as *const () as u64,
    ];
    // SAFETY: the kernel passes a siginfo, which has an address for these two signals.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    let of_an_error = [libc::BUS_MCEERR_AR, libc::BUS_MCEERR_AO].contains(&code);
    if signal == libc::SIGBUS && of_an_error && POISONING.load(Ordering::Relaxed) {
        return;
    }
    if !probes.contains(pc) {
        // SAFETY: the access is repeated on return, and then ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    *pc = folioscope_fault as *const () as u64;
    SIGNAL.store(signal, Ordering::Relaxed);
    CODE.store(code, Ordering::Relaxed);
    ADDRESS.store(address, Ordering::Relaxed);
}

#[cfg(target_arch = "aarch64")]
fn program_counter(context: &mut libc::ucontext_t) -> &mut u64 {
    &mut context.uc_mcontext.pc
}

#[cfg(target_arch = "x86_64")]
fn program_counter(context: &mut libc::ucontext_t) -> &mut u64 {
    let rip = &raw mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    // SAFETY: a register's value has the same layout with and without a sign.
    unsafe { &mut *rip.cast::<u64>() }
}

/// Makes a call that has the kernel take a page for one with a hardware error.
pub fn without_poison_signals<T>(call: impl FnOnce() -> T) -> T {
    POISONING.store(true, Ordering::Relaxed);
    let outcome = call();
    POISONING.store(false, Ordering::Relaxed);
    outcome
}

/// Loads the word at an address. `done` is the number of accesses before, for the failure.
pub fn load(address: u64, done: u64) -> Result<u64, Failure> {
    let mut value = 0;
    // SAFETY: the value is the caller's own; an address that cannot be read lands in the handler.
    match unsafe { folioscope_load(address, &mut value) } {
        0 => Ok(value),
        _ => Err(caught(done)),
    }
}

/// Stores a word at an address.
///
/// The host chooses the address, which may be any. The only promise is that a fault is returned as a failure. A host
/// that overwrites the workload's own code or data bears the consequences.
pub fn store(address: u64, value: u64, done: u64) -> Result<(), Failure> {
    // SAFETY: as the documentation states, the host is responsible; addresses that the host got from an operation
    // belong to no Rust object.
    match unsafe { folioscope_store(address, value) } {
        0 => Ok(()),
        _ => Err(caught(done)),
    }
}

fn caught(done: u64) -> Failure {
    let signal = SIGNAL.load(Ordering::Relaxed);
    Failure::Signal {
        name: names::signal(signal),
        code: names::signal_code(signal, CODE.load(Ordering::Relaxed)),
        address: ADDRESS.load(Ordering::Relaxed),
        done,
    }
}
