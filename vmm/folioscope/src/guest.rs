//! A booted guest: a machine, the agent that speaks in it, the kernel that it runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use machine::Machine;
use protocol::{Command, Hello, Operation, Outcome, ProcessId, Spawned};
use snapshot::{Checkpoint, Cpu, Notes, Process, Snapshot};
use stage1::{PhysMemory, PhysicalAddress, VirtualAddress};

use crate::boot;
use crate::capture::{self, Capture, Companion, Extent, Facts};
use crate::kernel::Kernel;
use crate::link::Link;
use crate::options::{GuestOptions, MachineName};
use crate::Error;

/// How long a kernel may take until its agent speaks. A stock one takes some ten seconds on a slow host.
const BOOT: Duration = Duration::from_secs(120);
/// What an operation may take, unless its caller says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// The registers that hold the nonce and the pid at a checkpoint.
const NONCE_REGISTER: u8 = 19;
const PID_REGISTER: usize = 20;
/// How often a machine is stopped again because an interrupt had taken the CPU out of the wait loop.
const ATTEMPTS: u32 = 400;

/// A guest that runs and obeys.
#[derive(Debug)]
pub struct Guest {
    link: Link,
    kernel: Kernel,
    hello: Hello,
    scratch: PathBuf,
    ready_after: Duration,
    /// Whether the kernel folds at all, where that can be told.
    contpte: Option<bool>,
    next_nonce: u64,
    /// Processes that wait at a checkpoint.
    held: BTreeMap<ProcessId, Process>,
    names: BTreeMap<ProcessId, String>,
    /// The CPU as it was when it was last proved to run a process: its TTBR0_EL1 leads to the same
    /// first table for as long as the process lives.
    roots: BTreeMap<ProcessId, Cpu>,
}

/// A word to be in guest memory for the time of one capture.
#[derive(Clone, Copy, Debug)]
pub struct Poke {
    /// Where, 8-byte aligned.
    pub address: PhysicalAddress,
    /// What.
    pub word: u64,
}

impl Guest {
    /// Boots what the options name and waits until its agent speaks.
    ///
    /// # Errors
    /// Bad input; a machine that does not start; a guest that panics, ends, hangs or speaks nonsense.
    pub fn boot(options: &GuestOptions) -> Result<Self, Error> {
        if options.machine == MachineName::Kvm {
            return Err(Error::Input(
                "this version has no KVM machine yet; leave --machine at auto or tcg".into(),
            ));
        }
        let scratch = boot::scratch(&options.out)?;
        let kernel = Kernel::prepare(options, &scratch)?;
        let initrd = options.initrd_path()?;
        let started = Instant::now();
        let mut link = Link::new(boot::qemu(options, &kernel, &initrd, &scratch)?);
        let hello = match link.hello(BOOT) {
            Ok(hello) => hello,
            Err(error) => return Err(boot::failed(&mut link, &kernel, &options.out, error)),
        };
        let ready_after = started.elapsed();
        kernel.check_running(hello.build_id.as_deref())?;
        let nonce = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos() as u64
            | 1 << 63;
        let mut guest = Self {
            link,
            kernel,
            hello,
            scratch,
            ready_after,
            contpte: None,
            next_nonce: nonce,
            held: BTreeMap::new(),
            names: BTreeMap::new(),
            roots: BTreeMap::new(),
        };
        guest.contpte = match guest.kernel.contpte() {
            Some(known) => Some(known),
            None => guest.contpte_by_kallsyms()?,
        };
        if let Some(policy) = &options.policy {
            guest.set_policy(policy)?;
        }
        Ok(guest)
    }

    /// Whether the kernel was built with `CONFIG_ARM64_CONTPTE`, where its vmlinux or its own list of symbols tells.
    #[must_use]
    pub fn contpte(&self) -> Option<bool> {
        self.contpte
    }

    /// Without a vmlinux the guest is asked: the names in `/proc/kallsyms` are there for everybody.
    fn contpte_by_kallsyms(&mut self) -> Result<Option<bool>, Error> {
        let argv = [
            "grep",
            "-q",
            "-m",
            "1",
            " contpte_set_ptes$",
            "/proc/kallsyms",
        ];
        let command = Command::Run {
            argv: argv.map(str::to_owned).to_vec(),
            input: None,
            process: None,
        };
        match self.command(command, DEADLINE) {
            Ok(Outcome::Program(ended)) => Ok(match ended.how {
                protocol::Ended::Exit { status: 0 } => Some(true),
                protocol::Ended::Exit { status: 1 } => Some(false),
                _ => None,
            }),
            Ok(other) => Err(unexpected("run", &other)),
            Err(Error::Guest { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the agent said of itself and the kernel.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The kernel that was booted.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The machine.
    pub fn machine(&mut self) -> &mut dyn Machine {
        self.link.machine.as_mut()
    }

    /// The link, for what the agent said unasked.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Where the console's and the channel's logs are.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// From starting the machine to the agent's first line.
    #[must_use]
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Asks the agent for anything.
    ///
    /// # Errors
    /// [`Error::Guest`] where it says no; anything else means that the guest is lost.
    pub fn command(&mut self, command: Command, deadline: Duration) -> Result<Outcome, Error> {
        let ends = match &command {
            Command::Kill { process }
            | Command::Op {
                process,
                op: Operation::Exit { .. },
            } => Some(*process),
            _ => None,
        };
        let works = match &command {
            Command::Op { process, .. } => Some(*process),
            _ => None,
        };
        let outcome = self.link.request(command, deadline);
        if let (Err(Error::Guest { failure, .. }), Some(process)) = (&outcome, works) {
            if matches!(failure, protocol::Failure::Deadline { .. }) {
                // It is still at work, so its tables may change at any time.
                self.roots.remove(&process);
            }
        }
        let outcome = outcome?;
        if let Some(process) = ends {
            self.roots.remove(&process);
        }
        if let Outcome::Spawned(spawned) = &outcome {
            self.names.insert(spawned.process, "child".into());
        }
        Ok(outcome)
    }

    /// One operation in a workload process.
    ///
    /// # Errors
    /// As [`Guest::command`].
    pub fn op(&mut self, process: ProcessId, op: Operation) -> Result<Outcome, Error> {
        self.command(Command::Op { process, op }, DEADLINE)
    }

    /// Starts a workload process.
    ///
    /// # Errors
    /// As [`Guest::command`].
    pub fn spawn(&mut self, name: &str) -> Result<Spawned, Error> {
        match self.command(
            Command::Spawn {
                name: name.into(),
                cpu: None,
                randomize: false,
            },
            DEADLINE,
        )? {
            Outcome::Spawned(spawned) => {
                self.names.insert(spawned.process, name.into());
                Ok(spawned)
            }
            other => Err(unexpected("spawn", &other)),
        }
    }

    /// Writes a knob.
    ///
    /// # Errors
    /// As [`Guest::command`].
    pub fn write_file(
        &mut self,
        path: &str,
        text: &str,
        process: Option<ProcessId>,
    ) -> Result<(), Error> {
        let command = Command::WriteFile {
            path: path.into(),
            text: text.into(),
            process,
            create: false,
        };
        self.command(command, DEADLINE).map(drop)
    }

    /// Reads a file that is text; `None` where it cannot be opened.
    ///
    /// # Errors
    /// Only where the guest is lost.
    pub fn read_file(&mut self, path: &str) -> Result<Option<String>, Error> {
        let command = Command::ReadFile {
            path: path.into(),
            process: None,
            offset: 0,
            max: None,
        };
        match self.command(command, DEADLINE) {
            Ok(Outcome::File(file)) => Ok(file.content.text().map(str::to_owned)),
            Ok(other) => Err(unexpected("read_file", &other)),
            Err(Error::Guest { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Selects the order policy of anonymous faults.
    ///
    /// # Errors
    /// Where the kernel has no policies, or not this one.
    pub fn set_policy(&mut self, policy: &str) -> Result<(), Error> {
        if self.hello.anon_order_policy.is_none() {
            return Err(Error::Input(format!(
                "kernel {} has no order policies (they come with kernel-patches/), so --policy {policy} cannot be had; leave POLICY out",
                self.hello.kernel_release
            )));
        }
        const KNOB: &str = "/sys/kernel/mm/transparent_hugepage/anon_order_policy";
        self.write_file(KNOB, policy, None).map_err(|error| match error {
            Error::Guest { .. } => Error::Input(format!("the kernel has no order policy {policy:?}; it has sysfs, baseline, simple, variable and retry")),
            other => other,
        })
    }

    /// Lets a process wait in user mode at its known instruction.
    ///
    /// # Errors
    /// As [`Guest::command`].
    pub fn hold(&mut self, process: ProcessId) -> Result<(), Error> {
        let nonce = self.next_nonce;
        self.next_nonce = nonce.wrapping_add(1);
        let outcome = self.command(
            Command::Checkpoint {
                process,
                nonce,
                smaps: true,
            },
            DEADLINE,
        )?;
        let Outcome::Checkpoint(checkpoint) = outcome else {
            return Err(unexpected("checkpoint", &outcome));
        };
        let held = Process {
            pid: u32::try_from(checkpoint.pid).unwrap_or_default(),
            name: self.names.get(&process).cloned().unwrap_or_default(),
            cpu: None,
            checkpoint: Some(Checkpoint {
                pc_first: checkpoint.pc_start,
                pc_end: checkpoint.pc_end,
                register: NONCE_REGISTER,
                nonce,
            }),
            maps: checkpoint.smaps.unwrap_or(checkpoint.maps),
            ..Process::default()
        };
        self.held.insert(process, held);
        Ok(())
    }

    /// The processes whose first table is known.
    #[must_use]
    pub fn known(&self) -> Vec<ProcessId> {
        self.roots.keys().copied().collect()
    }

    /// Ends the wait.
    ///
    /// # Errors
    /// As [`Guest::command`].
    pub fn release(&mut self, process: ProcessId) -> Result<(), Error> {
        self.held.remove(&process);
        self.command(Command::Release { process }, DEADLINE)
            .map(drop)
    }

    /// The processes that wait at a checkpoint.
    pub fn held(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.held.iter().map(|(id, process)| (*id, process))
    }

    /// Stops the guest while `process` waits at its checkpoint, copies what will be asked of that instant, and
    /// lets the guest go on. `pokes` are in guest memory only while it stands still.
    ///
    /// # Errors
    /// Where no CPU is seen in the wait loop, where its registers contradict the agent, or the guest is lost.
    pub fn capture(
        &mut self,
        process: ProcessId,
        extent: Extent,
        pokes: &[Poke],
    ) -> Result<Capture, Error> {
        self.capture_with(process, &[], extent, pokes)
    }

    /// The same, with the tables of other processes that do nothing meanwhile: those of `others` whose first table is
    /// known from a checkpoint of their own.
    ///
    /// # Errors
    /// As [`Guest::capture`].
    pub fn capture_with(
        &mut self,
        process: ProcessId,
        others: &[ProcessId],
        extent: Extent,
        pokes: &[Poke],
    ) -> Result<Capture, Error> {
        let Some(held) = self.held.get(&process).cloned() else {
            return Err(Error::Input(format!(
                "{process} does not wait at a checkpoint; hold it first"
            )));
        };
        let checkpoint = held
            .checkpoint
            .ok_or_else(|| Error::Input(format!("{process} has no checkpoint")))?;
        let companions = self.companions(process, others)?;
        for attempt in 0..ATTEMPTS {
            let mut paused = self.link.machine.pause()?;
            let Some(root) = paused
                .cpus
                .iter()
                .find(|cpu| checkpoint.holds(cpu))
                .copied()
            else {
                paused.resume()?;
                std::thread::sleep(Duration::from_micros(100 * u64::from(attempt.min(50))));
                continue;
            };
            agrees(&root, &held)?;
            let mut before = Vec::with_capacity(pokes.len());
            for poke in pokes {
                let word = paused.memory.words(poke.address, 1).map(|words| words[0]);
                before.push(word.ok_or_else(|| {
                    Error::Input(format!(
                        "{} is not guest RAM, so no word can be written there",
                        poke.address
                    ))
                })?);
            }
            for poke in pokes {
                paused.write(poke.address, &poke.word.to_le_bytes())?;
            }
            let facts = Facts {
                contpte: self.contpte,
                ..Facts::new(self.kernel.symbols.as_ref(), &paused.cpus)
            };
            let mut pages =
                capture::pages(&paused.memory, &paused.cpus, Some(&root), facts, extent);
            for companion in &companions {
                for range in capture::user_pages(&paused.memory, &companion.cpu).iter() {
                    pages.insert(range);
                }
            }
            let memory = capture::copy(&paused.memory, &pages);
            for (poke, word) in pokes.iter().zip(before).rev() {
                paused.write(poke.address, &word.to_le_bytes())?;
            }
            let cpus = paused.cpus.clone();
            let stopped = paused.resume()?;
            let captured = Process {
                cpu: Some(root.index),
                ..held
            };
            let mut notes = self.notes(vec![captured]);
            facts.keep(&mut notes);
            self.roots.insert(process, root);
            return Ok(Capture {
                companions,
                snapshot: Snapshot {
                    cpus,
                    memory: memory?,
                    notes,
                },
                stopped,
            });
        }
        Err(Error::GuestLost {
            what: format!("{process} was to wait in user mode, and in {ATTEMPTS} looks no CPU was seen in its loop; without that no table is known to be its own"),
        })
    }

    /// What is to be known of `others` before the guest is stopped.
    fn companions(
        &mut self,
        process: ProcessId,
        others: &[ProcessId],
    ) -> Result<Vec<Companion>, Error> {
        let mut companions = Vec::new();
        for &other in others {
            let Some(cpu) = self.roots.get(&other).copied() else {
                continue;
            };
            if other == process {
                continue;
            }
            let command = Command::Maps {
                process: other,
                smaps: true,
            };
            let outcome = match self.command(command, DEADLINE) {
                // It has ended meanwhile.
                Err(Error::Guest { .. }) => {
                    self.roots.remove(&other);
                    continue;
                }
                other => other?,
            };
            let Outcome::Maps { maps, smaps } = outcome else {
                return Err(unexpected("maps", &outcome));
            };
            companions.push(Companion {
                name: self.names.get(&other).cloned().unwrap_or_default(),
                pid: u32::try_from(cpu.general.x[PID_REGISTER]).unwrap_or_default(),
                maps: smaps.unwrap_or(maps),
                cpu,
            });
        }
        Ok(companions)
    }

    /// Stops the guest wherever it is and copies every CPU's tables: what is left of a guest that hangs.
    ///
    /// # Errors
    /// Where the machine itself cannot be stopped or read.
    pub fn capture_all(&mut self) -> Result<Capture, Error> {
        let held = self.held.values().cloned().collect();
        let notes = self.notes(held);
        boot::capture_all(&mut self.link, self.kernel.symbols.as_ref(), notes)
    }

    /// The machine's own translation, where it has one.
    ///
    /// # Errors
    /// Where it has none, or is lost.
    pub fn translate(
        &mut self,
        cpu: usize,
        addresses: &[VirtualAddress],
    ) -> Result<Vec<Option<PhysicalAddress>>, Error> {
        let mut paused = self.link.machine.pause()?;
        let found = addresses
            .iter()
            .map(|&va| paused.translate(cpu, va))
            .collect::<Result<_, _>>()?;
        paused.resume()?;
        Ok(found)
    }

    /// What a snapshot of this guest says about it.
    fn notes(&self, processes: Vec<Process>) -> Notes {
        Notes {
            taken_at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
            machine: self.link.machine.kind().into(),
            machine_command: self.link.machine.command_line(),
            kernel_release: self.hello.kernel_release.clone(),
            command_line: self.hello.cmdline.clone(),
            page_size: self.hello.page_size,
            processes,
            ..Notes::default()
        }
    }
}

/// The CPU in the wait loop must be that of the process by every sign there is.
fn agrees(cpu: &Cpu, process: &Process) -> Result<(), Error> {
    let pid = u64::from(process.pid);
    // 0: the kernel lacks CONFIG_PID_IN_CONTEXTIDR.
    let contextidr = cpu.system.contextidr_el1;
    let in_register = cpu.general.x[PID_REGISTER];
    if in_register != pid || (contextidr != 0 && contextidr != pid) {
        return Err(Error::GuestLost {
            what: format!(
                "CPU {} waits with the nonce of process {pid}, but x{PID_REGISTER} is {in_register} and CONTEXTIDR_EL1 {contextidr}; its tables are not judged",
                cpu.index
            ),
        });
    }
    Ok(())
}

/// An outcome of another kind than the command has.
pub fn unexpected(command: &str, outcome: &Outcome) -> Error {
    Error::GuestLost { what: format!("expected the outcome of {command} and found {outcome:?}; host and guest do not agree on the protocol") }
}
