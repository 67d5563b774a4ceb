//! Helpers: forked children of the agent that do what may block, and answer through a pipe.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use protocol::{Answer, Failure, Outcome};

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
        let mut ends = [0; 2];
        // SAFETY: the array has room for two descriptors.
        let result = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        sys::check(i64::from(result), "pipe2")?;
        // SAFETY: both are new and nobody else's.
        let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
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

    /// What to wait for.
    pub fn poll_for(&self) -> BorrowedFd<'_> {
        self.answer.as_fd()
    }

    /// Reads what the helper has said; its answer once it is whole.
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

    /// Ends the helper and what it has started.
    pub fn kill(&self) {
        // SAFETY: kill takes no memory. The helper is not reaped before it is dropped, or its
        // number is at least its group's, which nothing else can have.
        unsafe {
            libc::kill(-self.pid, libc::SIGKILL);
            libc::kill(self.pid, libc::SIGKILL);
        }
    }
}

/// The helper's life.
fn help(answer: &OwnedFd, work: impl FnOnce() -> Result<Outcome, Failure>) -> ! {
    // SAFETY: these take no memory but the set, which is there.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
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
    // SAFETY: _exit takes any status and does not return.
    unsafe { libc::_exit(0) }
}

impl AsRawFd for Job {
    fn as_raw_fd(&self) -> i32 {
        self.answer.as_raw_fd()
    }
}
