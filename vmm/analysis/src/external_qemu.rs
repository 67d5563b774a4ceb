// SPDX-License-Identifier: GPL-2.0-only
//! A guest in an external QEMU, without our agent: its instants, tasks, pages and kernel map.
//!
//! The module [`crate::unattended`] says what is known of it.

pub use evidence::idles;

use std::path::Path;
use std::time::Duration;

use linux::counted::NotRead;
use linux::symbols::Symbols;
use machine::qemu::attach::{Attached, FileMemory, Found};
use report::frames::Frames;
use report::kernel_map::KernelMap;
use snapshot::{Cpu, Memory, Notes, Process, Snapshot};
use stage1::{Half, Regime};
use structures::printk::Log;
use structures::vmcoreinfo::VmCoreInfo;
use structures::{Kernel, View};

use evidence::{
    elsewhere::{at_el1, no_linux},
    guest_notes,
    inside::{Inside, Whole},
    instant, is_quiet, kernel_half, log,
    release::{self, Both, NotRecognised, Recognised},
    root_table::processes,
    task_processes::complete,
    Capture, Extent, Facts, Work,
};

use crate::frames::frames;
use crate::kernel_map::kernel_map;
use crate::tasks::{see, why_not, Seen, Unseen};
use crate::unattended::Stops;
use crate::{Error, Wait};

/// Stops until the kernel's structures can be read.
const LOOKS: Wait = Wait {
    stops: 100,
    between: Duration::from_millis(5),
};

/// The same where an instant without a process in user mode is of use too.
const TRIES: u32 = 8;

/// The reason if a kernel was looked for and not found.
const UNSEEN: &str = "no CPU was in the kernel when it was looked for";

/// A guest, attached to.
#[derive(Debug)]
pub struct Foreign {
    attached: Attached,
    symbols: Option<Symbols>,
    /// The kernel's symbols and types, or the reason that they were not found; `None` before the search.
    inside: Option<Result<Inside, String>>,
    /// The kernel's release, or why it is not known; once it was looked for.
    release: Option<Result<Recognised, NotRecognised>>,
    /// The reason if no Linux runs, by the last instant's registers.
    no_linux: Option<String>,
    /// How often the guest was stopped, and for how long at most.
    pub stops: (u32, Duration),
}

impl Foreign {
    /// Attaches to the QEMU with this QMP socket.
    ///
    /// # Errors
    /// If it cannot attach; the text says what to do.
    pub fn new(socket: &Path, vmlinux: Option<&Path>) -> Result<Self, Error> {
        // Before the guest is touched: it takes a while.
        let symbols = vmlinux.map(Symbols::open).transpose()?;
        Ok(Self {
            attached: Attached::to(socket).map_err(refused)?,
            symbols,
            inside: None,
            release: None,
            no_linux: None,
            stops: (0, Duration::ZERO),
        })
    }

    /// Returns the QEMU that was found.
    #[must_use]
    pub fn found(&self) -> &Found {
        self.attached.found()
    }

    /// Looks for the kernel's symbols and types in its memory: what is there does not change while it runs.
    fn find_inside(&mut self, first: &Capture) {
        let memory = Both {
            tables: &first.snapshot.memory,
            data: &self.attached.memory(),
        };
        self.inside = Inside::look(&memory, &first.snapshot.cpus);
    }

    /// Returns the kernel's symbols and types.
    ///
    /// # Errors
    /// If it is not known.
    pub fn kernel(&self) -> Result<&Kernel, String> {
        match &self.inside {
            Some(Ok(found)) => Ok(&found.kernel),
            Some(Err(why)) => Err(why.clone()),
            None => Err(self.unseen()),
        }
    }

    /// The kernel's release, or why it is not known.
    ///
    /// # Errors
    /// If it is not known.
    pub fn release(&self) -> Result<&Recognised, String> {
        match (&self.no_linux, &self.release) {
            (None, Some(Ok(found))) => Ok(found),
            (None, Some(Err(why))) => Err(why.to_string()),
            (None, None) => Err(NotRecognised::NotNow.to_string()),
            (Some(why), _) => Err(why.clone()),
        }
    }

    /// Returns the reason that no instant has shown the kernel's structures.
    fn unseen(&self) -> String {
        self.no_linux.clone().unwrap_or(UNSEEN.into())
    }

    /// Reads the tasks at one instant, and the process with this pid; returns also the memory that
    /// was read for that, with the process's tables.
    ///
    /// # Errors
    /// If QEMU fails, the kernel's structures cannot be read, or there is no such process.
    pub fn see(&mut self, pid: Option<u32>) -> Result<(Seen, Memory), Error> {
        self.ask(|inside, view, cpus| {
            let seen = see(inside, view, cpus, pid)?;
            seen.space.iter().for_each(|space| space.touch(view.memory));
            let locked = seen.is_locked();
            Ok((seen, locked.then_some("its mmap_lock was held")))
        })
    }

    /// Says why the process with this pid is not among those of an instant, where the kernel's tasks tell.
    pub fn why_not(&mut self, pid: u32) -> Option<String> {
        self.kernel().ok()?;
        let (seen, _) = self.see(None).ok()?;
        why_not(&seen.tasks, pid)
    }

    /// The pages with these page frame numbers, and who maps them.
    ///
    /// # Errors
    /// If QEMU fails, or the kernel's structures cannot be read.
    pub fn frames(&mut self, pfns: &[u64]) -> Result<Frames, Error> {
        let found = self.ask(|inside, view, cpus| {
            let found = frames(inside, view.memory, cpus, pfns)?;
            Ok((found, None))
        });
        found.map(|(found, _)| found)
    }

    /// By what sizes the kernel's own half is mapped.
    ///
    /// # Errors
    /// If QEMU fails, or the kernel's structures cannot be read.
    pub fn kernel_map(&mut self) -> Result<KernelMap, Error> {
        let mut left = LOOKS.stops;
        let found = self.ask(|inside, view, cpus| {
            left -= 1;
            let (found, later) = kernel_map(inside, view.memory, cpus);
            // Without the areas, if need be.
            Ok((found, later.filter(|_| left > 0)))
        });
        found.map(|(found, _)| found)
    }

    /// Asks something of the kernel's structures at one instant, and at another where the answer says why that may be
    /// better; with the memory that was read for it.
    fn ask<T>(
        &mut self,
        mut ask: impl FnMut(
            &Inside,
            View<'_, FileMemory>,
            &[Cpu],
        ) -> Result<(T, Option<&'static str>), Unseen>,
    ) -> Result<(T, Memory), Error> {
        let seen = LOOKS.until(self, Self::runs, |guest| {
            guest.instant()?;
            let inside = match &guest.inside {
                Some(Ok(inside)) => inside,
                Some(Err(never)) => return Err(not_read(never)),
                None if guest.no_linux.is_some() => return Err(not_read(&guest.unseen())),
                None => {
                    return Ok(Err(
                        "every CPU was in user mode, where VBAR_EL1 may be the trampoline's".into(),
                    ))
                }
            };
            let look = guest.attached.look().map_err(refused)?;
            let upper = kernel_half(&look.cpus);
            let memory = look.memory();
            let upper = upper.as_ref();
            let seen = upper.map(|upper| ask(inside, View { memory, upper }, &look.cpus));
            let (_, memory, _) = look.end().map_err(refused)?;
            match seen {
                Some(Ok((_, Some(later)))) if guest.attached.ran() => Ok(Err(later.to_owned())),
                Some(Ok((seen, _))) => {
                    let memory = memory.into_memory();
                    let memory = memory.map_err(|error| Error::Input(error.to_string()))?;
                    Ok(Ok((seen, memory)))
                }
                Some(Err(Unseen { why, later: false })) => Err(Error::Input(why)),
                Some(Err(unseen)) => Ok(Err(unseen.why)),
                None => Ok(Err("no CPU showed the kernel's tables".into())),
            }
        })?;
        seen.map_err(|why: String| not_read(&why))
    }

    /// Stops the guest, at an instant with the process with this pid, which no CPU need run where the kernel's tasks tell of
    /// it, or, if one can be had soon, any in user mode, while no task changes an address space, and has `write` read
    /// whatever it likes of it; gives why the kernel's own description (VMCOREINFO) is not known, if so, and for how long
    /// the guest was stopped.
    ///
    /// # Errors
    /// Where QEMU fails us, where the process is not seen, and as `write`.
    pub fn whole<E: From<Error>>(
        &mut self,
        pid: Option<u32>,
        write: impl FnOnce(&Whole<'_>) -> Result<(), E>,
    ) -> Result<(Option<String>, Duration), E> {
        let found = LOOKS.until(self, Self::runs, |guest| {
            guest.instant()?;
            Ok::<_, Error>(guest.inside.as_ref().map(drop).ok_or(()))
        });
        // Without the kernel's structures the file is of use too.
        let _ = found?;
        let mut notes = self.notes(&[], Vec::new());
        let tasks = match pid {
            Some(_) if self.kernel().is_ok() => self.see(None).ok().map(|(seen, _)| seen.tasks),
            _ => None,
        };
        if let (Some(pid), Some(tasks)) = (pid, &tasks) {
            if let Some(why) = why_not(tasks, pid) {
                return Err(Error::Input(why).into());
            }
        }
        // By its task it is there at any instant, whether a CPU runs it or not.
        let wanted = pid.filter(|_| tasks.is_none());
        let mut left = wanted.map_or(TRIES, |_| LOOKS.stops);
        let (look, mut processes) = loop {
            let look = self.attached.look().map_err(refused)?;
            let processes = processes(&look.cpus, &[]);
            let mut seen = processes.iter();
            let seen = seen.any(|process| pid.is_none_or(|pid| process.pid == pid));
            left -= 1;
            // A certain process may be rare enough.
            let quiet = match &self.inside {
                Some(Ok(inside)) if wanted.is_none() => is_quiet(inside, look.memory(), &look.cpus),
                _ => true,
            };
            if seen && quiet || left == 0 {
                if let (Some(pid), false) = (wanted, seen) {
                    look.end().map_err(refused)?;
                    let why = format!("expected process {pid} to be in user mode on some CPU, and did not see it in {} looks; leave out --pid", LOOKS.stops);
                    return Err(Error::Input(why).into());
                }
                break (look, processes);
            }
            let _ = look.end().map_err(refused)?;
            std::thread::sleep(Duration::from_millis(2));
        };
        let kernel = match &self.inside {
            Some(Ok(inside)) => Ok(&inside.kernel),
            Some(Err(why)) => Err(why.clone()),
            None => Err(self.no_linux.clone().unwrap_or(UNSEEN.into())),
        };
        let own = kernel.as_ref().ok().map(|kernel| &kernel.symbols);
        let (memory, upper) = (look.memory(), kernel_half(&look.cpus));
        let info = match (kernel, &upper) {
            (Ok(kernel), Some(upper)) => {
                let view = View { memory, upper };
                let spaces = complete(kernel, view, &look.cpus, &mut processes);
                guest_notes::keep_spaces(&mut notes, spaces);
                VmCoreInfo::read(kernel, view).map_err(|error| error.to_string())
            }
            (Err(why), _) => Err(why),
            (Ok(_), None) => Err("no CPU showed the kernel's tables".into()),
        };
        let inside = self.inside.as_ref().and_then(|inside| inside.as_ref().ok());
        let facts = Facts::new(self.symbols.as_ref().or(own), &look.cpus);
        facts.with(inside).keep(&mut notes);
        notes.page_size = page_size(&look.cpus);
        notes.processes = processes;
        let written = write(&Whole {
            cpus: &look.cpus,
            ram: &look.ram(),
            notes: &notes,
            vmcoreinfo: info.as_ref().ok().map(|info| info.text.as_str()),
        });
        let (_, _, stopped) = look.end().map_err(refused)?;
        written.map(|()| (info.err(), stopped))
    }

    fn look(&mut self) -> Result<Capture, Error> {
        let look = self.attached.look().map_err(refused)?;
        self.no_linux = no_linux(&look.cpus);
        let inside = self.inside.as_ref().and_then(|inside| inside.as_ref().ok());
        let kernel = inside.map(|inside| &inside.kernel);
        let own = kernel.map(|kernel| &kernel.symbols);
        let facts = Facts::new(self.symbols.as_ref().or(own), &look.cpus).with(inside);
        let memory = look.memory();
        let known = match &self.inside {
            Some(Ok(inside)) => Ok(inside),
            Some(Err(why)) => Err(why.clone().into()),
            None => Err(self.no_linux.clone().unwrap_or(UNSEEN.into()).into()),
        };
        let mut found = instant::read(memory, &look.cpus, facts, known, &[]);
        let nowhere = matches!(self.release, Some(Err(NotRecognised::Nowhere { .. })));
        if self.no_linux.is_some() || nowhere {
            found.processes.extend(at_el1(memory, &look.cpus));
        }
        let upper = kernel_half(&look.cpus);
        let work = Work::of(memory, &look.cpus, look.ran_ns.clone());
        let (cpus, memory, stopped) = look.end().map_err(refused)?;
        self.stops = (self.stops.0 + 1, self.stops.1.max(stopped));
        let memory = memory.into_memory();
        let memory = memory.map_err(|error| Error::Input(error.to_string()))?;
        if let (Some(upper), None) = (&upper, &self.release) {
            self.release = self.identify(&cpus, &memory, upper)?;
        }
        let mut notes = self.notes(&cpus, Vec::new());
        facts.keep(&mut notes);
        found.keep(&mut notes);
        Ok(Capture {
            snapshot: Snapshot {
                cpus,
                memory,
                notes,
            },
            companions: Vec::new(),
            stopped,
            work,
            extent: Extent::KERNEL,
        })
    }

    /// Finds out which kernel it is; a vmlinux has to be that one's.
    fn identify(
        &self,
        cpus: &[Cpu],
        memory: &Memory,
        upper: &Regime,
    ) -> Result<Option<Result<Recognised, NotRecognised>>, Error> {
        let data = &self.attached.memory();
        if let Some(symbols) = &self.symbols {
            let found = release::by_vmlinux(symbols, cpus, memory, upper, data)?;
            return Ok(found.map(Ok));
        }
        // Once it is known whether there are symbols.
        let Some(inside) = &self.inside else {
            return Ok(None);
        };
        let both = Both {
            tables: memory,
            data,
        };
        let view = View {
            memory: &both,
            upper,
        };
        let kernel = inside.as_ref().ok().map(|inside| &inside.kernel);
        Ok(match release::find(view, cpus, kernel) {
            Err(NotRecognised::NotNow) => None,
            found => Some(found),
        })
    }

    fn notes(&self, cpus: &[Cpu], processes: Vec<Process>) -> Notes {
        let (found, release) = (self.attached.found(), self.release().ok());
        let [major, minor, micro] = found.version;
        let command = format!("QEMU {major}.{minor}.{micro}, {}", found.machine);
        let mut notes = Notes {
            kernel_release: release.map_or(String::new(), |it| it.release.clone()),
            page_size: page_size(cpus),
            processes,
            ..Notes::now(format!("qemu-{}", found.accelerator), command)
        };
        if let Some(found) = release {
            guest_notes::keep_recognised(&mut notes, &found.by.to_string());
        }
        notes
    }
}

impl Stops for Foreign {
    fn instant(&mut self) -> Result<Capture, Error> {
        if self.inside.is_none() {
            // What is found then serves every instant.
            let first = self.look()?;
            self.find_inside(&first);
        }
        self.look()
    }

    fn cpus(&mut self) -> Result<(Vec<Cpu>, Work), Error> {
        let look = self.attached.look().map_err(refused)?;
        let work = Work::of(look.memory(), &look.cpus, look.ran_ns.clone());
        let (cpus, _, stopped) = look.end().map_err(refused)?;
        self.stops = (self.stops.0 + 1, self.stops.1.max(stopped));
        Ok((cpus, work))
    }

    fn runs(&self) -> bool {
        self.attached.ran()
    }

    fn log(&self, last: &Snapshot) -> Option<Result<Log, NotRead>> {
        let inside = match &self.inside {
            Some(Ok(inside)) => inside,
            Some(Err(why)) => return Some(Err(log::not_read(why))),
            None => return Some(Err(log::not_read(&self.unseen()))),
        };
        let memory = Both {
            tables: &last.memory,
            data: &self.attached.memory(),
        };
        Some(log::read(inside, &memory))
    }
}

/// An error of an external guest is a refusal, in one sentence: no guest of ours is lost.
fn refused(error: machine::qemu::attach::AttachError) -> Error {
    Error::Input(error.to_string())
}

/// The base page size of what the CPUs run, in bytes; 0 where they do not show it.
fn page_size(cpus: &[Cpu]) -> u64 {
    let regimes = cpus.iter();
    let regimes = regimes.filter_map(|cpu| Regime::new(&cpu.system, Half::Lower).ok());
    regimes.map(|it| it.granule.bytes()).max().unwrap_or(0)
}

fn not_read(why: &str) -> Error {
    Error::Input(format!("the kernel's structures were not read: {why}"))
}
