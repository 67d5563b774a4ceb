// SPDX-License-Identifier: GPL-2.0-only
//! A booted guest: a machine, its agent, and its kernel.

mod again;
mod any_process;
mod checkpoint;
mod kept;
mod knobs;
mod policy;
mod recorded;
mod rest;
mod whole;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evidence::Capture;
use linux::release::Release;
use machine::Machine;
use protocol::{Command, Hello, Operation, Outcome, ProcessId, Spawned};
use snapshot::{Cpu, Notes, Process};
use stage1::PhysicalAddress;
use untrusted::Text;
use verdict::basis::Input;
use verdict::{Basis, Step};

use crate::boot;
use crate::console_reports::ConsoleReports;
use crate::kernel::Kernel;
use crate::link::Link;
use crate::machines;
use crate::ops::advise;
use crate::options::GuestOptions;
use crate::recorded::Live;
use crate::Error;

/// A guest that runs and takes commands.
#[derive(Debug)]
pub struct Guest {
    link: Link,
    kernel: Kernel,
    hello: Hello,
    scratch: PathBuf,
    ready_after: Duration,
    /// Default deadline of a command.
    deadline: Duration,
    /// True if the kernel folds at all; `None` if that is unknown.
    contpte: Option<bool>,
    /// True if the kernel is known to be built without `CONFIG_PRINTK`.
    no_printk: bool,
    next_nonce: u64,
    /// Processes that wait at a checkpoint.
    held: BTreeMap<ProcessId, Process>,
    names: BTreeMap<ProcessId, String>,
    /// The started processes by pid, including those that have ended.
    started: BTreeMap<u32, Text>,
    /// The state of the CPU that was last proved to run a process: its TTBR0_EL1 holds the same root table as long as
    /// the process lives.
    roots: BTreeMap<ProcessId, Cpu>,
    /// Processes whose last operation is past its deadline.
    stuck: BTreeMap<ProcessId, Option<Cpu>>,
    /// Verdicts on processes without progress, and on a guest that hangs.
    rest: Vec<Step>,
    /// State from which the next capture may start.
    again: again::Again,
    console_reports: ConsoleReports,
    /// The places of the kernel's structures, or why they are unknown; set by the first search.
    inside: Option<Result<whole::Found, String>>,
    /// The last looks.
    kept: kept::Kept,
    /// The live judge of its sequences, if it was booted with the recorder.
    live: Option<Live>,
}

/// A word to be in guest memory for the time of one capture.
#[derive(Clone, Copy, Debug)]
pub struct Poke {
    /// The address, 8-byte aligned.
    pub address: PhysicalAddress,
    /// The word.
    pub word: u64,
}

impl Poke {
    /// Returns a place that no word can be written to.
    pub(crate) fn refused(&self) -> Error {
        Error::Input(format!(
            "expected the address of a word of guest RAM, a multiple of 8, and found {}; nothing was written",
            self.address
        ))
    }
}

impl Guest {
    /// Boots the guest that the options describe, and waits for its agent's greeting.
    ///
    /// # Errors
    /// Bad input; a machine that does not start; a guest that panics, ends, hangs or violates the protocol.
    pub fn boot(options: &GuestOptions) -> Result<Self, Error> {
        let scratch = boot::scratch(&options.out)?;
        let mut kernel = Kernel::prepare(options, &scratch)?;
        let mut initrd = options.initrd_path()?;
        if let Some(program) = &options.program {
            initrd = program.added(&initrd, &scratch)?;
        }
        let started = Instant::now();
        // QEMU ends with the thread that starts it, so it is the symbols that another one reads.
        let (machine, symbols) = std::thread::scope(|scope| {
            let symbols = scope.spawn(|| kernel.read_symbols(options));
            let machine = machines::start(
                options.machine(),
                &options.launch(&kernel.image, &initrd, &scratch),
            );
            (
                machine,
                symbols.join().unwrap_or_else(|panic| resume_unwind(panic)),
            )
        });
        kernel.symbols = symbols?;
        let mut link = Link::new(machine?);
        let hello = match link.hello(Duration::from_secs(options.boot_timeout)) {
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
        let console_reports = ConsoleReports::new(&scratch, link.machine.console())?;
        let mut guest = Self {
            link,
            kernel,
            hello,
            scratch,
            ready_after,
            deadline: Duration::from_secs(options.deadline),
            contpte: None,
            no_printk: false,
            next_nonce: nonce,
            held: BTreeMap::new(),
            names: BTreeMap::new(),
            started: BTreeMap::new(),
            roots: BTreeMap::new(),
            stuck: BTreeMap::new(),
            rest: Vec::new(),
            again: again::Again::default(),
            console_reports,
            inside: None,
            kept: kept::Kept::default(),
            live: None,
        };
        let release = Release::parse(&guest.hello.kernel_release);
        // contpte came with 6.9.
        let too_old = release.is_some_and(|release| (release.major, release.minor) < (6, 9));
        let contpte = guest.kernel.contpte();
        let asked = contpte.is_none() || (contpte == Some(false) && !too_old);
        let listed = match asked {
            true => guest.has_functions(["contpte_set_ptes", "_printk", "printk"])?,
            false => None,
        };
        guest.no_printk = match listed {
            Some([_, new, old]) => !new && !old,
            None => guest
                .kernel
                .symbols
                .as_ref()
                .is_some_and(|symbols| !symbols.has_printk()),
        };
        let folds = listed.map(|[folds, ..]| folds);
        guest.contpte = match contpte {
            None if too_old => Some(false),
            None => folds,
            Some(false) if !too_old && folds == Some(true) => {
                return Err(Error::Input(
                    "the vmlinux is of a kernel without CONFIG_ARM64_CONTPTE, and the guest's /proc/kallsyms has \
                     contpte_set_ptes: it is not the kernel that runs; give the vmlinux of that very build"
                        .into(),
                ))
            }
            known => known,
        };
        if let Some(policy) = &options.policy {
            guest.set_policy(policy)?;
        }
        guest.set_knobs(&options.knob)?;
        Ok(guest)
    }

    /// Returns whether the kernel was built with `CONFIG_ARM64_CONTPTE`, if its vmlinux or its own list of symbols
    /// shows it.
    #[must_use]
    pub fn contpte(&self) -> Option<bool> {
        let own = || self.symbols().map(linux::symbols::Symbols::has_contpte);
        self.contpte.or_else(own)
    }

    /// Returns whether the kernel has each of these functions. Without a vmlinux the guest's `/proc/kallsyms` is read,
    /// whose names all users can read. `None` if it has no such file.
    fn has_functions<const N: usize>(
        &mut self,
        names: [&str; N],
    ) -> Result<Option<[bool; N]>, Error> {
        let any = format!(" ({})$", names.join("|"));
        let argv = ["grep", "-E", &any, "/proc/kallsyms"];
        let command = Command::Run {
            argv: argv.map(str::to_owned).to_vec(),
            input: None,
            process: None,
        };
        match self.command(command, self.deadline) {
            Ok(Outcome::Program(ended)) => Ok(match ended.how {
                protocol::Ended::Exit { status: 0 | 1 } => {
                    let listed = ended.stdout.text().unwrap_or_default();
                    let is_listed = |name| {
                        listed
                            .lines()
                            .any(|line| line.split(' ').next_back() == Some(name))
                    };
                    Some(names.map(is_listed))
                }
                _ => None,
            }),
            Ok(other) => Err(unexpected("run", &other)),
            Err(Error::Guest { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the agent's facts about itself and the kernel.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns the kernel that was booted.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Returns the machine.
    pub fn machine(&mut self) -> &mut dyn Machine {
        self.link.machine.as_mut()
    }

    /// Returns the agent link, for unsolicited messages.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Returns the kernel's reports on itself since the last call.
    pub fn console_reports(&mut self) -> Vec<linux::console::ConsoleReport> {
        self.console_reports
            .new_reports(self.link.machine.console())
    }

    /// Returns the reason why not all of the kernel's reports on itself are known, if so.
    pub fn console_incomplete(&self) -> Option<String> {
        let why = self.console_reports.why_incomplete()?;
        Some(format!(
            "what the kernel reports of itself (V1) was not judged: {why}"
        ))
    }

    /// Returns the basis of verdicts on this guest beside its memory.
    #[must_use]
    pub fn driven(&self) -> Basis {
        Basis::of_driven(match (self.no_printk, self.console_incomplete()) {
            (true, _) => Input::NotBuilt(
                "this kernel was built without CONFIG_PRINTK, so it reports nothing of itself"
                    .into(),
            ),
            (false, Some(why)) => Input::Absent(why.into()),
            (false, None) => Input::Given,
        })
    }

    /// Returns the result of [`Link::unlogged`].
    pub fn unlogged(&self) -> Option<String> {
        self.link.unlogged()
    }

    /// Returns the default deadline of a command.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Sets the default deadline of commands.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Returns where the console's and the channel's logs are.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Returns the time from starting the machine to the agent's first line.
    #[must_use]
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Sends a command to the agent.
    ///
    /// # Errors
    /// [`Error::Guest`] if the agent refuses; any other error means that the guest is lost.
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
        let name = match &command {
            Command::Spawn { name, .. } => name.clone(),
            Command::Op {
                process,
                op: Operation::Fork { name },
            } if name.is_empty() => self.names.get(process).cloned().unwrap_or_default(),
            Command::Op {
                op: Operation::Fork { name },
                ..
            } => name.clone(),
            _ => String::new(),
        };
        let program = match &command {
            Command::Run { argv, .. } => argv.first().map(|path| comm(path)),
            _ => None,
        };
        let outcome = self.link.request(command, deadline);
        if let (Err(Error::Guest { failure, .. }), Some(process)) = (&outcome, works) {
            if matches!(failure, protocol::Failure::Deadline { .. }) {
                // It is still at work, so its tables may change at any time.
                let root = self.roots.remove(&process);
                let root = root.or(self.stuck.remove(&process).flatten());
                self.stuck.insert(process, root);
                self.judge_stuck(process);
            }
        }
        let outcome = outcome?;
        if let Some(process) = ends {
            self.roots.remove(&process);
        }
        if let Some(process) = ends.or(works) {
            self.stuck.remove(&process);
        }
        if let (Outcome::Program(ended), Some(name)) = (&outcome, program) {
            if let Some(pid) = ended.pid {
                self.started.insert(pid, name.into());
            }
        }
        if let Outcome::Spawned(spawned) = &outcome {
            if let Ok(pid) = u32::try_from(spawned.pid) {
                self.started.insert(pid, name.clone().into());
            }
            self.names.insert(spawned.process, name);
        }
        Ok(outcome)
    }

    /// Returns one operation in a workload process.
    ///
    /// # Errors
    /// As [`Guest::command`].
    pub fn op(&mut self, process: ProcessId, op: Operation) -> Result<Outcome, Error> {
        self.command(Command::Op { process, op }, self.deadline)
    }

    /// Advises about huge pages by `madvise(2)`. A kernel without `CONFIG_TRANSPARENT_HUGEPAGE`, such as PREEMPT_RT,
    /// refuses such advice (`madvise_behavior_valid()`) and has no use for it: there it is left out.
    ///
    /// # Errors
    /// As [`Guest::command`].
    pub fn hint(
        &mut self,
        process: ProcessId,
        address: u64,
        length: u64,
        advice: protocol::Advice,
    ) -> Result<Outcome, Error> {
        match self.hello.thp_enabled {
            Some(_) => self.op(process, advise(address, length, advice)),
            None => Ok(Outcome::Done {}),
        }
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
            self.deadline,
        )? {
            Outcome::Spawned(spawned) => Ok(spawned),
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
        self.command(command, self.deadline).map(drop)
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
        match self.command(command, self.deadline) {
            Ok(Outcome::File(file)) => Ok(file.content.text().map(str::to_owned)),
            Ok(other) => Err(unexpected("read_file", &other)),
            Err(Error::Guest { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stops the guest at any place and copies every CPU's tables, for a guest that hangs.
    ///
    /// # Errors
    /// If the machine itself cannot be stopped or read.
    pub fn capture_all(&mut self) -> Result<Capture, Error> {
        let held = self.held.values().cloned().collect();
        let notes = self.notes(held);
        let own = whole::own_symbols(&self.inside);
        let symbols = self.kernel.symbols.as_ref().or(own);
        boot::capture_all(&mut self.link, symbols, notes)
    }

    /// Returns the notes for a snapshot of this guest.
    fn notes(&self, processes: Vec<Process>) -> Notes {
        let machine = &self.link.machine;
        let mut notes = Notes {
            kernel_release: self.hello.kernel_release.clone(),
            command_line: self.hello.cmdline.clone(),
            page_size: self.hello.page_size,
            processes,
            ..Notes::now(machine.kind(), machine.command_line())
        };
        evidence::keep_recognised(&mut notes, "the guest's agent");
        notes
    }
}

/// Returns an outcome of another kind than the command has.
pub fn unexpected(command: &str, outcome: &Outcome) -> Error {
    Error::GuestLost { what: format!("expected the outcome of {command} and found {outcome:?}; host and guest do not agree on the protocol") }
}

/// Returns the name that the kernel gives a process that executes this file: 15 bytes (`TASK_COMM_LEN`) of the last
/// part of its path.
fn comm(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path).as_bytes();
    String::from_utf8_lossy(&name[..name.len().min(15)]).into_owned()
}
