// SPDX-License-Identifier: GPL-2.0-only
//! A guest for one test, and helpers that most tests use.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvm::{Config, Kvm};
use machine::{Machine, Paused};
use protocol::{Command, Message, Operation, Outcome, ProcessId, Request};
use stage1::{lookup, Half, Lookup, PhysMemory, PhysicalAddress, Regime, VirtualAddress};

pub const BOOT: Duration = Duration::from_secs(120);
pub const ANSWER: Duration = Duration::from_secs(30);

/// One guest at a time: the host may be an emulated one.
static ONE: Mutex<()> = Mutex::new(());

/// The folder of one test's guest, gone when the test passed.
pub struct Work {
    pub folder: PathBuf,
    pub config: Config,
    _one: MutexGuard<'static, ()>,
}

impl Work {
    /// Returns the configuration; `None`, with a message, if there is no image or no KVM and none was required.
    pub fn new(name: &str) -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let image = path("FOLIOSCOPE_TEST_IMAGE");
        let initrd = path("FOLIOSCOPE_TEST_INITRD");
        let message = match (image, initrd, kvm::check_host()) {
            (Some(image), Some(initrd), Ok(())) => {
                // Processes of several carriers share the host's folder, and have the same numbers.
                let folder = tempfile::Builder::new()
                    .prefix(&format!("folioscope-kvm-{name}-"))
                    .tempdir()
                    .unwrap()
                    .keep();
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

/// A guest whose agent has sent its greeting.
pub struct Guest {
    pub machine: Kvm,
    requests: u64,
}

impl Guest {
    pub fn boot(config: &Config) -> Self {
        Self::with(Kvm::start(config).unwrap(), config)
    }

    pub fn with(machine: Kvm, config: &Config) -> Self {
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

    pub fn message(&mut self, timeout: Duration) -> Message {
        let line = self.machine.receive_line(timeout);
        let line = line.unwrap_or_else(|error| {
            panic!("{error}; console: {}", self.machine.console().tail());
        });
        let text = std::str::from_utf8(&line).unwrap();
        protocol::read_message(text).unwrap().unwrap()
    }

    pub fn send(&mut self, command: Command) {
        self.requests += 1;
        let request = Request {
            id: self.requests,
            deadline_ms: 20_000,
            command,
        };
        let line = protocol::encode(&request).unwrap();
        self.machine.send(&line, ANSWER).unwrap();
    }

    pub fn ask(&mut self, command: Command) -> Outcome {
        self.send(command);
        loop {
            if let Message::Reply(reply) = self.message(ANSWER) {
                assert_eq!(reply.id, Some(self.requests));
                return Result::from(reply.result).unwrap();
            }
        }
    }

    pub fn spawn(&mut self) -> ProcessId {
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

    pub fn op(&mut self, process: ProcessId, op: Operation) -> Outcome {
        self.ask(Command::Op { process, op })
    }

    pub fn mmap(&mut self, process: ProcessId, length: u64) -> u64 {
        let op = format!(r#"{{"mmap": {{"length": {length}}}}}"#);
        match self.op(process, serde_json::from_str(&op).unwrap()) {
            Outcome::Mapped { address, .. } => address,
            other => panic!("{other:?}"),
        }
    }

    pub fn poke(&mut self, process: ProcessId, address: u64, word: u64) {
        let words = vec![word];
        self.op(process, Operation::Poke { address, words });
    }

    pub fn checkpoint(&mut self, process: ProcessId, nonce: u64) -> protocol::Checkpoint {
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

pub fn waits(cpu: &snapshot::Cpu, checkpoint: &protocol::Checkpoint) -> bool {
    cpu.el() == 0
        && cpu.general.x[19] == checkpoint.nonce
        && (checkpoint.pc_start..checkpoint.pc_end).contains(&cpu.general.pc)
}

/// Calls `act` while the machine is stopped at a waiting process, with that process's CPU.
pub fn at<T>(
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

pub fn physical(paused: &Paused, cpu: &snapshot::Cpu, half: Half, va: u64) -> PhysicalAddress {
    let regime = Regime::new(&cpu.system, half).unwrap();
    match lookup(&paused.memory, &regime, VirtualAddress(va)) {
        Lookup::Mapped { pa, .. } => pa,
        other => panic!("{va:#x}: {other:?}"),
    }
}

pub fn word(paused: &Paused, address: PhysicalAddress) -> u64 {
    paused.memory.words(address, 1).unwrap()[0]
}
