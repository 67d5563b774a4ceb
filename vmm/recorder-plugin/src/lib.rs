// SPDX-License-Identifier: GPL-2.0-only
//! A TCG plugin for QEMU 10 that writes a trace of the guest kernel's operations on its page tables.
//!
//!     -plugin librecorder_plugin.so,trace=FILE,ram=FILE,base=ADDRESS,size=BYTES[,control=FIFO]
//!
//! `ram` is the file behind the guest's memory, `base` its physical address (hexadecimal with 0x). Each number of 8
//! bytes from `control` becomes a mark in the trace, behind all earlier events. The number of all ones is followed by
//! the fields of a [`PageLayout`]: from then on the folios of pages that are mapped or unmapped are recorded. With
//! several CPUs QEMU has to run each in a thread (`-accel tcg,thread=multi`): in one thread QEMU 10.0 names the CPU
//! that *translated* an instruction, not the one that executes it. A store is recorded behind it and before its CPU's
//! next instruction, any other event before it, so events that locks, barriers or interrupts order are recorded in that
//! order. Of two stores to one word without such an order, the one that is recorded late is marked so.
//!
//! Recorded are stores of any size to pages that hold tables, TLBI, DSB, ISB, and MSR to the registers that translation
//! depends on; and, after stores that removed descriptors, a CPU's next return to EL0. Not visible are the MMU's own
//! writes (AF, dirty state), DC ZVA, whose address QEMU does not report, and devices.

mod calls;
mod control;
mod folios;
mod memory;
mod virtual_memory;
mod watched;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use qemu_plugin::{
    qemu_plugin_get_registers, qemu_plugin_register_atexit_cb, register, Args, CallbackFlags,
    Error, HasCallbacks, Info, Instruction as Insn, MemRW, MemValue, MemoryInfo, PluginId,
    Register, RegisterDescriptor, Result, TranslationBlock, VCPUIndex,
};
use recorder::{
    Barrier, Event, Instruction, Limits, PageLayout, Recorder, Register as SystemRegister, What,
};

use memory::Ram;
use watched::Watched;

/// All state behind the lock, which two threads rarely want at the same time.
struct State {
    /// `None` once the trace could not be written on.
    recorder: Option<Recorder<File>>,
    ram: Ram,
    /// X0 to X30.
    x: Vec<RegisterDescriptor<'static>>,
    ids: Vec<(SystemRegister, RegisterDescriptor<'static>)>,
    ids_told: bool,
    /// The last recorded call chain of each CPU.
    chains: HashMap<VCPUIndex, Vec<u64>>,
    /// The kernel's layout of its pages, once it was received.
    pages: Option<PageLayout>,
}

static STATE: OnceLock<Mutex<State>> = OnceLock::new();
static WATCHED: OnceLock<Watched> = OnceLock::new();

/// A bit for each CPU (of 64) whose next return to EL0 is recorded. It has not returned since a descriptor was removed
/// or got another page, or since another thread came to run there.
static OWES: AtomicU64 = AtomicU64::new(0);

const fn bit(cpu: VCPUIndex) -> u64 {
    1 << (cpu % 64)
}

fn state() -> Option<MutexGuard<'static, State>> {
    let state = STATE.get()?.lock();
    Some(state.unwrap_or_else(PoisonError::into_inner))
}

impl State {
    fn tell(&mut self, cpu: VCPUIndex, pc: u64, what: What) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let cpu = u16::try_from(cpu).unwrap_or(u16::MAX);
        if let Err(error) = recorder.event(&Event { cpu, pc, what }, &mut self.ram) {
            // The reader has ended, or the disk is full: the part written stays valid, and the guest runs on.
            eprintln!("recorder: the trace ends here, it cannot be written on: {error}");
            self.recorder = None;
            return;
        }
        for (page, on) in recorder.turned() {
            if let Some(watched) = WATCHED.get() {
                watched.set(page, on);
            }
        }
    }

    /// Records an event, and before it the call chain, if that differs from the last recorded one.
    fn tell_called(&mut self, cpu: VCPUIndex, pc: u64, what: What) {
        let frames = calls::chain(pc, self.x(30), self.x(29));
        if self.chains.get(&cpu) != Some(&frames) {
            self.chains.insert(cpu, frames.clone());
            self.tell(cpu, pc, What::Chain { frames });
        }
        self.tell(cpu, pc, what);
    }

    /// Records the folios of the pages that a store maps or unmaps, if they differ from their last record.
    fn tell_folios(&mut self, cpu: VCPUIndex, pc: u64, address: u64, word: u64) {
        let (Some(pages), Some(recorder)) = (&self.pages, &mut self.recorder) else {
            return;
        };
        let [old, new] = recorder.frames(address, word);
        let frames = [old, new.filter(|_| new != old)];
        let folios = frames.map(|frame| {
            let folio = folios::folio(pages, frame?);
            recorder.is_news(folio).then_some(folio)
        });
        // A page frame that now belongs to another address space: its former user may return to EL0.
        if folios[1].is_some() {
            OWES.store(u64::MAX, Ordering::Relaxed);
        }
        for folio in folios.into_iter().flatten() {
            self.tell(cpu, pc, What::Folio(folio));
        }
    }

    /// Returns a general register's value, 31 being zero.
    fn x(&self, register: u8) -> u64 {
        let descriptor = self.x.get(usize::from(register));
        descriptor.map_or(0, number)
    }

    /// The ID registers, before the first other event.
    fn tell_ids(&mut self, cpu: VCPUIndex) {
        if std::mem::replace(&mut self.ids_told, true) {
            return;
        }
        let ids: Vec<_> = self.ids.iter().map(|(id, at)| (*id, number(at))).collect();
        for (register, value) in ids {
            self.tell(cpu, 0, What::Register { register, value });
        }
    }
}

fn number(register: &RegisterDescriptor<'_>) -> u64 {
    let bytes = register.read().unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Prints the reason: QEMU shows no more than that the plugin did not load.
fn refuse(what: &str) -> ! {
    eprintln!("recorder: {what}");
    std::process::exit(1)
}

#[derive(Default)]
struct Plugin {
    low: [u64; 2],
}

impl Register for Plugin {
    fn register(&mut self, id: PluginId, args: &Args, _: &Info) -> Result<()> {
        let value = |key: &str| {
            let begins = format!("{key}=");
            let found = args.raw.iter().find_map(|raw| raw.strip_prefix(&begins));
            found.unwrap_or_else(|| {
                refuse(&format!(
                    "expected {key}= among the plugin's arguments and found {:?}",
                    args.raw
                ))
            })
        };
        let size_or_address = |key: &str| {
            let text = value(key);
            let number = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            number.unwrap_or_else(|_| {
                refuse(&format!("expected a number as {key} and found {text:?}"))
            })
        };
        let (base, size) = (size_or_address("base"), size_or_address("size"));
        let ram = Ram::open(value("ram"), base, size)
            .unwrap_or_else(|error| refuse(&format!("cannot open {}: {error}", value("ram"))));
        let trace = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(value("trace"));
        let trace = trace
            .unwrap_or_else(|error| refuse(&format!("cannot write {}: {error}", value("trace"))));
        let recorder = Recorder::new(trace, Limits::default())
            .unwrap_or_else(|error| refuse(&format!("cannot write {}: {error}", value("trace"))));
        if let Some(control) = args.raw.iter().find_map(|raw| raw.strip_prefix("control=")) {
            let control = File::open(control)
                .unwrap_or_else(|error| refuse(&format!("cannot read {control}: {error}")));
            std::thread::spawn(move || control::obey(control));
        }
        self.low = [base, base + size];
        let _ = WATCHED.set(Watched::new(base, size));
        let _ = STATE.set(Mutex::new(State {
            recorder: Some(recorder),
            ram,
            x: Vec::new(),
            ids: Vec::new(),
            ids_told: false,
            chains: HashMap::new(),
            pages: None,
        }));
        qemu_plugin_register_atexit_cb(id, |_| ended())
    }
}

fn ended() {
    if let Some(mut state) = state() {
        let State { recorder, ram, .. } = &mut *state;
        if let Some(mut recorder) = recorder.take() {
            let result = recorder
                .check(ram)
                .and_then(|()| recorder.finish().map(drop));
            if let Err(error) = result {
                eprintln!("recorder: the end of the trace could not be written: {error}");
            }
        }
    }
}

impl HasCallbacks for Plugin {
    fn on_vcpu_init(&mut self, _: PluginId, _: VCPUIndex) -> Result<()> {
        let registers = qemu_plugin_get_registers()?;
        let Some(mut state) = state() else {
            return Ok(());
        };
        if !state.x.is_empty() {
            return Ok(());
        }
        let find = |name: &str| registers.iter().find(|one| one.name == name).cloned();
        for index in 0..31 {
            match find(&format!("x{index}")) {
                Some(register) => state.x.push(register),
                None => {
                    return Err(Error::RegisterReadError {
                        name: format!("x{index}"),
                    })
                }
            }
        }
        use SystemRegister::{Mmfr0, Mmfr1, Mmfr2, Mmfr3};
        for (index, id) in [Mmfr0, Mmfr1, Mmfr2, Mmfr3].into_iter().enumerate() {
            if let Some(register) = find(&format!("ID_AA64MMFR{index}_EL1")) {
                state.ids.push((id, register));
            }
        }
        Ok(())
    }

    fn on_translation_block_translate(&mut self, _: PluginId, tb: TranslationBlock) -> Result<()> {
        for insn in tb.instructions() {
            let pc = insn.vaddr();
            // The kernel: at its own addresses, or before it is there, at physical ones.
            let kernel = pc >> 63 != 0 || (self.low[0]..self.low[1]).contains(&pc);
            if !kernel {
                continue;
            }
            let mut bytes = [0; 4];
            if insn.read_data(&mut bytes) != 4 {
                continue;
            }
            let opcode = u32::from_le_bytes(bytes);
            match Instruction::decode(opcode) {
                Some(instruction) => on_execute(&insn, pc, instruction),
                // Loads and stores, of which only the stores call back.
                None if opcode >> 25 & 0b0101 == 0b0100 => on_store(&insn, pc, is_atomic(opcode)),
                None => (),
            }
        }
        Ok(())
    }
}

fn on_execute(insn: &Insn<'_>, pc: u64, instruction: Instruction) {
    let to = match instruction {
        Instruction::Msr { to, .. } => Some(to),
        _ => None,
    };
    let returns = to == Some(SystemRegister::Spsr);
    insn.register_execute_callback_flags(
        move |cpu| {
            if returns && OWES.load(Ordering::Relaxed) & bit(cpu) == 0 {
                return;
            }
            let Some(mut state) = state() else { return };
            state.tell_ids(cpu);
            let what = match instruction {
                Instruction::Barrier(barrier) => What::Barrier(barrier),
                Instruction::Tlbi { opcode, register } => What::Tlbi {
                    opcode,
                    operand: state.x(register),
                },
                Instruction::Msr { to, register } => What::Register {
                    register: to,
                    value: state.x(register),
                },
            };
            if returns {
                // To EL1: M[3:0] of the target.
                if !matches!(what, What::Register { value, .. } if value & 0xf == 0) {
                    return;
                }
                OWES.fetch_and(!bit(cpu), Ordering::Relaxed);
                state.tell(cpu, pc, what);
                return;
            }
            if to == Some(SystemRegister::Contextidr) {
                OWES.fetch_or(bit(cpu), Ordering::Relaxed);
            }
            match what {
                // The callers of these are not needed.
                What::Register { .. } | What::Barrier(Barrier::Isb) => state.tell(cpu, pc, what),
                _ => state.tell_called(cpu, pc, what),
            }
        },
        CallbackFlags::QEMU_PLUGIN_CB_R_REGS,
    );
}

/// Returns whether an instruction reads, changes and writes, or may fail to write: exclusive stores, CAS, SWP, LDADD
/// and the like (Arm ARM C4.1.66). With threads QEMU reports the operand of these and not the result, also if nothing
/// was stored.
fn is_atomic(opcode: u32) -> bool {
    opcode & 0x3f00_0000 == 0x0800_0000 || opcode & 0x3b20_0c00 == 0x3820_0000
}

fn on_store(insn: &Insn<'_>, pc: u64, atomic: bool) {
    insn.register_memory_access_callback_flags(
        move |cpu, info, va| stored(cpu, pc, &info, va, atomic),
        MemRW::QEMU_PLUGIN_MEM_W,
        CallbackFlags::QEMU_PLUGIN_CB_R_REGS,
    );
}

fn stored(cpu: VCPUIndex, pc: u64, info: &MemoryInfo<'_>, va: u64, atomic: bool) {
    let Some(place) = info.hwaddr(va) else { return };
    let address = place.hwaddr();
    if !WATCHED.get().is_some_and(|watched| watched.has(address)) || place.is_io() {
        return;
    }
    let Some(mut state) = state() else { return };
    let at = address & !7;
    let words: [Option<u64>; 2] = match info.value() {
        MemValue::U64(word) if address == at && !atomic => [Some(word), None],
        MemValue::U128(both) if address == at && !atomic => {
            [Some(both as u64), Some((both >> 64) as u64)]
        }
        // Of another size, or unknown: the whole words as memory has them now.
        _ => {
            let end = address + (1 << info.size_shift()) - 1;
            let read = |at: u64, ram: &mut Ram| ram.word(at);
            let first = read(at, &mut state.ram);
            [
                first,
                if end & !7 == at {
                    None
                } else {
                    read(at + 8, &mut state.ram)
                },
            ]
        }
    };
    for (index, word) in words.into_iter().enumerate() {
        let address = at + index as u64 * 8;
        if let Some(word) = word {
            // Threads record an action after it is done. If another one was quicker, memory and the last record agree
            // already, on another word.
            let now = state.ram.word(address);
            let told = state
                .recorder
                .as_ref()
                .and_then(|recorder| recorder.word(address));
            if now != Some(word) && now == told {
                state.tell(cpu, pc, What::Late { address });
                continue;
            }
            if told.is_some_and(|told| told & !word & 1 != 0) {
                OWES.store(u64::MAX, Ordering::Relaxed);
            }
            state.tell_folios(cpu, pc, address, word);
            state.tell_called(cpu, pc, What::Store { address, word });
        }
    }
}

register!(Plugin::default());
