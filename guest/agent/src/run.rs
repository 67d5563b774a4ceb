//! Runs programs of the guest for the host. Runs in a helper.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use protocol::{Content, Failure, Outcome, ProgramEnd};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::setpriority_process;

use crate::sys;

/// Number of bytes that are kept of each of a program's outputs. Two of them in base64 fit in a line.
const KEPT: usize = 1 << 20;

/// Runs a program to its end.
pub fn run(argv: &[String], input: Option<&str>, cpus: &[u32]) -> Result<Outcome, Failure> {
    let [program, arguments @ ..] = argv else {
        return Err(Failure::bad("argv is empty"));
    };
    let stdin = if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    like_any_program(&mut command, cpus);
    let child = command
        .spawn()
        .map_err(|e| sys::io_failure(&e, format!("exec {program}")))?;
    finish(child, input.unwrap_or("")).map_err(|e| sys::io_failure(&e, format!("run {program}")))
}

/// Resets the agent's own settings, so that a program runs as under any init.
pub fn like_any_program(command: &mut Command, cpus: &[u32]) {
    let cpus = cpus.to_vec();
    let set = move || {
        // An error of these is no reason not to run.
        let _ = sys::set_affinity(&cpus);
        let _ = sys::disable_thp(false);
        let _ = setpriority_process(None, 0);
        Ok(())
    };
    // SAFETY: the process has one thread, so that the closure may do what any code may.
    unsafe { command.pre_exec(set) };
}

fn finish(mut child: Child, input: &str) -> io::Result<Outcome> {
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    let mut stdin = child.stdin.take();
    let mut outputs = [Output::new(stdout.as_fd()), Output::new(stderr.as_fd())];
    if let Some(pipe) = &stdin {
        sys::set_nonblocking(pipe.as_fd());
    }
    let mut input = input.as_bytes();
    let status = loop {
        if input.is_empty() {
            stdin = None;
        }
        poll(&outputs, stdin.as_ref().map(AsFd::as_fd));
        if let Some(pipe) = &stdin {
            match sys::write(pipe.as_fd(), input) {
                Ok(n) => input = &input[n.unwrap_or(0)..],
                Err(_) => input = &[], // it does not want to read more
            }
        }
        // Checked before the outputs are read, so that no output is missed. A child of its own may hold its outputs
        // open for ever: its own end is what counts.
        let ended = child.try_wait()?;
        outputs.iter_mut().for_each(Output::read);
        if let Some(status) = ended {
            break status;
        }
    };
    let [stdout, stderr] = outputs;
    Ok(Outcome::Program(ProgramEnd {
        pid: Some(child.id()),
        how: sys::ended(status.into_raw()),
        truncated: stdout.truncated || stderr.truncated,
        stdout: Content::new(stdout.kept),
        stderr: Content::new(stderr.kept),
    }))
}

struct Output<'a> {
    fd: BorrowedFd<'a>,
    open: bool,
    kept: Vec<u8>,
    truncated: bool,
}

impl<'a> Output<'a> {
    fn new(fd: BorrowedFd<'a>) -> Self {
        sys::set_nonblocking(fd);
        Self {
            fd,
            open: true,
            kept: Vec::new(),
            truncated: false,
        }
    }

    /// Reads the available bytes.
    fn read(&mut self) {
        let mut buffer = [0; 16 << 10];
        while self.open {
            match sys::read(self.fd, &mut buffer) {
                Ok(Some(0)) | Err(_) => self.open = false,
                Ok(Some(n)) => {
                    let room = (KEPT - self.kept.len()).min(n);
                    self.kept.extend_from_slice(&buffer[..room]);
                    self.truncated |= room < n;
                }
                Ok(None) => break,
            }
        }
    }
}

/// Waits until there is work; once both outputs are closed, for a moment only.
fn poll(outputs: &[Output<'_>; 2], stdin: Option<BorrowedFd<'_>>) {
    let open = outputs.iter().filter(|output| output.open);
    let mut fds: Vec<_> = open
        .map(|output| PollFd::from_borrowed_fd(output.fd, PollFlags::IN))
        .collect();
    let milliseconds = if fds.is_empty() { 1 } else { 20 };
    fds.extend(stdin.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: milliseconds * 1_000_000,
    };
    // Whatever the result, all are checked.
    let _ = rustix::event::poll(&mut fds, Some(&timeout));
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Ended;

    fn program(argv: &[&str], input: Option<&str>) -> ProgramEnd {
        let argv: Vec<String> = argv.iter().map(|&a| a.to_owned()).collect();
        match run(&argv, input, &sys::affinity(0)) {
            Ok(Outcome::Program(end)) => end,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn output_status_and_input() {
        let end = program(&["sh", "-c", "cat; echo no >&2; exit 3"], Some("in\n"));
        assert_eq!(end.how, Ended::Exit { status: 3 });
        assert_eq!(end.stdout.text(), Some("in\n"));
        assert_eq!(end.stderr.text(), Some("no\n"));
        assert!(!end.truncated);
        let end = program(&["sh", "-c", "kill -9 $$"], None);
        assert!(matches!(end.how, Ended::Signal { number: 9, .. }));
        let end = program(&["sh", "-c", "echo $$"], None);
        assert_eq!(
            end.stdout.text(),
            end.pid.map(|pid| format!("{pid}\n")).as_deref()
        );
    }

    #[test]
    fn more_than_is_kept_is_marked() {
        let end = program(&["head", "-c", "3000000", "/dev/zero"], None);
        assert!(end.truncated);
        assert_eq!(end.stdout.bytes().unwrap().len(), KEPT);
    }

    #[test]
    fn a_background_process_that_keeps_the_output_open_is_not_waited_for() {
        let start = std::time::Instant::now();
        let end = program(&["sh", "-c", "sleep 10 & echo started"], None);
        assert_eq!(end.stdout.text(), Some("started\n"));
        assert!(start.elapsed().as_secs() < 5);
    }

    #[test]
    fn no_such_program() {
        let failure = run(&["/no/such/program".into()], None, &[0]).unwrap_err();
        assert_eq!(failure.errno(), Some("ENOENT"));
        assert!(run(&[], None, &[0]).is_err());
    }
}
