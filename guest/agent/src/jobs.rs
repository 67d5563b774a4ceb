//! Helpers: forked children of the agent that do blocking work, and answer through a pipe.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use protocol::{Answer, Failure, Outcome};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{kill_process_group, set_parent_process_death_signal, setpgid, Pid, Signal};

use crate::sys;

/// A helper at work.
#[derive(Debug)]
pub struct Job {
    pid: i32,
    answer: OwnedFd,
    received: Vec<u8>,
}

impl Job {
    /// Starts a helper that does `work`.
    pub fn start(work: impl FnOnce() -> Result<Outcome, Failure>) -> Result<Self, Failure> {
        let (read, write) = sys::done(pipe_with(PipeFlags::CLOEXEC), "pipe2")?;
        // SAFETY: the agent has one thread, so that its copy finds no lock held.
        let pid = unsafe { libc::fork() };
        sys::check(i64::from(pid), "fork")?;
        if pid == 0 {
            help(&write, work);
        }
        sys::set_nonblocking(read.as_fd());
        Ok(Self {
            pid,
            answer: read,
            received: Vec::new(),
        })
    }

    /// Returns what to wait for.
    pub fn poll_for(&self) -> BorrowedFd<'_> {
        self.answer.as_fd()
    }

    /// Reads the helper's output; returns its answer once it is whole.
    pub fn receive(&mut self) -> Option<Answer> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match sys::read(self.answer.as_fd(), &mut buffer) {
                Ok(Some(0)) | Err(_) => break,
                Ok(Some(n)) => self.received.extend_from_slice(&buffer[..n]),
                Ok(None) => return None,
            }
        }
        Some(serde_json::from_slice(&self.received).unwrap_or_else(|_| {
            Answer::Error(Failure::Internal {
                why: "a helper process ended without an answer; the console may say why".into(),
            })
        }))
    }

    /// Ends the helper and all that it has started.
    pub fn kill(&self) {
        // It is not reaped before it is dropped, or its number is at least its group's, which no other process can
        // have.
        if let Some(group) = Pid::from_raw(self.pid) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        sys::kill(self.pid);
    }
}

/// Returns the helper's life.
fn help(answer: &OwnedFd, work: impl FnOnce() -> Result<Outcome, Failure>) -> ! {
    let _ = setpgid(None, None);
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // SAFETY: these take no memory but the set, which exists.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
    let line = protocol::encode(&Answer::from(work())).unwrap_or_else(|too_long| {
        let failure = Failure::TooLarge {
            bytes: too_long.bytes as u64,
            limit: too_long.limit as u64,
        };
        protocol::encode(&Answer::Error(failure)).expect("it is short")
    });
    let mut rest = &line[..];
    while let Ok(n) = sys::write(answer.as_fd(), rest) {
        rest = &rest[n.unwrap_or(0)..];
        if rest.is_empty() {
            break;
        }
    }
    sys::exit(0)
}

impl AsRawFd for Job {
    fn as_raw_fd(&self) -> i32 {
        self.answer.as_raw_fd()
    }
}
