// SPDX-License-Identifier: GPL-2.0-only
//! Watches where the kernel is entered from user code, changes tasks and returns, and updates [`Entries`], if that was
//! asked for.

use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use qemu_plugin::{
    qemu_plugin_get_registers, CallbackFlags, Error, Instruction as Insn, RegisterDescriptor,
    Result, VCPUIndex,
};

use crate::entries::{Cause, Entries};
use crate::{kernel, opcode};

/// `msr sp_el0, xN`, without N. The kernel has its current task there.
const MSR_SP_EL0: u32 = 0xd518_4100;
const ERET: u32 = 0xd69f_03e0;
/// Bits of SPSR_EL1: the exception level that ERET goes to (M\[3:2\], Arm ARM C5.2.19).
const LEVEL: u64 = 0b1100;
const VECTORS: u64 = 0x800;
const VECTOR: u64 = 0x80;
/// The first vector for exceptions of a lower level, and the first one behind those of a level in AArch64.
const LOWER: std::ops::Range<u64> = 0x400..0x600;

struct State {
    entries: Entries,
    registers: Vec<(String, RegisterDescriptor<'static>)>,
}

static STATE: OnceLock<Mutex<State>> = OnceLock::new();

impl State {
    fn read(&self, name: &str) -> u64 {
        let found = self.registers.iter().find(|(known, _)| known == name);
        let bytes = found.and_then(|(_, register)| register.read().ok());
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    }
}

fn with(act: impl FnOnce(&mut State)) {
    if let Some(state) = STATE.get() {
        act(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Begins to watch entries.
pub(crate) fn begin() {
    let _ = STATE.set(Mutex::new(State {
        entries: Entries::default(),
        registers: Vec::new(),
    }));
}

/// Finds the registers that are read; a CPU is there.
pub(crate) fn find_registers() -> Result<()> {
    let Some(state) = STATE.get() else {
        return Ok(());
    };
    let there = qemu_plugin_get_registers()?;
    let general = (0..31).map(|number| format!("x{number}"));
    let wanted = general.chain(["ESR_EL1", "SPSR_EL1", "VBAR"].map(str::to_owned));
    let registers = wanted
        .map(|name| match there.iter().find(|one| one.name == name) {
            Some(register) => Ok((name, register.clone())),
            None => Err(Error::RegisterReadError { name }),
        })
        .collect::<Result<_>>()?;
    state
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .registers = registers;
    Ok(())
}

/// Watches the instructions of a kernel block that matter.
pub(crate) fn block(insns: &[Insn<'_>]) {
    let (Some(first), true) = (insns.first(), STATE.get().is_some()) else {
        return;
    };
    let (at, length) = (first.vaddr(), insns.len() as u64);
    if at % VECTOR == 0 && LOWER.contains(&(at % VECTORS)) {
        call(first, move |state, cpu| {
            if state.read("VBAR") == at - at % VECTORS {
                let cause = Cause::of(at % VECTORS, state.read("ESR_EL1"), state.read("x8"));
                state.entries.entered(cause, kernel(cpu) - length);
            }
        });
    }
    for insn in insns {
        let opcode = opcode(insn);
        if opcode & !0x1f == MSR_SP_EL0 {
            let name = format!("x{}", opcode & 0x1f);
            call(insn, move |state, cpu| {
                let task = state.read(&name);
                // At the way out it is user code's stack.
                if task >> 63 != 0 {
                    state.entries.runs(task, kernel(cpu));
                }
            });
        } else if opcode == ERET {
            call(insn, |state, cpu| {
                if state.read("SPSR_EL1") & LEVEL == 0 {
                    state.entries.left(kernel(cpu));
                }
            });
        }
    }
}

fn call(insn: &Insn<'_>, act: impl Fn(&mut State, VCPUIndex) + Send + Sync + 'static) {
    insn.register_execute_callback_flags(
        move |cpu| with(|state| act(state, cpu)),
        CallbackFlags::QEMU_PLUGIN_CB_R_REGS,
    );
}

/// Returns the sums so far, as a line's last member; empty if they were not asked for.
pub(crate) fn told() -> String {
    let mut text = String::new();
    with(|state| {
        for (cause, times, count) in state.entries.sums() {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}\"{cause}\":[{times},{count}]");
        }
        text = format!(",\"entries\":{{{text}}}");
    });
    text
}
