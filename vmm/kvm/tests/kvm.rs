//! Real guests on a real KVM.
//!
//! `FOLIOSCOPE_TEST_IMAGE` names the kernel, `FOLIOSCOPE_TEST_INITRD` an initramfs with the agent. Without them, or
//! without KVM, these tests have nothing to test: they say so, and fail where
//! `FOLIOSCOPE_TEST_REQUIRE_GUEST=1` demands a guest.

#![cfg(target_arch = "aarch64")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvm::fdt::Gic;
use kvm::{Config, Kvm};
use machine::{Machine, MachineError, Paused, Status};
use protocol::{Access, Command, Message, Operation, Outcome, ProcessId, Request};
use snapshot::{Range, PAGE};
use stage1::{lookup, Half, Lookup, PhysMemory, PhysicalAddress, Regime, VirtualAddress};

const BOOT: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(30);

/// One guest at a time: the host may be an emulated one.
static ONE: Mutex<()> = Mutex::new(());

/// The folder of one test's guest, gone when the test passed.
struct Work {
    folder: PathBuf,
    config: Config,
    _one: MutexGuard<'static, ()>,
}

impl Work {
    /// What to boot; `None`, said aloud, where there is nothing to boot or no KVM and none was demanded.
    fn new(name: &str) -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let image = path("FOLIOSCOPE_TEST_IMAGE");
        let initrd = path("FOLIOSCOPE_TEST_INITRD");
        let message = match (image, initrd, kvm::check_host()) {
            (Some(image), Some(initrd), Ok(())) => {
                let folder = format!("folioscope-kvm-{}-{name}", std::process::id());
                let folder = std::env::temp_dir().join(folder);
                let mut config = Config::new(image, &folder);
                config.initrd = Some(initrd);
                config.memory_bytes = 512 << 20;
                config.cmdline = "console=ttyS0 quiet rdinit=/init".into();
                return Some(Self {
                    folder,
                    config,
                    _one: one,
                });
            }
            (_, _, Err(error)) => error.to_string(),
            _ => "set FOLIOSCOPE_TEST_IMAGE and FOLIOSCOPE_TEST_INITRD".into(),
        };
        let demanded = std::env::var_os("FOLIOSCOPE_TEST_REQUIRE_GUEST").is_some_and(|v| v == "1");
        assert!(!demanded, "no guest to test: {message}");
        eprintln!("NOT TESTED: {message}");
        None
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// A guest whose agent has said hello.
struct Guest {
    machine: Kvm,
    requests: u64,
}

impl Guest {
    fn boot(config: &Config) -> Self {
        Self::with(Kvm::start(config).unwrap(), config)
    }

    fn with(machine: Kvm, config: &Config) -> Self {
        let mut guest = Self {
            machine,
            requests: 0,
        };
        match guest.message(BOOT) {
            Message::Hello(hello) => assert_eq!(hello.cpus, config.smp),
            other => panic!("expected a hello, found {other:?}"),
        }
        guest
    }

    fn message(&mut self, timeout: Duration) -> Message {
        let line = self.machine.receive_line(timeout);
        let line = line.unwrap_or_else(|error| {
            panic!("{error}; console: {}", self.machine.console().tail());
        });
        let text = std::str::from_utf8(&line).unwrap();
        protocol::read_message(text).unwrap().unwrap()
    }

    fn send(&mut self, command: Command) {
        self.requests += 1;
        let request = Request {
            id: self.requests,
            deadline_ms: 20_000,
            command,
        };
        let line = protocol::encode(&request).unwrap();
        self.machine.send(&line, ANSWER).unwrap();
    }

    fn ask(&mut self, command: Command) -> Outcome {
        self.send(command);
        loop {
            if let Message::Reply(reply) = self.message(ANSWER) {
                assert_eq!(reply.id, Some(self.requests));
                return Result::from(reply.result).unwrap();
            }
        }
    }

    fn spawn(&mut self) -> ProcessId {
        let command = Command::Spawn {
            name: "test".into(),
            cpu: None,
            randomize: false,
        };
        match self.ask(command) {
            Outcome::Spawned(spawned) => spawned.process,
            other => panic!("{other:?}"),
        }
    }

    fn op(&mut self, process: ProcessId, op: Operation) -> Outcome {
        self.ask(Command::Op { process, op })
    }

    fn mmap(&mut self, process: ProcessId, length: u64) -> u64 {
        let op = format!(r#"{{"mmap": {{"length": {length}}}}}"#);
        match self.op(process, serde_json::from_str(&op).unwrap()) {
            Outcome::Mapped { address, .. } => address,
            other => panic!("{other:?}"),
        }
    }

    fn poke(&mut self, process: ProcessId, address: u64, word: u64) {
        let words = vec![word];
        self.op(process, Operation::Poke { address, words });
    }

    fn checkpoint(&mut self, process: ProcessId, nonce: u64) -> protocol::Checkpoint {
        let command = Command::Checkpoint {
            process,
            nonce,
            smaps: false,
        };
        match self.ask(command) {
            Outcome::Checkpoint(checkpoint) => *checkpoint,
            other => panic!("{other:?}"),
        }
    }
}

fn waits(cpu: &snapshot::Cpu, checkpoint: &protocol::Checkpoint) -> bool {
    cpu.el() == 0
        && cpu.general.x[19] == checkpoint.nonce
        && (checkpoint.pc_start..checkpoint.pc_end).contains(&cpu.general.pc)
}

/// Acts while the machine is stopped where a process waits, on whose CPU it does.
fn at<T>(
    machine: &mut Kvm,
    checkpoint: &protocol::Checkpoint,
    act: impl FnOnce(&mut Paused, &snapshot::Cpu) -> T,
) -> T {
    for _ in 0..100 {
        let mut paused = machine.pause_at(checkpoint.nonce).unwrap();
        let cpu = paused
            .cpus
            .iter()
            .find(|cpu| waits(cpu, checkpoint))
            .copied();
        if let Some(cpu) = cpu {
            return act(&mut paused, &cpu);
        }
    }
    panic!("no CPU is ever in the wait loop");
}

fn physical(paused: &Paused, cpu: &snapshot::Cpu, half: Half, va: u64) -> PhysicalAddress {
    let regime = Regime::new(&cpu.system, half).unwrap();
    match lookup(&paused.memory, &regime, VirtualAddress(va)) {
        Lookup::Mapped { pa, .. } => pa,
        other => panic!("{va:#x}: {other:?}"),
    }
}

fn word(paused: &Paused, address: PhysicalAddress) -> u64 {
    paused.memory.words(address, 1).unwrap()[0]
}

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
fn one_to_eight_cpus_boot_and_can_be_read() {
    let Some(mut work) = Work::new("cpus") else {
        return;
    };
    for smp in [1, 4, 8] {
        work.config.smp = smp;
        let start = Instant::now();
        let mut guest = Guest::boot(&work.config);
        println!(
            "{smp} CPUs, {:?}: hello after {:?}; exits: {}",
            guest.machine.gic(),
            start.elapsed(),
            guest.machine.exits()
        );
        assert_eq!(guest.machine.status(), Status::Running);
        let range = Range::new(PhysicalAddress(0x4000_0000), 512 << 20).unwrap();
        assert_eq!(guest.machine.ram(), [range]);
        let paused = guest.machine.pause().unwrap();
        assert_eq!(paused.cpus.len(), smp as usize);
        for (index, cpu) in paused.cpus.iter().enumerate() {
            let system = &cpu.system;
            assert_eq!(cpu.index, index);
            assert!(cpu.el() <= 1);
            assert_eq!(system.sctlr_el1 & 1, 1, "the MMU is on");
            assert_ne!(system.tcr_el1 & 0x3f, 0, "T0SZ");
            assert!(system.id_aa64mmfr.iter().all(Option::is_some));
            assert_eq!(
                system.vbar_el1.unwrap() >> 60,
                0xf,
                "vectors in the upper half"
            );
            if cpu.el() == 1 {
                assert_eq!(cpu.general.sp >> 60, 0xf, "the kernel's stack");
                assert_eq!(cpu.general.sp_el0.unwrap() >> 60, 0xf, "the current task");
            }
            // The kernel's text is where its own tables say.
            let there = physical(&paused, cpu, Half::Upper, system.vbar_el1.unwrap());
            assert_ne!(word(&paused, there), 0);
        }
        std::mem::forget(paused);
        assert_eq!(guest.machine.status(), Status::Paused);
        drop(guest.machine.pause().unwrap());
        assert_eq!(guest.machine.status(), Status::Running);
        assert!(matches!(guest.ask(Command::Ping {}), Outcome::Pong { .. }));
        let exits = guest.machine.exits();
        assert!(exits.mmio_writes > 0 && exits.mmio_reads > 0 && exits.interrupted > 0);
    }
}

#[test]
fn a_gicv2_serves_where_there_is_no_other() {
    let Some(work) = Work::new("gicv2") else {
        return;
    };
    match Kvm::start_with(&work.config, Some(Gic::V2)) {
        Ok(machine) => {
            assert_eq!(machine.gic(), Gic::V2);
            let mut guest = Guest::with(machine, &work.config);
            assert!(matches!(guest.ask(Command::Ping {}), Outcome::Pong { .. }));
        }
        // A GICv3 without the compatible mode has none.
        Err(error) => {
            println!("this host has no GICv2: {error}");
            assert!(error.to_string().contains("neither a GICv3"), "{error}");
        }
    }
}

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
    // Nobody rings with this nonce.
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
    if rings > 0 {
        assert!(at_once >= 95, "{at_once} of 100");
    }
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
    // A new record does not have what the old one had.
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

#[test]
fn a_kernel_runs_at_another_place() {
    let Some(mut work) = Work::new("offset") else {
        return;
    };
    work.config.load_offset = 34 << 20;
    let mut guest = Guest::boot(&work.config);
    let paused = guest.machine.pause().unwrap();
    let cpu = paused.cpus[0];
    let there = physical(&paused, &cpu, Half::Upper, cpu.system.vbar_el1.unwrap());
    assert!(there.0 >= 0x4000_0000 + (34 << 20), "{there}");
}

#[test]
fn large_memory_is_addressed() {
    let Some(mut work) = Work::new("large") else {
        return;
    };
    work.config.memory_bytes = 2 << 30;
    let mut guest = match Kvm::start(&work.config) {
        // A host with less has nothing to try.
        Err(MachineError::Config(error)) => return println!("{error}"),
        other => Guest::with(other.unwrap(), &work.config),
    };
    let paused = guest.machine.pause().unwrap();
    assert!(paused
        .memory
        .words(PhysicalAddress(0xbfff_f000), 512)
        .is_some());
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
    assert!(
        matches!(error, MachineError::Ended { reset: false, .. }),
        "{error}"
    );
    assert_eq!(guest.machine.status(), Status::Ended { reset: false });
    // It can still be read, and does not go on.
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

    work.config.cmdline = "console=ttyS0 rdinit=/nonexistent".into();
    let mut machine = Kvm::start(&work.config).unwrap();
    let error = machine.receive_line(BOOT).unwrap_err();
    assert!(matches!(error, MachineError::Panicked { .. }), "{error}");
    assert!(error.to_string().contains("Kernel panic"), "{error}");
    assert_eq!(machine.status(), Status::Panicked);
    assert_eq!(machine.pause().unwrap().cpus.len(), 2);
    drop(machine);

    work.config.cmdline = "console=ttyS0 rdinit=/nonexistent panic=-1".into();
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
        // SAFETY: plain system calls, which change what this thread may do, and no other's.
        let changed = change.map(|call| unsafe { libc::syscall(call, NOBODY, NOBODY, NOBODY) });
        (changed == [0, 0]).then(kvm::check_host)
    });
    match told.join().unwrap() {
        Some(Err(error)) => {
            let told = error.to_string();
            assert!(told.contains("belongs to group "), "{told}");
            assert!(told.contains("usermod -aG "), "{told}");
        }
        // A host whose users may all use it, or one of them who runs this.
        Some(Ok(())) => eprintln!("NOT TESTED: everybody may use /dev/kvm"),
        None => eprintln!("NOT TESTED: this user cannot become another"),
    }
}

#[test]
fn huge_pages_serve() {
    let Some(mut work) = Work::new("huge") else {
        return;
    };
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free: u64 = free.map_or(0, |text| text.trim().parse().unwrap());
    work.config.hugepages = true;
    if free < work.config.memory_bytes >> 21 {
        let error = Kvm::start(&work.config).unwrap_err().to_string();
        return assert!(error.contains("nr_hugepages"), "{error}");
    }
    let mut guest = Guest::boot(&work.config);
    guest.machine.log_writes(true).unwrap();
    assert!(matches!(guest.ask(Command::Ping {}), Outcome::Pong { .. }));
    let mut paused = guest.machine.pause().unwrap();
    let written = paused.written().unwrap().unwrap();
    println!(
        "of {free} huge pages: {} KiB written to",
        written.bytes() / 1024
    );
    assert!(!written.is_empty() && written.bytes() < 64 << 20);
}

/// An Image whose code is `words`.
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
    std::fs::create_dir_all(&work.folder).unwrap();
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
    // b . : a kernel that never says anything.
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
    assert_eq!(paused.cpus[0].general.pc, 0x4000_0040);
    assert_eq!(paused.cpus[0].system.sctlr_el1 & 1, 0, "the MMU is off");
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
fn typing_on_the_console_reaches_the_guest() {
    let Some(mut work) = Work::new("typing") else {
        return;
    };
    work.config.cmdline = "console=ttyS0 quiet rdinit=/bin/busybox -- sh".into();
    let machine = Kvm::start(&work.config).unwrap();
    assert!(
        machine.console().wait_for("# ", BOOT),
        "{}",
        machine.console().tail()
    );
    machine.console().write(b"echo $((6 * 7))-typed\n").unwrap();
    let seen = machine.console().wait_for("42-typed", ANSWER);
    assert!(seen, "{}", machine.console().tail());
    // More than a FIFO holds, at once.
    let long = "x".repeat(900);
    machine
        .console()
        .write(format!("echo {long}-long | wc -c\n").as_bytes())
        .unwrap();
    assert!(
        machine.console().wait_for("\n906", ANSWER),
        "{}",
        machine.console().tail()
    );
}

#[test]
fn the_second_uart_serves_where_there_is_no_virtio() {
    let Some(mut work) = Work::new("uart") else {
        return;
    };
    work.config.cmdline += " folioscope.channel=uart";
    let mut guest = Guest::boot(&work.config);
    for _ in 0..20 {
        assert!(matches!(guest.ask(Command::Ping {}), Outcome::Pong { .. }));
    }
    let text = "z".repeat(20_000);
    let command = Command::WriteFile {
        path: "/tmp/long".into(),
        text: text.clone(),
        process: None,
        create: true,
    };
    guest.ask(command);
    let command = Command::ReadFile {
        path: "/tmp/long".into(),
        process: None,
        offset: 0,
        max: None,
    };
    match guest.ask(command) {
        Outcome::File(file) => assert_eq!(file.content, protocol::Content::Text(text)),
        other => panic!("{other:?}"),
    }
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
        // In whatever the kernel does by then.
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

#[test]
fn two_guests_do_not_meet() {
    let Some(work) = Work::new("two") else { return };
    let mut one = Guest::boot(&work.config);
    let mut other = work.config.clone();
    other.work_dir = work.folder.join("other");
    let mut two = Guest::boot(&other);
    let paused = one.machine.pause().unwrap();
    assert!(matches!(two.ask(Command::Ping {}), Outcome::Pong { .. }));
    drop(paused);
    one.machine.kill();
    assert_eq!(two.machine.status(), Status::Running);
    assert!(matches!(two.ask(Command::Ping {}), Outcome::Pong { .. }));
}
