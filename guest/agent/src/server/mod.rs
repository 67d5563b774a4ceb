//! The agent's loop: one thread that waits for the host, its processes and its helpers. It is never in the kernel for
//! long, so that a deadline always takes effect.

mod requests;
mod results;

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use protocol::{Answer, Channel, Ended, Failure, Message, Outcome, ProcessId, Reply};

use crate::channel::{Endpoint, Incoming, Lines};
use crate::facts;
use crate::jobs::Job;
use crate::processes::{Kind, Pending, Processes};
use crate::slots::Slots;
use crate::sys;

/// Time between two checks of the slots while a process is on its way to a checkpoint: a store to memory cannot be
/// waited for.
const GLANCE: Duration = Duration::from_micros(200);

/// Time between two checks whether a host has connected.
const AWAY: Duration = Duration::from_millis(20);

/// The longest wait on a virtio port. QEMU's emulated ITS (seen with 10.0.2) loses an interrupt now and then; a read of
/// the port finds bytes that came without one.
const LOST_INTERRUPT: Duration = Duration::from_millis(100);

/// Maximum number of unknown children that are remembered: a forked process may end before its parent has reported it.
const UNKNOWN: usize = 64;

/// The purpose of a helper.
#[derive(Debug, Clone)]
enum For {
    /// A request, and its description in words.
    Request(Pending, String),
    /// The checkpoint that this process has announced.
    Checkpoint(ProcessId),
}

struct Server {
    lines: Lines,
    directory: PathBuf,
    facts: facts::Fixed,
    cpus: Vec<u32>,
    slots: Slots,
    processes: Processes,
    jobs: Vec<(For, Job)>,
    unknown: HashMap<i32, Ended>,
    checkpoints: u64,
}

/// Serves for ever.
pub fn serve(endpoint: Endpoint, directory: PathBuf, mounts: Vec<String>) -> ! {
    fs::create_dir_all(&directory)
        .unwrap_or_else(|e| panic!("cannot make {}: {e}", directory.display()));
    let slots = Slots::create(&directory.join("slots"))
        .unwrap_or_else(|failure| panic!("cannot make the shared slots: {failure}"));
    let cpus = sys::affinity(0);
    let agent_cpu = cpus[0];
    settle(agent_cpu);
    let mut server = Server {
        facts: facts::Fixed {
            channel: endpoint.kind,
            mounts,
            agent_cpu,
            cpus: cpus.len() as u32,
        },
        lines: Lines::new(endpoint),
        directory,
        cpus,
        slots,
        processes: Processes::default(),
        jobs: Vec::new(),
        unknown: HashMap::new(),
        checkpoints: 0,
    };
    let hello = server.hello();
    sys::log(format_args!(
        "ready on {:?} after {} ms",
        server.lines.kind(),
        sys::uptime_ms()
    ));
    server.send(&hello);
    loop {
        server.turn();
    }
}

/// Sets the agent's own CPU, priority and memory. It runs without any that fails.
fn settle(cpu: u32) {
    let _ = sys::set_affinity(&[cpu]);
    // Its own memory and that of its helpers must not show in the machine's counters of large folios. Programs that it
    // starts for the host switch them on again.
    let _ = sys::disable_thp(true);
    let _ = rustix::process::setpriority_process(None, -20);
    // SAFETY: the handler does nothing, and the set is filled before it is used. SIGCHLD is unblocked while the loop
    // waits, and only then.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_child as *const () as usize;
        libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

extern "C" fn on_child(_: i32) {}

/// Result of a wait.
#[derive(Default)]
struct Ready {
    lines: i16,
    from: Vec<ProcessId>,
    jobs: Vec<usize>,
}

impl Server {
    fn turn(&mut self) {
        let ready = self.wait();
        // First of all, as long as the indexes hold; from the last, because each that has ended is
        // taken out.
        for &job in ready.jobs.iter().rev() {
            if let Some(answer) = self.jobs[job].1.receive() {
                let (what_for, _) = self.jobs.swap_remove(job);
                self.helped(what_for, answer);
            }
        }
        for process in ready.from {
            self.receive(process);
        }
        self.reap();
        self.glance();
        self.check_deadlines();
        self.lines.flush();
        for incoming in self.lines.receive(ready.lines) {
            match incoming {
                Incoming::Line(line) => self.take(line),
                Incoming::Connected => {
                    let hello = self.hello();
                    self.send(&hello);
                }
                Incoming::End => self.end(),
            }
        }
    }

    /// Waits until there is work.
    fn wait(&mut self) -> Ready {
        let mut fds: Vec<libc::pollfd> = Vec::new();
        let mut add = |fd: BorrowedFd<'_>, events: i16| {
            fds.push(libc::pollfd {
                fd: fd.as_raw_fd(),
                events,
                revents: 0,
            });
        };
        let [read, write] = self.lines.poll_for();
        add(read.0, read.1);
        add(write.0, write.1);
        let mut processes = Vec::new();
        for process in self.processes.iter() {
            processes.push(process.id);
            add(process.link.reads_from(), libc::POLLIN);
            let events = if process.link.queue.is_empty() {
                0
            } else {
                libc::POLLOUT
            };
            add(process.link.writes_to(), events);
        }
        for (_, job) in &self.jobs {
            add(job.poll_for(), libc::POLLIN);
        }
        if self.lines.is_away() {
            // Always ready until a host comes.
            fds[0].events = 0;
            fds[0].fd = -1;
            fds[1].fd = -1;
        }
        poll(&mut fds, self.timeout());
        if self.lines.is_away() {
            fds[0].fd = self.lines.poll_for()[0].0.as_raw_fd();
            poll(&mut fds[..1], Some(Duration::ZERO));
        }
        let mut ready = Ready {
            lines: fds[0].revents,
            ..Ready::default()
        };
        let (links, jobs) = fds[2..].split_at(2 * processes.len());
        for (pair, id) in links.chunks_exact(2).zip(processes) {
            if pair[0].revents != 0 {
                ready.from.push(id);
            }
            if pair[1].revents & libc::POLLOUT != 0 {
                if let Ok(process) = self.processes.get(id) {
                    process.link.flush();
                }
            }
        }
        let with_news = |(at, fd): (usize, &libc::pollfd)| (fd.revents != 0).then_some(at);
        ready.jobs = jobs.iter().enumerate().filter_map(with_news).collect();
        ready
    }

    /// Returns how long there can be no work.
    fn timeout(&self) -> Option<Duration> {
        let mut until: Vec<Instant> = Vec::new();
        let now = Instant::now();
        for process in self.processes.iter() {
            if let Some(work) = process.work.as_ref().filter(|work| !work.late) {
                until.push(work.pending.until);
                if matches!(work.kind, Kind::Checkpoint(w) if !w.announced) {
                    until.push(now + GLANCE);
                }
            }
            until.extend(process.killed.flatten().map(|pending| pending.until));
        }
        for (what_for, _) in &self.jobs {
            if let For::Request(pending, _) = what_for {
                until.push(pending.until);
            }
        }
        if self.lines.is_away() {
            until.push(now + AWAY);
        } else if self.lines.kind() == Channel::Virtio {
            until.push(now + LOST_INTERRUPT);
        }
        let first = until.into_iter().min()?;
        Some(first.saturating_duration_since(now))
    }

    fn hello(&self) -> Message {
        Message::Hello(Box::new(facts::hello(&self.facts)))
    }

    fn send(&mut self, message: &Message) {
        let Err(too_long) = self.lines.send(message) else {
            return;
        };
        if let Message::Reply(reply) = message {
            let failure = Failure::TooLarge {
                bytes: too_long.bytes as u64,
                limit: too_long.limit as u64,
            };
            self.reply(reply.id, Err(failure));
        }
    }

    fn reply(&mut self, id: Option<u64>, result: Result<Outcome, Failure>) {
        self.answer(id, Answer::from(result));
    }

    fn answer(&mut self, id: Option<u64>, result: Answer) {
        self.send(&Message::Reply(Reply { id, result }));
    }

    /// Ends all processes: the other end of standard input is closed, so this is no guest, and no process may stay
    /// behind.
    fn end(&mut self) -> ! {
        self.lines.drain();
        for pid in self.processes.iter().filter_map(|p| p.pid) {
            sys::kill(pid);
        }
        for (_, job) in &self.jobs {
            job.kill();
        }
        std::process::exit(0)
    }
}

/// Waits for the descriptors, and for the end of a child. Whatever the result, the loop checks all again.
fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as libc::time_t,
        tv_nsec: t.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |t| t);
    // SAFETY: an empty set is made before it is used, the array has the length that is passed, and the timeout is null
    // or valid.
    let result = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, &none)
    };
    if result < 0 {
        fds.iter_mut().for_each(|fd| fd.revents = 0);
    }
}
