//! Handles the host's requests.

use protocol::{
    Command, Failure, LineError, Operation, Outcome, ProcessId, Request, UnreadRequest,
};

use super::{For, Server};
use crate::jobs::Job;
use crate::link::{Link, Task};
use crate::processes::{Kind, Pending, Process, Waiting, Work};
use crate::spawn::{self, Start};
use crate::{erofs, files, getters, run, swap, sys};

/// A request's outcome, or `None` while it is under way.
type Begun = Result<Option<Outcome>, Failure>;

impl Server {
    /// Takes a line from the host.
    pub(super) fn take(&mut self, line: Result<String, LineError>) {
        let request = line
            .map_err(|error| UnreadRequest { id: None, error })
            .and_then(|line| protocol::read_request(&line));
        match request {
            Ok(request) => {
                let id = Some(request.id);
                match self.begin(request) {
                    Ok(Some(outcome)) => self.reply(id, Ok(outcome)),
                    Ok(None) => {}
                    Err(failure) => self.reply(id, Err(failure)),
                }
            }
            Err(unread) => self.reply(unread.id, Err(Failure::bad(unread.error.to_string()))),
        }
    }

    fn begin(&mut self, request: Request) -> Begun {
        let pending = Pending::new(&request);
        match request.command {
            Command::Hello {} => Ok(Some(Outcome::Hello(Box::new(crate::facts::hello(
                &self.facts,
            ))))),
            Command::Ping {} => Ok(Some(Outcome::Pong {
                uptime_ms: sys::uptime_ms(),
            })),
            Command::Processes {} => Ok(Some(Outcome::Processes {
                processes: self.processes.iter().map(Process::info).collect(),
            })),
            Command::Spawn {
                name,
                cpu,
                randomize,
            } => self.spawn(pending, name, cpu, randomize),
            Command::Op { process, op } => self.operate(pending, process, op),
            Command::Checkpoint {
                process,
                nonce,
                smaps,
            } => self.checkpoint(pending, process, nonce, smaps),
            Command::Release { process } => self.release(pending, process),
            Command::Kill { process } => self.kill(pending, process),
            Command::Poweroff {} => {
                self.say_done(request.id);
                sys::log(format_args!("the host switches the machine off"));
                sys::power_off()
            }
            Command::Panic {} => {
                self.say_done(request.id);
                sys::log(format_args!("the host wants a kernel panic"));
                let _ = std::fs::write("/proc/sysrq-trigger", "c");
                // A kernel without sysrq panics when its init ends.
                sys::exit(1)
            }
            other => self.help(pending, other),
        }
    }

    fn say_done(&mut self, id: u64) {
        self.reply(Some(id), Ok(Outcome::Done {}));
        self.lines.drain();
    }

    fn spawn(
        &mut self,
        pending: Pending,
        name: String,
        cpu: Option<u32>,
        randomize: bool,
    ) -> Begun {
        let homes = |cpu| self.processes.iter().filter(|p| p.cpu == cpu).count();
        let cpu = cpu.unwrap_or_else(|| spawn::choose_cpu(&self.cpus, self.facts.agent_cpu, homes));
        if !self.cpus.contains(&cpu) {
            return Err(Failure::bad(format!(
                "there is no CPU {cpu}; there are {:?}",
                self.cpus
            )));
        }
        let (id, slot) = self.processes.reserve()?;
        let link = Link::create(&self.directory, id)?;
        let start = Start {
            process: id,
            slot,
            cpu,
            name: &name,
            randomize,
        };
        let pid = spawn::spawn(&self.directory, start)?;
        self.processes.add(Process {
            id,
            pid: Some(pid),
            name,
            parent: None,
            cpu,
            slot,
            link,
            range: None,
            work: Some(Work {
                pending,
                kind: Kind::Start,
                late: false,
            }),
            waiting: None,
            killed: None,
        });
        Ok(None)
    }

    fn operate(&mut self, pending: Pending, id: ProcessId, op: Operation) -> Begun {
        if let Operation::Exit { status } = op {
            if !(0..=255).contains(&status) {
                return Err(Failure::bad("an exit status is from 0 to 255"));
            }
        }
        self.processes.get(id)?.check_idle()?;
        let (kind, task) = match op {
            Operation::Fork { name } => self.prepare_fork(id, name)?,
            op => {
                let kind = match op {
                    Operation::Exit { .. } => Kind::Exit,
                    Operation::Pin { cpu } => Kind::Pin(cpu),
                    ref other => Kind::Operation(other.name()),
                };
                (kind, Task::Op(op))
            }
        };
        self.assign(id, pending, kind, &task)
    }

    fn assign(&mut self, id: ProcessId, pending: Pending, kind: Kind, task: &Task) -> Begun {
        let process = self.processes.get(id)?;
        process.link.send(task)?;
        process.work = Some(Work {
            pending,
            kind,
            late: false,
        });
        Ok(None)
    }

    /// Creates the child's entry before the child exists.
    fn prepare_fork(&mut self, parent: ProcessId, name: String) -> Result<(Kind, Task), Failure> {
        let (child, slot) = self.processes.reserve()?;
        let link = Link::create(&self.directory, child)?;
        let of = self.processes.get(parent)?;
        let process = Process {
            id: child,
            pid: None,
            name: if name.is_empty() {
                of.name.clone()
            } else {
                name.clone()
            },
            parent: Some(parent),
            cpu: of.cpu,
            slot,
            link,
            range: None,
            work: None,
            waiting: None,
            killed: None,
        };
        self.processes.add(process);
        let kind = Kind::Fork {
            child,
            forked: false,
        };
        let task = Task::Fork {
            process: child,
            slot,
            name,
        };
        Ok((kind, task))
    }

    fn checkpoint(&mut self, pending: Pending, id: ProcessId, nonce: u64, smaps: bool) -> Begun {
        let process = self.processes.get(id)?;
        process.check_idle()?;
        let own = process.cpu;
        let cpu = spawn::choose_waiting_cpu(&self.cpus, self.facts.agent_cpu, own, |cpu| {
            self.processes.waiting_on(cpu)
        });
        self.checkpoints += 1;
        let waiting = Waiting {
            number: self.checkpoints,
            nonce,
            cpu,
            smaps,
            announced: false,
        };
        let task = Task::Checkpoint {
            number: waiting.number,
            nonce,
            cpu,
        };
        self.assign(id, pending, Kind::Checkpoint(waiting), &task)
    }

    fn release(&mut self, pending: Pending, id: ProcessId) -> Begun {
        let process = self.processes.get(id)?;
        let Some(waiting) = process.waiting.take() else {
            return Err(Failure::bad(format!("{id} does not wait at a checkpoint")));
        };
        process.work = Some(Work {
            pending,
            kind: Kind::Release,
            late: false,
        });
        self.slots.slot(process.slot).release(waiting.number);
        Ok(None)
    }

    fn kill(&mut self, pending: Pending, id: ProcessId) -> Begun {
        let process = self.processes.get(id)?;
        let Some(pid) = process.pid else {
            return Err(Failure::Busy {
                doing: format!("{id} has not started"),
            });
        };
        if process.killed.flatten().is_some() {
            return Err(Failure::Busy {
                doing: format!("{id} was killed already"),
            });
        }
        sys::kill(pid);
        process.killed = Some(Some(pending));
        Ok(None)
    }

    /// Returns what a helper does.
    fn help(&mut self, pending: Pending, command: Command) -> Begun {
        let (what, job) = match command {
            Command::Maps { process, smaps } => {
                let pid = self.pid(process)?;
                let work = move || {
                    files::maps(pid, smaps).map(|(maps, smaps)| Outcome::Maps { maps, smaps })
                };
                (format!("maps of {process}"), Job::start(work))
            }
            Command::Pagemap {
                process,
                address,
                pages,
            } => {
                let pid = self.pid(process)?;
                let work = move || files::pagemap(pid, address, pages);
                (format!("pagemap of {process}"), Job::start(work))
            }
            Command::Getters { process } => {
                let pid = self.pid(process)?;
                let work = move || getters::read(pid);
                (format!("getters of {process}"), Job::start(work))
            }
            Command::ReadFile {
                path,
                process,
                offset,
                max,
            } => {
                let path = self.with_pid(&path, process)?;
                let what = format!("read_file {path}");
                (what, Job::start(move || files::read(&path, offset, max)))
            }
            Command::WriteFile {
                path,
                text,
                process,
                create,
            } => {
                let path = self.with_pid(&path, process)?;
                let text = match process {
                    Some(_) => self.with_pid(&text, process)?,
                    None => text,
                };
                let what = format!("write_file {path}");
                (what, Job::start(move || files::write(&path, &text, create)))
            }
            Command::SwapOn { path, format } => (
                format!("swap_on {path}"),
                Job::start(move || swap::on(&path, format)),
            ),
            Command::SwapOff { path } => (
                format!("swap_off {path}"),
                Job::start(move || swap::off(&path)),
            ),
            Command::MountErofs {
                device,
                directory,
                length,
            } => (
                format!("mount_erofs {device}"),
                Job::start(move || erofs::mount(&device, &directory, length)),
            ),
            Command::Unmount { directory } => (
                format!("unmount {directory}"),
                Job::start(move || erofs::unmount(&directory)),
            ),
            Command::Run {
                argv,
                input,
                process,
            } => {
                let argv = match process {
                    Some(_) => {
                        let each = argv.iter().map(|a| self.with_pid(a, process));
                        each.collect::<Result<Vec<_>, _>>()?
                    }
                    None => argv,
                };
                let what = format!("run {}", argv.first().map_or("", String::as_str));
                let cpus = self.cpus.clone();
                (
                    what,
                    Job::start(move || run::run(&argv, input.as_deref(), &cpus)),
                )
            }
            other => unreachable!("not for a helper: {other:?}"),
        };
        self.jobs.push((For::Request(pending, what), job?));
        Ok(None)
    }

    fn pid(&mut self, id: ProcessId) -> Result<i32, Failure> {
        self.processes.get(id)?.pid.ok_or_else(|| Failure::Busy {
            doing: format!("{id} has not started"),
        })
    }

    fn with_pid(&mut self, text: &str, process: Option<ProcessId>) -> Result<String, Failure> {
        let pid = process.map(|id| self.pid(id)).transpose()?;
        files::with_pid(text, pid)
    }
}
