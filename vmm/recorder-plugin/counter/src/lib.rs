// SPDX-License-Identifier: GPL-2.0-only
//! A TCG plugin for QEMU 10 that counts the instructions that the guest executes, kernel and user, and writes the
//! counts at markers.
//!
//!     -plugin libcounter_plugin.so,marks=FILE[,entries=on][,functions=LIST][,executed=FILE]
//!
//! A marker is `movz xzr, #NUMBER, lsl #48` in user code. It writes a constant to the zero register, so it does nothing
//! at any exception level and traps nowhere, and compilers have no use for it. At each marker a line of JSON is
//! written: the marker's number, the CPU that executed it, nanoseconds of the host's (`ns`), the instructions so far of
//! all CPUs, `[user, kernel]`, and how many of the kernel's were TLBIs, DSBs, DMBs and ISBs (`did`, in this order).
//!
//! Instructions are counted where QEMU translates, by an inline addition without a call. There is one for each
//! translation block, and in user code for each run of instructions up to a load or store, so that an instruction that
//! faults does not count those behind it. An instruction counts when it begins: one that faults and is begun again
//! counts twice. Markers do not count. In the kernel, where few instructions fault, the rest of the block behind such a
//! one is counted though it did not run.
//!
//! That is the method with one CPU. With several, QEMU's inline additions corrupt the guest (10.0.2: where it runs the
//! CPUs in turn on one thread, it takes the number of the CPU for a constant, and writes to it). There a call adds, and
//! the line has one pair for all CPUs, as QEMU then names the CPU that the code was translated for, and not the one
//! that executes it.
//!
//! With `entries=on`, which needs one CPU, a line also has how often the kernel was entered from user code and how many
//! instructions it executed for that so far, by cause (`entries`). At each vector, each `msr sp_el0` (the kernel's
//! current task) and each ERET to EL0 a call reads registers. A cause is exact to the length of a translation block.
//!
//! With `functions=LIST` a line also has how often each function of that file was called so far (`functions`): its
//! first instruction counts. Addresses are the kernel's runtime addresses.
//!
//! With `executed=FILE` each block of kernel code is written to that file when it is first translated: an address and a
//! number of instructions in each line.

mod entries;
mod executed;
mod functions;
mod maintenance;
mod marker;
mod watch;

use std::fs::File;
use std::io::Write as _;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use qemu_plugin::sys::qemu_plugin_scoreboard_new;
use qemu_plugin::{
    qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu,
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu, qemu_plugin_u64_get, register, Args,
    CallbackFlags, HasCallbacks, Info, Instruction as Insn, PluginId, PluginOp, PluginU64,
    Register, Result, TranslationBlock, VCPUIndex,
};

use functions::Functions;
use maintenance::Kind;
use marker::{accesses_memory, marker};

/// Counts of each CPU: the two halves of the address space, and the kernel's instructions of each [`Kind`].
#[repr(C)]
struct Counts {
    user: u64,
    kernel: u64,
    did: [u64; Kind::COUNT],
}

/// The places of a CPU's counts, in QEMU's form.
#[derive(Clone, Copy)]
struct Places {
    user: PluginU64,
    kernel: PluginU64,
    did: [PluginU64; Kind::COUNT],
}

impl Places {
    fn new() -> Self {
        // SAFETY: QEMU creates and zeroes it with the size that is passed; it is never freed.
        let score = unsafe { qemu_plugin_scoreboard_new(size_of::<Counts>()) };
        let place = |offset| PluginU64 { score, offset };
        Self {
            user: place(offset_of!(Counts, user)),
            kernel: place(offset_of!(Counts, kernel)),
            did: std::array::from_fn(|kind| {
                place(offset_of!(Counts, did) + kind * size_of::<u64>())
            }),
        }
    }
}

// SAFETY: The scoreboard behind both is QEMU's, lives as long as the plugin, and is found anew at each use.
unsafe impl Send for Places {}
// SAFETY: As above; a place is only read here.
unsafe impl Sync for Places {}

/// The counts that calls update, if there are several CPUs. Each CPU has its own cache line, as each may be a thread.
#[repr(align(128))]
struct Called {
    user: AtomicU64,
    kernel: AtomicU64,
    did: [AtomicU64; Kind::COUNT],
}

/// The maximum of QEMU's `virt`; a guest of so many would only be slow.
const MOST_CPUS: usize = 512;
static CALLED: [Called; MOST_CPUS] = [const {
    Called {
        user: AtomicU64::new(0),
        kernel: AtomicU64::new(0),
        did: [const { AtomicU64::new(0) }; Kind::COUNT],
    }
}; MOST_CPUS];

impl Called {
    /// Adds to a count to which no other thread writes at the same time.
    fn add(to: &AtomicU64, count: u64) {
        to.store(to.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    fn of(cpu: VCPUIndex) -> &'static Self {
        &CALLED[cpu as usize % MOST_CPUS]
    }
}

/// Calls of each function of the list, if there are several CPUs; QEMU may run them at the same time.
static CALLS: [AtomicU64; Functions::MOST] = [const { AtomicU64::new(0) }; Functions::MOST];
static FUNCTIONS: OnceLock<(Functions, Option<CallPlaces>)> = OnceLock::new();

/// The places of one CPU's counts of calls of all functions, in the order of the list.
struct CallPlaces(Vec<PluginU64>);

// SAFETY: As for [`Places`]: QEMU's scoreboard is found anew at each use.
unsafe impl Send for CallPlaces {}
// SAFETY: As above; a place is only read here.
unsafe impl Sync for CallPlaces {}

impl CallPlaces {
    fn new(count: usize) -> Self {
        // SAFETY: QEMU creates and zeroes it with the size that is passed; it is never freed.
        let score = unsafe { qemu_plugin_scoreboard_new(count.max(1) * size_of::<u64>()) };
        let offset = |at| at * size_of::<u64>();
        Self(
            (0..count)
                .map(|at| PluginU64 {
                    score,
                    offset: offset(at),
                })
                .collect(),
        )
    }
}

/// Has the calls of a function counted, if the list has one that begins with this instruction.
fn count_call(insn: Insn<'_>) {
    let Some((functions, places)) = FUNCTIONS.get() else {
        return;
    };
    let Some(at) = functions.at(insn.vaddr()) else {
        return;
    };
    match places {
        Some(places) => {
            let add = PluginOp::QEMU_PLUGIN_INLINE_ADD_U64;
            qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, add, places.0[at], 1);
        }
        None => insn.register_execute_callback_flags(
            move |_| {
                CALLS[at].fetch_add(1, Ordering::Relaxed);
            },
            CallbackFlags::QEMU_PLUGIN_CB_NO_REGS,
        ),
    }
}

/// Returns the calls so far, as a line's member; nothing without a list.
fn calls(cpu: VCPUIndex) -> String {
    let Some((functions, places)) = FUNCTIONS.get() else {
        return String::new();
    };
    let each = functions.names().iter().enumerate().map(|(at, name)| {
        let count = match places {
            Some(places) => qemu_plugin_u64_get(places.0[at], cpu),
            None => CALLS[at].load(Ordering::Relaxed),
        };
        format!("\"{name}\":{count}")
    });
    format!(",\"functions\":{{{}}}", each.collect::<Vec<_>>().join(","))
}

/// The places in which one CPU counts without a call. None with several CPUs.
static PLACES: OnceLock<Option<Places>> = OnceLock::new();
static MARKS: OnceLock<Mutex<Option<File>>> = OnceLock::new();
/// The start of the host's time.
static BEGAN: OnceLock<Instant> = OnceLock::new();

/// Returns what the only CPU has executed in the kernel, up to the end of the block that it is in.
fn kernel(cpu: VCPUIndex) -> u64 {
    let places = PLACES.get().copied().flatten();
    places.map_or(0, |places| qemu_plugin_u64_get(places.kernel, cpu))
}

/// Prints the reason: QEMU shows no more than that the plugin did not load.
fn refuse(what: &str) -> ! {
    eprintln!("counter: {what}");
    std::process::exit(1)
}

#[derive(Default)]
struct Plugin;

impl Register for Plugin {
    fn register(&mut self, _: PluginId, args: &Args, info: &Info) -> Result<()> {
        let path = args
            .raw
            .iter()
            .find_map(|raw| raw.strip_prefix("marks="))
            .unwrap_or_else(|| {
                refuse(&format!(
                    "expected marks=FILE among the plugin's arguments and found {:?}",
                    args.raw
                ))
            });
        let file = File::create(path)
            .unwrap_or_else(|error| refuse(&format!("cannot write {path}: {error}")));
        let one = info.system.as_ref().is_some_and(|it| it.max_vcpus == 1);
        if args.raw.iter().any(|raw| raw == "entries=on") {
            if !one {
                refuse("expected one CPU with entries=on, as of several QEMU does not say which one executes, and found more");
            }
            watch::begin();
        }
        if let Some(path) = args
            .raw
            .iter()
            .find_map(|raw| raw.strip_prefix("functions="))
        {
            let text = std::fs::read_to_string(path)
                .unwrap_or_else(|error| refuse(&format!("cannot read {path}: {error}")));
            let list = Functions::parse(&text)
                .unwrap_or_else(|error| refuse(&format!("{error} of {path}")));
            let places = one.then(|| CallPlaces::new(list.names().len()));
            let _ = FUNCTIONS.set((list, places));
        }
        let mut raw = args.raw.iter();
        if let Some(path) = raw.find_map(|raw| raw.strip_prefix("executed=")) {
            executed::begin(path.as_ref())
                .unwrap_or_else(|error| refuse(&format!("cannot write {path}: {error}")));
        }
        let _ = BEGAN.set(Instant::now());
        let _ = PLACES.set(one.then(Places::new));
        let _ = MARKS.set(Mutex::new(Some(file)));
        Ok(())
    }
}

impl HasCallbacks for Plugin {
    fn on_vcpu_init(&mut self, _: PluginId, _: VCPUIndex) -> Result<()> {
        watch::find_registers()
    }

    fn on_translation_block_translate(&mut self, _: PluginId, tb: TranslationBlock) -> Result<()> {
        let Some(places) = PLACES.get().copied() else {
            return Ok(());
        };
        let user = places.map(|places| places.user);
        let insns: Vec<Insn<'_>> = tb.instructions().collect();
        // The half, by bit 55 as the MMU selects it; a boot's first instructions, at physical addresses, count as user.
        if tb.vaddr() >> 55 & 1 != 0 {
            let count = insns.len() as u64;
            watch::block(&insns);
            executed::block(tb.vaddr(), insns.len());
            if FUNCTIONS.get().is_some() {
                // Each is handed to QEMU once.
                tb.instructions().for_each(count_call);
            }
            for insn in insns {
                if let Some(kind) = Kind::of(opcode(&insn)) {
                    add_one(insn, places, kind);
                }
            }
            let Some(places) = places else {
                tb.register_execute_callback(move |cpu| {
                    Called::add(&Called::of(cpu).kernel, count)
                });
                return Ok(());
            };
            let add = PluginOp::QEMU_PLUGIN_INLINE_ADD_U64;
            qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, add, places.kernel, count);
            return Ok(());
        }
        // A run begins at `first`, and is counted there once its end is known.
        let mut first: Option<Insn<'_>> = None;
        let mut count = 0;
        for insn in insns {
            let opcode = opcode(&insn);
            if let Some(number) = marker(opcode) {
                add(first.take(), user, &mut count);
                insn.register_execute_callback_flags(
                    move |cpu| tell(number, cpu),
                    CallbackFlags::QEMU_PLUGIN_CB_NO_REGS,
                );
                continue;
            }
            count += 1;
            if first.is_none() {
                first = Some(insn);
            }
            if accesses_memory(opcode) {
                add(first.take(), user, &mut count);
            }
        }
        add(first, user, &mut count);
        Ok(())
    }
}

/// Returns an instruction, or 0 where it cannot be read.
fn opcode(insn: &Insn<'_>) -> u32 {
    let mut bytes = [0; 4];
    match insn.read_data(&mut bytes) {
        4 => u32::from_le_bytes(bytes),
        _ => 0,
    }
}

/// Has a run of `count` instructions counted where it begins.
fn add(first: Option<Insn<'_>>, to: Option<PluginU64>, count: &mut u64) {
    let run = std::mem::take(count);
    match (first, to) {
        (Some(first), Some(to)) => {
            let add = PluginOp::QEMU_PLUGIN_INLINE_ADD_U64;
            qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(first, add, to, run);
        }
        (Some(first), None) => first.register_execute_callback_flags(
            move |cpu| Called::add(&Called::of(cpu).user, run),
            CallbackFlags::QEMU_PLUGIN_CB_NO_REGS,
        ),
        (None, _) => {}
    }
}

/// Has an instruction of the kernel's counted among those of its kind.
fn add_one(insn: Insn<'_>, places: Option<Places>, kind: Kind) {
    let kind = kind as usize;
    match places {
        Some(places) => {
            let add = PluginOp::QEMU_PLUGIN_INLINE_ADD_U64;
            let to = places.did[kind];
            qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, add, to, 1);
        }
        None => insn.register_execute_callback_flags(
            move |cpu| Called::add(&Called::of(cpu).did[kind], 1),
            CallbackFlags::QEMU_PLUGIN_CB_NO_REGS,
        ),
    }
}

/// Writes a marker's line.
fn tell(number: u16, cpu: VCPUIndex) {
    let (Some(places), Some(marks)) = (PLACES.get(), MARKS.get()) else {
        return;
    };
    let sum = |of: fn(&Called) -> &AtomicU64| {
        let all = CALLED.iter();
        all.map(|one| of(one).load(Ordering::Relaxed)).sum::<u64>()
    };
    let (user, kernel, did) = match places {
        Some(places) => (
            qemu_plugin_u64_get(places.user, cpu),
            qemu_plugin_u64_get(places.kernel, cpu),
            places.did.map(|place| qemu_plugin_u64_get(place, cpu)),
        ),
        None => (
            sum(|one| &one.user),
            sum(|one| &one.kernel),
            std::array::from_fn(|kind| {
                let all = CALLED.iter();
                all.map(|one| one.did[kind].load(Ordering::Relaxed)).sum()
            }),
        ),
    };
    let ns = BEGAN.get().map_or(0, |began| began.elapsed().as_nanos());
    let entries = watch::told();
    let functions = calls(cpu);
    let line = format!(
        "{{\"marker\":{number},\"cpu\":{cpu},\"ns\":{ns},\"counts\":[[{user},{kernel}]],\"did\":{did:?}{entries}{functions}}}\n"
    );
    let mut marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = marks.as_mut() {
        if let Err(error) = file.write_all(line.as_bytes()) {
            eprintln!("counter: the marks end here, they cannot be written on: {error}");
            *marks = None;
        }
    }
}

register!(Plugin);
