//! Messages between the agent and a workload process, over a pair of named pipes.
//!
//! Named pipes work on every kernel, one without sockets too. A forked child can open its own pair by name, so no
//! descriptor has to be passed to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use protocol::{Answer, Failure, LineDecoder, Operation, ProcessId};
use serde::{Deserialize, Serialize};

use crate::sys;

/// A task for a workload process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    /// An operation of the host.
    Op(Operation),
    /// Fork; the child is that process and has that slot.
    Fork {
        /// The child's number.
        process: ProcessId,
        /// The child's slot.
        slot: usize,
        /// The child's name; the parent's when empty.
        name: String,
    },
    /// Wait in user mode on that CPU.
    Checkpoint {
        /// The number of the checkpoint, for the slot.
        number: u64,
        /// The host's value.
        nonce: u64,
        /// The CPU on which to wait.
        cpu: u32,
    },
}

/// A message of a workload process.
#[derive(Debug, Serialize, Deserialize)]
pub enum WorkloadMessage {
    /// It has started.
    Ready {
        /// The kernel's number of it.
        pid: i32,
        /// Start of the loop of its checkpoints.
        pc_start: u64,
        /// The end of that loop, exclusive.
        pc_end: u64,
    },
    /// It has forked; the child reports by itself.
    Forked {
        /// The kernel's number of the child.
        pid: i32,
    },
    /// The result of a task; that of a checkpoint is sent once the process is out of the loop.
    Answer(Answer),
}

/// Returns the paths of a process's pipes: towards it, and from it.
pub fn paths(directory: &Path, process: ProcessId) -> (PathBuf, PathBuf) {
    (
        directory.join(format!("{}.in", process.0)),
        directory.join(format!("{}.out", process.0)),
    )
}

/// The agent's end of a process's pipes.
#[derive(Debug)]
pub struct Link {
    /// Towards the process. Open for reading too, so that it opens before the process exists.
    to: OwnedFd,
    /// From the process.
    from: OwnedFd,
    /// Bytes that the process has not taken yet.
    pub queue: Vec<u8>,
    decoder: LineDecoder,
    paths: (PathBuf, PathBuf),
}

impl Link {
    /// Makes and opens the pipes of a process that is about to start.
    pub fn create(directory: &Path, process: ProcessId) -> Result<Self, Failure> {
        let paths = paths(directory, process);
        sys::make_fifo(&paths.0)?;
        sys::make_fifo(&paths.1)?;
        let to = sys::open(&paths.0.to_string_lossy(), libc::O_RDWR | libc::O_NONBLOCK)?;
        let from = sys::open(
            &paths.1.to_string_lossy(),
            libc::O_RDONLY | libc::O_NONBLOCK,
        )?;
        Ok(Self {
            to,
            from,
            queue: Vec::new(),
            decoder: LineDecoder::new(),
            paths,
        })
    }

    /// Returns the descriptor to poll for messages of the process.
    pub fn reads_from(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    /// Returns the descriptor to poll until the process takes more.
    pub fn writes_to(&self) -> BorrowedFd<'_> {
        self.to.as_fd()
    }

    /// Sends a task, or as much of it as the pipe takes now.
    pub fn send(&mut self, task: &Task) -> Result<(), Failure> {
        let line = protocol::encode(task).map_err(|e| Failure::bad(e.to_string()))?;
        self.queue.extend_from_slice(&line);
        self.flush();
        Ok(())
    }

    /// Sends bytes that could not be sent before.
    pub fn flush(&mut self) {
        if let Ok(Some(n)) = sys::write(self.to.as_fd(), &self.queue) {
            self.queue.drain(..n);
        }
    }

    /// Reads the messages of the process.
    pub fn receive(&mut self) -> Vec<WorkloadMessage> {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(Some(n @ 1..)) = sys::read(self.from.as_fd(), &mut buffer) {
            self.decoder.push(&buffer[..n]);
        }
        let mut said = Vec::new();
        while let Some(line) = self.decoder.next_line() {
            match line.map(|line| serde_json::from_str(&line)) {
                Ok(Ok(message)) => said.push(message),
                Ok(Err(error)) => said.push(WorkloadMessage::Answer(internal(&error))),
                Err(error) => said.push(WorkloadMessage::Answer(internal(&error))),
            }
        }
        said
    }
}

fn internal(error: &dyn std::fmt::Display) -> Answer {
    Answer::Error(Failure::Internal {
        why: format!("a workload process answered nonsense: {error}"),
    })
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.paths.0);
        let _ = std::fs::remove_file(&self.paths.1);
    }
}

/// A workload process's end of its pipes. Blocking.
#[derive(Debug)]
pub struct Home {
    tasks: OwnedFd,
    answers: OwnedFd,
    decoder: LineDecoder,
}

impl Home {
    /// Opens the pipes that the agent made.
    pub fn open(directory: &Path, process: ProcessId) -> Result<Self, Failure> {
        let paths = paths(directory, process);
        Ok(Self {
            tasks: sys::open(&paths.0.to_string_lossy(), libc::O_RDONLY)?,
            answers: sys::open(&paths.1.to_string_lossy(), libc::O_WRONLY)?,
            decoder: LineDecoder::new(),
        })
    }

    /// Waits for the next task; returns `None` when the agent has ended.
    pub fn next(&mut self) -> Option<Result<Task, Failure>> {
        loop {
            if let Some(line) = self.decoder.next_line() {
                return Some(match line.map(|line| serde_json::from_str(&line)) {
                    Ok(Ok(task)) => Ok(task),
                    Ok(Err(e)) => Err(Failure::Internal { why: e.to_string() }),
                    Err(e) => Err(Failure::Internal { why: e.to_string() }),
                });
            }
            let mut buffer = [0; 4096];
            match sys::read(self.tasks.as_fd(), &mut buffer) {
                Ok(Some(0)) | Err(_) => return None,
                Ok(Some(n)) => self.decoder.push(&buffer[..n]),
                Ok(None) => {}
            }
        }
    }

    /// Sends a message to the agent.
    pub fn send(&self, said: &WorkloadMessage) -> io::Result<()> {
        let line = protocol::encode(said).unwrap_or_else(|too_long| {
            let failure = Failure::TooLarge {
                bytes: too_long.bytes as u64,
                limit: too_long.limit as u64,
            };
            protocol::encode(&WorkloadMessage::Answer(Answer::Error(failure))).expect("it is short")
        });
        let mut rest = &line[..];
        while !rest.is_empty() {
            if let Some(n) = sys::write(self.answers.as_fd(), rest)? {
                rest = &rest[n..];
            }
        }
        Ok(())
    }
}
