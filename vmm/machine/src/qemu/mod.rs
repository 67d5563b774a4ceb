// SPDX-License-Identifier: GPL-2.0-only
//! A guest under QEMU's TCG, which runs on any host.

pub mod attach;

mod command;
mod config;
mod debugger;
mod ram;
mod start;
mod stub;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{json, Value};
use snapshot::{Notes, Range, Snapshot};
use stage1::{PhysicalAddress, VirtualAddress};

use crate::channel::{Channel, Heard};
use crate::process::Process;
use crate::qmp::Qmp;
use crate::stream::Deadline;
use crate::{ChannelError, Console, Machine, MachineError, Paused, QmpError, Status, Stopped};
use ram::{Backend, Bank};
use stub::Stub;

pub use crate::limits::{MOST_CPUS, MOST_NODES};
pub use command::AGENT_PORT;
pub use config::{Config, Counting, Recording, Threads};

/// Maximum time for a command. QEMU answers within a millisecond, but its main loop may have to wait for a processor on
/// a busy host.
const COMMAND: Duration = Duration::from_secs(20);

/// Silence of a console after a panic that counts as the guest's end.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A guest under QEMU. Dropping it ends QEMU.
#[derive(Debug)]
pub struct Qemu {
    /// First, so that it ends before all that it uses.
    process: Process,
    qmp: Qmp,
    stub: Stub,
    console: Console,
    channel: Channel,
    /// Keeps the guest's memory mapped, even while no region of it is being read.
    _backends: Vec<Backend>,
    banks: Vec<Bank>,
    cpus: usize,
    /// The threads of QEMU that run the CPUs.
    threads: Vec<u64>,
    command_line: String,
    cmdline: String,
    /// QEMU's standard output and error.
    log: PathBuf,
    /// State by the last events.
    state: State,
    version: [u64; 3],
}

/// State of the guest by QEMU's events. The end of QEMU itself is seen elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Paused,
    Panicked,
    Ended { reset: bool },
}

impl Qemu {
    /// Returns QEMU's version: major, minor, micro.
    pub fn version(&self) -> [u64; 3] {
        self.version
    }

    /// Returns QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns whether QEMU still runs.
    pub fn is_alive(&self) -> bool {
        self.process.status().is_none()
    }

    /// Executes a QMP command and returns its result.
    pub fn qmp(&mut self, command: &str, arguments: Value) -> Result<Value, MachineError> {
        let result = self.qmp.execute(command, arguments, COMMAND);
        result.map_err(|error| self.explain(error.into()))
    }

    /// Executes a command of QEMU's monitor for people, such as `xp /512gx 0x40000000`, and returns its output.
    pub fn monitor(&mut self, line: &str) -> Result<String, MachineError> {
        let result = self.qmp.human(line, None, COMMAND);
        result.map_err(|error| self.explain(error.into()))
    }

    /// Waits until QEMU has ended, for at most `timeout`; returns whether it has.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        self.process.wait(timeout).is_some()
    }

    /// Returns what a failure on one of QEMU's sockets really means: most often that QEMU is gone.
    fn explain(&self, error: MachineError) -> MachineError {
        let closed = matches!(
            error,
            MachineError::Qmp(QmpError::Closed(_))
                | MachineError::Gdb(crate::GdbError::Closed(_))
                | MachineError::Channel(ChannelError::Closed)
        );
        // A socket closes a moment before the process ends.
        let patience = Duration::from_secs(if closed { 2 } else { 0 });
        match self.process.wait(patience) {
            Some(status) => MachineError::Lost {
                status: status.to_string(),
                stderr: start::last_words(&self.log),
            },
            None => error,
        }
    }

    /// Processes QEMU's events on the guest.
    fn take_events(&mut self) -> Result<(), MachineError> {
        let events = self.qmp.events();
        let events: VecDeque<Value> = events.map_err(|error| self.explain(error.into()))?;
        for event in events {
            self.state = match event["event"].as_str() {
                Some("GUEST_PANICKED") => State::Panicked,
                Some("SHUTDOWN") => State::Ended {
                    reset: event["data"]["reason"] == "guest-reset",
                },
                // The way the guest ended is more informative than its stop since then.
                Some("STOP") if self.state == State::Running => State::Paused,
                Some("RESUME") => State::Running,
                _ => continue,
            };
        }
        Ok(())
    }

    /// Returns an error with the reason why no more bytes will come from the guest, if there is one.
    fn ended(&mut self) -> Result<(), MachineError> {
        self.take_events()?;
        let console = || self.console.tail();
        match self.state {
            State::Panicked => Err(MachineError::Panicked { console: console() }),
            State::Ended { reset } => Err(MachineError::Ended {
                reset,
                console: console(),
            }),
            State::Running | State::Paused => match self.console.panicked_for() {
                Some(since) if since > LAST_WORDS => {
                    Err(MachineError::Panicked { console: console() })
                }
                _ => Ok(()),
            },
        }
    }
}

impl Machine for Qemu {
    fn kind(&self) -> &'static str {
        "qemu-tcg"
    }

    fn command_line(&self) -> String {
        self.command_line.clone()
    }

    fn ram(&self) -> Vec<Range> {
        self.banks.iter().map(Bank::range).collect()
    }

    fn console(&self) -> &Console {
        &self.console
    }

    fn status(&mut self) -> Status {
        let events = self.take_events();
        if let Some(status) = self.process.status() {
            return Status::Lost {
                status: status.to_string(),
                stderr: start::last_words(&self.log),
            };
        }
        match (self.state, events) {
            (State::Panicked, _) => Status::Panicked,
            (State::Ended { reset }, _) => Status::Ended { reset },
            (_, Err(error)) => Status::Lost {
                status: error.to_string(),
                stderr: start::last_words(&self.log),
            },
            (State::Running | State::Paused, _) if self.console.panicked_for().is_some() => {
                Status::Panicked
            }
            (State::Running, _) => Status::Running,
            (State::Paused, _) => Status::Paused,
        }
    }

    fn pause(&mut self) -> Result<Paused<'_>, MachineError> {
        self.channel.settle();
        let since = Instant::now();
        // The answer comes when all vCPU threads have stopped (QEMU's pause_all_vcpus).
        self.qmp("stop", json!({}))?;
        let stopping = since.elapsed();
        let snapshot = self.read();
        let snapshot = match snapshot {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let error = self.explain(error);
                // The first error is the one to report.
                let _ = self.resume();
                return Err(error);
            }
        };
        Ok(Paused::new(snapshot, self, since, stopping))
    }

    fn send(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), MachineError> {
        let result = self.channel.send(bytes, timeout);
        result.map_err(|error| match self.ended() {
            Ok(()) => self.explain(error.into()),
            Err(ended) => ended,
        })
    }

    fn transcript_error(&self) -> Option<String> {
        self.channel.log_error().map(str::to_owned)
    }

    fn receive_line(&mut self, timeout: Duration) -> Result<Vec<u8>, MachineError> {
        // Time between two checks of the console; all other events wake the wait.
        const LOOK: Duration = Duration::from_millis(100);
        let deadline = Deadline::after(timeout);
        loop {
            let until = deadline.at.min(Instant::now() + LOOK);
            let heard = self.channel.hear(Some(self.qmp.as_fd()), until);
            match heard.map_err(|error| self.explain(error.into()))? {
                Heard::Line(line) => return Ok(line),
                Heard::Other | Heard::Nothing => self.ended()?,
            }
            if Instant::now() >= deadline.at {
                let partial = self.channel.partial();
                let waited = timeout;
                return Err(ChannelError::Timeout { waited, partial }.into());
            }
        }
    }

    fn kill(&mut self) {
        self.process.kill();
        self.console.finish();
    }

    fn quit(&mut self, patience: Duration) {
        // It may close the socket before it has answered, and that is as good.
        let _ = self.qmp.execute("quit", json!({}), patience);
        self.process.wait(patience);
        self.kill();
    }
}

impl Qemu {
    /// Returns the registers and memory of the machine, which is stopped.
    fn read(&mut self) -> Result<Snapshot, MachineError> {
        let cpus = self.stub.read()?;
        // SAFETY: QEMU has answered `stop`: all vCPU threads are stopped, and QEMU has drained its block devices, of
        // which there are none. Apart from them QEMU writes to guest memory only by virtio-serial, when bytes for the
        // guest arrive, and only we send those: `pause` has waited until they were taken, and `send` needs the machine
        // exclusively, as does every other way to resume the guest. The `Paused` that owns this memory borrows the
        // machine exclusively and drops the memory before it resumes the guest. The sockets' system calls order QEMU's
        // writes before our reads.
        let memory = unsafe { ram::live(&self.banks) }?;
        let notes = Notes {
            command_line: self.cmdline.clone(),
            ..Notes::now(self.kind(), self.command_line.clone())
        };
        Ok(Snapshot {
            cpus,
            memory,
            notes,
        })
    }
}

impl Stopped for Qemu {
    fn resume(&mut self) -> Result<(), MachineError> {
        self.take_events()?;
        match self.state {
            State::Running | State::Paused => {
                self.qmp("cont", json!({}))?;
                self.state = State::Running;
                Ok(())
            }
            // `status` reports its end; there is nothing to resume.
            State::Panicked | State::Ended { .. } => Ok(()),
        }
    }

    fn ran_ns(&mut self) -> Vec<u64> {
        ran_ns_of(self.process.pid() as i32, &self.threads)
    }

    /// Translates by QEMU's own walk (`gva2gpa`).
    fn translate(
        &mut self,
        cpu: usize,
        va: VirtualAddress,
    ) -> Result<Option<PhysicalAddress>, MachineError> {
        let line = format!("gva2gpa {:#x}", va.0);
        let result = self.qmp.human(&line, Some(cpu), COMMAND);
        let answer = result.map_err(|error| self.explain(error.into()))?;
        let answer = answer.trim();
        if answer == "Unmapped" {
            return Ok(None);
        }
        match answer
            .strip_prefix("gpa: 0x")
            .map(|hex| u64::from_str_radix(hex, 16))
        {
            Some(Ok(gpa)) => Ok(Some(PhysicalAddress(gpa))),
            _ => Err(QmpError::Garbage {
                command: line,
                found: crate::error::excerpt(answer.as_bytes()).into(),
            }
            .into()),
        }
    }
}

/// Returns the threads that run the CPUs, in their order; 0 if QEMU does not report it.
fn cpu_threads(qmp: &mut Qmp) -> Result<Vec<u64>, QmpError> {
    let cpus = qmp.execute("query-cpus-fast", json!({}), COMMAND)?;
    let cpus = cpus.as_array().cloned().unwrap_or_default();
    let threads = cpus.iter().map(|cpu| cpu["thread-id"].as_u64());
    Ok(threads.map(Option::unwrap_or_default).collect())
}

/// Returns how long each CPU's thread has had a processor, in nanoseconds. It is 0 if it is unknown, as for CPUs that
/// take turns in one thread (`thread=single`, `-icount`).
fn ran_ns_of(pid: i32, threads: &[u64]) -> Vec<u64> {
    let ran = |thread: &u64| -> Option<u64> {
        threads
            .iter()
            .filter(|other| *other == thread)
            .nth(1)
            .is_none()
            .then_some(())?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat"));
        text.ok()?.split(' ').next()?.parse().ok()
    };
    threads
        .iter()
        .map(|thread| ran(thread).unwrap_or(0))
        .collect()
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_several_cpus_take_turns_in_tells_of_none() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        // Its first thread has the process's number.
        let thread = own as u64;
        assert!(ran_ns_of(own, &[thread])[0] > 0);
        assert_eq!(ran_ns_of(own, &[thread, thread]), [0, 0]);
        assert!(ran_ns_of(own, &[thread, 0])[0] > 0);
        assert_eq!(ran_ns_of(own, &[0]), [0]);
    }
}
