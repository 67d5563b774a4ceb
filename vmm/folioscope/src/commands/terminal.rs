// SPDX-License-Identifier: GPL-2.0-only
//! A guest's console on the terminal: keys go to the guest, Ctrl-A x ends it.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd;
use std::time::Duration;

use machine::{Machine, Status};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::termios::{tcgetattr, tcsetattr, OptionalActions, OutputModes, Termios};

use crate::Error;

/// The key that the next one is a command to us after, as in QEMU's `-nographic`: Ctrl-A.
const ESCAPE: u8 = 0x01;
/// Time between two checks of a silent guest, for changes without an event. Each check takes time from a guest that
/// shares our processor.
const TICK: Duration = Duration::from_millis(100);
const STDOUT: &str = "write to standard output";

/// The end of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The user typed Ctrl-A x.
    Asked,
    /// The guest ended.
    Guest(Status),
}

/// Copies the console to standard output and standard input to the console, until either side ends it.
///
/// # Errors
/// If standard output cannot be written.
pub fn converse(machine: &mut dyn Machine) -> Result<End, Error> {
    let _raw = Raw::new().map_err(Error::io("put the terminal into raw mode"))?;
    // Unbuffered: poll would not report bytes that a buffer holds.
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let mut stdin = File::from(stdin.map_err(Error::io("duplicate standard input"))?);
    let mut open = true;
    let mut keys = Keys::default();
    let mut at = 0;
    loop {
        let typed =
            wait(machine, open.then_some(&stdin)).map_err(Error::io("wait for the guest"))?;
        if typed {
            let mut typed = [0; 256];
            // A console without input can still be read.
            let count = stdin.read(&mut typed).unwrap_or(0);
            open = count > 0;
            let (bytes, end) = keys.take(&typed[..count]);
            if !bytes.is_empty() {
                // The end of the guest is noticed below.
                let _ = machine.console().write(&bytes);
            }
            if end {
                return Ok(End::Asked);
            }
        }
        // Before the output: the last words of a guest that has ended are there by then.
        let status = machine.status();
        let (bytes, next) = machine.console().since(at);
        at = next;
        let mut out = io::stdout().lock();
        out.write_all(&bytes)
            .and_then(|()| out.flush())
            .map_err(Error::io(STDOUT))?;
        if !matches!(status, Status::Running | Status::Paused) && bytes.is_empty() {
            return Ok(End::Guest(status));
        }
    }
}

/// Waits until there may be work; returns whether a key was typed.
fn wait(machine: &dyn Machine, stdin: Option<&File>) -> io::Result<bool> {
    let console = machine.console().event();
    let events = [Some(console), machine.end_event(), stdin.map(File::as_fd)];
    let mut polled: Vec<PollFd> = events
        .into_iter()
        .flatten()
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let tick = Timespec::try_from(TICK).expect("a short time");
    match poll(&mut polled, Some(&tick)) {
        Ok(_) => Ok(stdin.is_some() && polled.last().is_some_and(|it| !it.revents().is_empty())),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Separates keys for the guest from keys for us.
#[derive(Debug, Default)]
struct Keys {
    escaped: bool,
}

impl Keys {
    /// Returns the bytes for the guest, and whether the end was requested.
    fn take(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut bytes = Vec::with_capacity(typed.len());
        for &key in typed {
            match (std::mem::take(&mut self.escaped), key) {
                (false, ESCAPE) => self.escaped = true,
                (true, b'x' | b'X') => return (bytes, true),
                // Twice: the guest gets one.
                (_, key) => bytes.push(key),
            }
        }
        (bytes, false)
    }
}

/// A terminal in raw mode, until this is dropped; nothing where standard input is none.
pub(super) struct Raw(Option<Termios>);

impl Raw {
    pub(super) fn new() -> io::Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self(None));
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        // The guest's lines end in \r\n, our own messages do not.
        raw.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_escape_is_kept_from_the_guest() {
        let mut keys = Keys::default();
        assert_eq!(keys.take(b"ls\r"), (b"ls\r".to_vec(), false));
        assert_eq!(keys.take(b"a\x01"), (b"a".to_vec(), false));
        assert_eq!(keys.take(b"x never seen"), (vec![], true));
        let mut keys = Keys::default();
        assert_eq!(keys.take(b"\x01\x01x"), (b"\x01x".to_vec(), false));
        assert_eq!(keys.take(b"\x01cd"), (b"cd".to_vec(), false));
    }
}
