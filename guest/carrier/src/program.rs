//! One program: its process, its pipes, and the bytes on the way to and from them.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use protocol::carrier::{credit, encode, Ended, Kind, Start, CHUNK, WINDOW};
use rustix::event::{PollFd, PollFlags};

use crate::mounts::{outside, HOST, TOOLS};
use crate::sys::{self, Moved};

/// Directory of the programs' groups, by which processes that left a program's session are found too.
const GROUPS: &str = "/sys/fs/cgroup";

/// Prefix of a group's name, before its stream.
const GROUP: &str = "program-";

/// A program that was started, until its last byte and its end have been sent.
#[derive(Debug)]
pub struct Program {
    stream: u32,
    pid: libc::pid_t,
    group: PathBuf,
    /// The wait status, once it has ended.
    status: Option<i32>,
    stdin: Option<OwnedFd>,
    input: VecDeque<u8>,
    input_ends: bool,
    /// Input that was taken and for which no credit was given yet, in bytes.
    owed: u32,
    pub stdout: Output,
    pub stderr: Output,
}

/// An output of the program.
#[derive(Debug)]
pub struct Output {
    kind: Kind,
    fd: Option<OwnedFd>,
    credit: u32,
}

impl Program {
    /// Starts the program; the text of an error has the reason.
    pub fn start(stream: u32, start: &Start) -> Result<Self, String> {
        let Some(program) = start.argv.first() else {
            return Err("expected a program to run and found an empty command line".into());
        };
        let cannot = |what: &str, error: &io::Error| {
            format!("cannot start {program} in the carrier: {what}: {error}")
        };
        if !outside(&start.cwd).is_dir() {
            return Err(format!(
                "cannot start {program} in the carrier: there is no directory {}",
                start.cwd
            ));
        }
        let pipe = || sys::pipe().map_err(|error| cannot("pipe", &error));
        let ((stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr)) =
            (pipe()?, pipe()?, pipe()?);
        for fd in [&our_stdin, &our_stdout, &our_stderr] {
            sys::set_nonblocking(fd.as_fd());
        }
        let group = Path::new(GROUPS).join(format!("{GROUP}{stream}"));
        let joined = fs::create_dir(&group).and_then(|()| {
            fs::File::options()
                .write(true)
                .open(group.join("cgroup.procs"))
        });
        let mut command = Command::new(program);
        command
            .args(&start.argv[1..])
            .env_clear()
            .envs(start.env.iter().filter(|(name, _)| passed(name)).cloned())
            .env("PATH", path(start))
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::from(stderr));
        let cwd = CString::new(start.cwd.as_str()).map_err(|_| "a path has a zero byte")?;
        let root = CString::new(HOST).expect("it has no zero byte");
        let procs = joined.as_ref().ok().map(AsRawFd::as_raw_fd);
        // SAFETY: between fork and exec it makes plain system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                libc::setsid();
                if let Some(procs) = procs {
                    libc::write(procs, b"0".as_ptr().cast(), 1);
                }
                if libc::chroot(root.as_ptr()) != 0 || libc::chdir(cwd.as_ptr()) != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().map_err(|error| {
            let _ = fs::remove_dir(&group);
            match error.raw_os_error() {
                Some(libc::ENOEXEC) => format!("cannot start {program} in the carrier: it is no arm64 program"),
                Some(libc::ENOENT) if fs::exists(outside(program)).unwrap_or(false) => format!(
                    "cannot start {program} in the carrier: its interpreter (of a script, or ld-linux-aarch64.so.1) is not there; link it statically"
                ),
                _ => cannot("exec", &error),
            }
        })?;
        let output = |kind, fd| Output {
            kind,
            fd: Some(fd),
            credit: WINDOW,
        };
        Ok(Self {
            stream,
            pid: child.id() as libc::pid_t,
            group,
            status: None,
            stdin: Some(our_stdin),
            input: VecDeque::new(),
            input_ends: false,
            owed: 0,
            stdout: output(Kind::Stdout, our_stdout),
            stderr: output(Kind::Stderr, our_stderr),
        })
    }

    /// Returns its process id, which is its group's and session's too.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Sends it a signal; those that a terminal sends, and the one that ends everything, go to its whole group.
    pub fn signal(&self, signal: i32) {
        let group = matches!(
            signal,
            libc::SIGINT | libc::SIGQUIT | libc::SIGHUP | libc::SIGKILL
        );
        if self.status.is_none() {
            sys::kill(if group { -self.pid } else { self.pid }, signal);
        }
    }

    /// Takes input; returns false if there was more than the credit allowed.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        if self.input.len() + bytes.len() > WINDOW as usize {
            return false;
        }
        self.input.extend(bytes);
        self.feed(out);
        true
    }

    /// Handles the end of the input.
    pub fn end_input(&mut self, out: &mut Vec<u8>) {
        self.input_ends = true;
        self.feed(out);
    }

    /// Writes input to the program as far as it takes it.
    pub fn feed(&mut self, out: &mut Vec<u8>) {
        while let (Some(fd), (bytes @ [_, ..], _)) = (&self.stdin, self.input.as_slices()) {
            match sys::write(fd.as_fd(), bytes) {
                Moved::Bytes(count) => {
                    self.input.drain(..count);
                    self.owed += count as u32;
                }
                Moved::Later => break,
                Moved::Broken => self.stdin = None,
            }
        }
        if self.stdin.is_none() {
            // The program will not read it; its sender need not wait for that.
            self.owed += self.input.len() as u32;
            self.input.clear();
        }
        if self.input.is_empty() && self.input_ends {
            self.stdin = None;
        }
        if self.owed > 0 && (self.owed >= WINDOW / 4 || self.input.is_empty()) {
            encode(out, Kind::StdinCredit, self.stream, &credit(self.owed));
            self.owed = 0;
        }
    }

    /// Reads the program's output, as far as there is credit, a chunk of each stream.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        let ended = self.status.is_some();
        self.stdout.drain(self.stream, ended, out);
        self.stderr.drain(self.stream, ended, out);
    }

    /// Records its end. Processes that it left running in its group are killed.
    pub fn ended(&mut self, status: i32) {
        self.status = Some(status);
        self.kill();
    }

    /// Kills all that is left of it, including processes that have left its process group.
    fn kill(&self) {
        let _ = fs::write(self.group.join("cgroup.kill"), "1");
    }

    /// Returns whether all but the end has been sent, and then sends the end.
    pub fn finished(&self, out: &mut Vec<u8>) -> bool {
        let Some(status) = self.status else {
            return false;
        };
        if self.stdout.fd.is_some() || self.stderr.fd.is_some() {
            return false;
        }
        let ended = if libc::WIFSIGNALED(status) {
            Ended::Signal(libc::WTERMSIG(status) as u8)
        } else {
            Ended::Exit(libc::WEXITSTATUS(status) as u8)
        };
        tell_end(out, self.stream, &ended);
        true
    }

    /// Returns what to poll.
    pub fn waits(&self, room: bool) -> impl Iterator<Item = PollFd<'_>> {
        let stdin = self.stdin.as_ref().filter(|_| !self.input.is_empty());
        let outputs = [&self.stdout, &self.stderr].into_iter();
        let outputs = outputs.filter(move |output| room && output.credit > 0);
        stdin
            .map(|fd| PollFd::new(fd, PollFlags::OUT))
            .into_iter()
            .chain(
                outputs.filter_map(|output| Some(PollFd::new(output.fd.as_ref()?, PollFlags::IN))),
            )
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        self.kill();
    }
}

impl Output {
    /// Adds credit.
    pub fn add_credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes).min(WINDOW);
    }

    /// Closes an output that the client no longer reads: the program gets SIGPIPE for its next write.
    pub fn shut(&mut self) {
        self.fd = None;
    }

    fn drain(&mut self, stream: u32, ended: bool, out: &mut Vec<u8>) {
        let Some(fd) = &self.fd else { return };
        let mut chunk = [0; CHUNK];
        let most = chunk.len().min(self.credit as usize);
        if most == 0 {
            return;
        }
        match sys::read(fd.as_fd(), &mut chunk[..most]) {
            Moved::Bytes(count @ 1..) => {
                encode(out, self.kind, stream, &chunk[..count]);
                self.credit -= count as u32;
            }
            // A process that the program left behind may still hold the other end.
            Moved::Later if !ended => {}
            Moved::Bytes(0) | Moved::Later | Moved::Broken => self.fd = None,
        }
    }
}

/// Removes the groups of programs that have ended. One with a process that is still ending stays for now.
pub fn remove_groups(in_use: impl Fn(u32) -> bool) {
    for entry in fs::read_dir(GROUPS).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let stream = name
            .to_str()
            .and_then(|name| name.strip_prefix(GROUP)?.parse().ok());
        if stream.is_some_and(|stream| !in_use(stream)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Sends the end of a stream.
pub fn tell_end(out: &mut Vec<u8>, stream: u32, ended: &Ended) {
    let text = serde_json::to_vec(ended).expect("plain data");
    encode(out, Kind::Exit, stream, &text);
}

/// Returns the libraries to load first are the outside's, for another machine.
fn passed(name: &str) -> bool {
    !matches!(name, "LD_PRELOAD" | "LD_LIBRARY_PATH" | "PATH")
}

fn path(start: &Start) -> String {
    let theirs = start.env.iter().find(|(name, _)| name == "PATH");
    let theirs = theirs.map_or("/usr/bin:/bin", |(_, value)| value.as_str());
    format!("{TOOLS}:{theirs}")
}
