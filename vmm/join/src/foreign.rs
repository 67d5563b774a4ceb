//! A guest in somebody else's QEMU, without an agent of ours in it: what can be seen of it at an instant.
//!
//! Nobody makes a process wait, nobody gives its VMAs. What is known: a CPU at EL0 has its process's own
//! table in TTBR0_EL1, and a CPU at EL1 the kernel's in TTBR1_EL1. A CPU in the kernel has in TTBR0_EL1
//! whatever the kernel has put there, so that is not looked at.

mod banner;
mod judge;
mod known;
mod settle;

use std::path::Path;
use std::time::Duration;

use linux::symbols::Symbols;
use machine::qemu::attach::{Attached, Found};
use snapshot::{Cpu, Memory, Notes, Process, Snapshot};
use stage1::{Half, PhysMemory, Regime};
use structures::{Kernel, View};

use crate::{kernel_half, pages, user_pages, Error, Extent, Facts};

pub use judge::{is_foreign, step};
pub use settle::{settle, Sight};

/// How often the guest is stopped to find a process in user mode.
const LOOKS: u32 = 100;

/// The same where an instant without it is of use too.
const TRIES: u32 = 8;

/// The mark of a process whose table is known because a CPU was at EL0 with it.
const IN_USER_MODE: &str = "in_user_mode";

/// A guest, attached to.
#[derive(Debug)]
pub struct Foreign {
    attached: Attached,
    symbols: Option<Symbols>,
    /// What the kernel's memory says of its symbols and types, or why it says nothing; once it was looked for.
    kernel: Option<Result<Kernel, String>>,
    /// `uname -r`, once it was seen.
    release: Option<String>,
    /// How often the guest was stopped, and for how long at most.
    pub stops: (u32, Duration),
}

/// What was seen at one instant.
#[derive(Debug)]
pub struct Instant {
    /// The copy.
    pub snapshot: Snapshot,
    /// For each CPU how long its thread has run, in nanoseconds; 0 where that is not known.
    ran_ns: Vec<u64>,
    /// For each CPU whether it has nothing to do, and so is in the middle of nothing.
    pub idle: Vec<bool>,
}

impl Foreign {
    /// Attaches to the QEMU with this QMP socket.
    ///
    /// # Errors
    /// What is in the way, and what to do about it.
    pub fn new(socket: &Path, vmlinux: Option<&Path>) -> Result<Self, Error> {
        // Before the guest is touched: it takes a while.
        let symbols = vmlinux.map(Symbols::open).transpose()?;
        Ok(Self {
            attached: Attached::to(socket).map_err(refused)?,
            symbols,
            kernel: None,
            release: None,
            stops: (0, Duration::ZERO),
        })
    }

    /// What is there.
    #[must_use]
    pub fn found(&self) -> &Found {
        self.attached.found()
    }

    /// Stops the guest, copies the tables of the kernel and of each process that a CPU runs in user mode, and
    /// lets the guest go on.
    ///
    /// # Errors
    /// Where QEMU fails us, or the vmlinux is another kernel's.
    pub fn instant(&mut self) -> Result<Instant, Error> {
        if self.kernel.is_none() {
            // What is found then serves every instant.
            let first = self.look()?;
            self.find_kernel(&first);
        }
        self.look()
    }

    fn look(&mut self) -> Result<Instant, Error> {
        let look = self.attached.look().map_err(refused)?;
        let kernel = self.kernel.as_ref().and_then(|kernel| kernel.as_ref().ok());
        let own = kernel.map(|kernel| &kernel.symbols);
        let facts = Facts::new(self.symbols.as_ref().or(own), &look.cpus);
        let memory = look.memory();
        let extent = Extent { kernel: true };
        let _ = pages(memory, &look.cpus, None, facts, extent);
        let mut processes = processes(&look.cpus);
        for process in &processes {
            let cpu = process.cpu.and_then(|index| look.cpus.get(index));
            let _ = cpu.map(|cpu| user_pages(memory, cpu));
        }
        let upper = kernel_half(&look.cpus);
        if let (Some(kernel), Some(upper)) = (kernel, &upper) {
            known::name(kernel, View { memory, upper }, &look.cpus, &mut processes);
        }
        let idle = look.cpus.iter();
        let idle = idle.map(|cpu| upper.is_some_and(|upper| idles(memory, &upper, cpu)));
        let (idle, ran_ns) = (idle.collect(), look.ran_ns.clone());
        let (cpus, memory, stopped) = look.end().map_err(refused)?;
        self.stops = (self.stops.0 + 1, self.stops.1.max(stopped));
        let memory = memory.into_memory();
        let memory = memory.map_err(|error| Error::Input(error.to_string()))?;
        if let (Some(upper), None) = (&upper, &self.release) {
            self.release = self.identify(&cpus, &memory, upper)?;
        }
        let mut notes = self.notes(&cpus, processes);
        facts.keep(&mut notes);
        Ok(Instant {
            snapshot: Snapshot {
                cpus,
                memory,
                notes,
            },
            ran_ns,
            idle,
        })
    }

    /// Looks for the kernel's symbols and types in its memory: what is there does not change while it runs.
    fn find_kernel(&mut self, first: &Instant) {
        let cpus = &first.snapshot.cpus;
        // In user mode VBAR_EL1 may be that of KPTI's trampoline.
        let vbar = |cpu: &Cpu| cpu.system.vbar_el1.filter(|_| cpu.el() == 1);
        let (Some(upper), Some(vbar)) = (kernel_half(cpus), cpus.iter().find_map(vbar)) else {
            return;
        };
        let memory = banner::Both {
            tables: &first.snapshot.memory,
            data: &self.attached.memory(),
        };
        let found = Kernel::find(&memory, &upper, vbar);
        self.kernel = Some(found.map_err(|error| error.to_string()));
    }

    /// What the kernel's memory says of its symbols and types, or why it says nothing.
    ///
    /// # Errors
    /// Why not.
    pub fn kernel(&self) -> Result<&Kernel, String> {
        match &self.kernel {
            Some(found) => found.as_ref().map_err(Clone::clone),
            None => Err("no CPU was in the kernel when it was looked for".into()),
        }
    }

    /// All tasks of the guest at one instant.
    ///
    /// # Errors
    /// Where QEMU fails us, or the kernel's structures are not to be had.
    pub fn tasks(&mut self) -> Result<Vec<structures::tasks::Process>, Error> {
        let mut why = String::new();
        for _ in 0..LOOKS {
            self.instant()?;
            let kernel = match &self.kernel {
                Some(Ok(kernel)) => kernel,
                Some(Err(never)) => return Err(no_tasks(never)),
                None => {
                    "every CPU was in user mode, where VBAR_EL1 may be the trampoline's"
                        .clone_into(&mut why);
                    continue;
                }
            };
            let look = self.attached.look().map_err(refused)?;
            let upper = kernel_half(&look.cpus);
            let tasks = upper.map(|upper| {
                let memory = look.memory();
                structures::tasks::processes(
                    kernel,
                    View {
                        memory,
                        upper: &upper,
                    },
                )
            });
            look.end().map_err(refused)?;
            match tasks {
                Some(Ok(tasks)) => return Ok(tasks),
                // The list was just being changed.
                Some(Err(error)) => why = error.to_string(),
                None => "no CPU showed the kernel's tables".clone_into(&mut why),
            }
            if !self.attached.ran() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(no_tasks(&why))
    }

    /// An instant that shows the process with this pid, or any, if one can be had soon: a CPU with work to do may be
    /// in the kernel just now.
    ///
    /// # Errors
    /// As [`Foreign::instant`].
    pub fn instant_at_work(&mut self, pid: Option<u32>) -> Result<Instant, Error> {
        let mut instant = self.instant()?;
        for _ in 1..TRIES {
            let at_rest = instant.idle.iter().all(|idle| *idle);
            let mut processes = instant.snapshot.notes.processes.iter();
            let seen = processes.any(|process| pid.is_none_or(|pid| process.pid == pid));
            if seen || at_rest || !self.attached.ran() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
            instant = self.instant()?;
        }
        Ok(instant)
    }

    /// An instant with a process in user mode: the one with this pid, or any.
    ///
    /// # Errors
    /// Where none is seen.
    pub fn instant_of(&mut self, pid: Option<u32>) -> Result<Instant, Error> {
        let mut seen = Vec::new();
        for _ in 0..LOOKS {
            let mut instant = self.instant()?;
            let processes = &mut instant.snapshot.notes.processes;
            seen.extend(processes.iter().map(|process| process.pid));
            processes.retain(|process| pid.is_none_or(|pid| process.pid == pid));
            if !processes.is_empty() {
                return Ok(instant);
            }
            if !self.attached.ran() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        seen.sort_unstable();
        seen.dedup();
        let seen: Vec<String> = seen.iter().map(u32::to_string).collect();
        let seen = match seen.is_empty() {
            true => "none at all".to_owned(),
            false => format!("only {}", seen.join(", ")),
        };
        let wanted = pid.map_or("a process".into(), |pid| format!("process {pid}"));
        Err(Error::Input(format!(
            "expected {wanted} to be in user mode on some CPU, so that its table is known, and in {} looks saw {seen}; \
             it has to run, and the kernel to say who runs (CONFIG_PID_IN_CONTEXTIDR)",
            self.stops.0
        )))
    }

    /// Which kernel it is; a vmlinux has to be that one's.
    fn identify(
        &self,
        cpus: &[Cpu],
        memory: &Memory,
        upper: &Regime,
    ) -> Result<Option<String>, Error> {
        match &self.symbols {
            Some(symbols) => {
                banner::by_symbols(symbols, cpus, memory, upper, &self.attached.memory())
            }
            None => Ok(banner::by_search(
                cpus,
                memory,
                upper,
                &self.attached.memory(),
            )),
        }
    }

    fn notes(&self, cpus: &[Cpu], processes: Vec<Process>) -> Notes {
        let found = self.attached.found();
        let regime = cpus.iter();
        let regime = regime.filter_map(|cpu| Regime::new(&cpu.system, Half::Lower).ok());
        let [major, minor, micro] = found.version;
        let command = format!("QEMU {major}.{minor}.{micro}, {}", found.machine);
        Notes {
            kernel_release: self.release.clone().unwrap_or_default(),
            page_size: regime.map(|it| it.granule.bytes()).max().unwrap_or(0),
            processes,
            ..Notes::now(format!("qemu-{}", found.accelerator), command)
        }
    }
}

/// Nothing of ours is lost with somebody else's guest: it is a refusal, in a sentence.
fn refused(error: machine::qemu::attach::AttachError) -> Error {
    Error::Input(error.to_string())
}

fn no_tasks(why: &str) -> Error {
    Error::Input(format!("the guest's tasks were not read: {why}"))
}

/// The processes that CPUs are in user mode with, each once.
fn processes(cpus: &[Cpu]) -> Vec<Process> {
    let mut roots = Vec::new();
    let mut processes = Vec::new();
    for cpu in cpus.iter().filter(|cpu| cpu.el() == 0) {
        let Ok(regime) = Regime::new(&cpu.system, Half::Lower) else {
            continue;
        };
        if roots.contains(&regime.root) {
            continue;
        }
        roots.push(regime.root);
        let mark = (IN_USER_MODE.to_owned(), true.into());
        processes.push(Process {
            // 0: the kernel does not say (CONFIG_PID_IN_CONTEXTIDR).
            pid: u32::try_from(cpu.system.contextidr_el1).unwrap_or(0),
            name: format!("on CPU {}", cpu.index),
            cpu: Some(cpu.index),
            extra: [mark].into(),
            ..Process::default()
        });
    }
    processes
}

/// The CPU that was in user mode with this process's table.
#[must_use]
pub fn root_of<'s>(snapshot: &'s Snapshot, process: &Process) -> Option<&'s Cpu> {
    process.extra.get(IN_USER_MODE)?;
    let mut cpus = snapshot.cpus.iter();
    cpus.find(|cpu| Some(cpu.index) == process.cpu && cpu.el() == 0)
}

/// Whether a CPU is in the kernel and waits for an interrupt, or has been put to sleep by the firmware.
fn idles<M: PhysMemory + ?Sized>(memory: &M, upper: &Regime, cpu: &Cpu) -> bool {
    const WFI: u32 = 0xd503_207f;
    /// HVC and SMC: bits \[20:5] are a number.
    const CALLS: [u32; 2] = [0xd400_0002, 0xd400_0003];
    let instruction = |va: u64| {
        let mut bytes = [0; 4];
        linux::kernel_memory::read(memory, upper, va, &mut bytes).ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let waits = |word: u32| word == WFI || CALLS.contains(&(word & !(0xffff << 5)));
    let pc = cpu.general.pc;
    // A CPU that waits has the instruction behind it, or stands at it still.
    cpu.el() == 1
        && [pc.wrapping_sub(4), pc]
            .into_iter()
            .filter_map(instruction)
            .any(waits)
}
