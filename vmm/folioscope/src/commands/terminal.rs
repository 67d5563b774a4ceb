//! A guest's console on the terminal: keys go to the guest, Ctrl-A x ends it.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use machine::{Machine, Status};

use crate::Error;

/// The key that the next one is a command to us after, as in QEMU's `-nographic`: Ctrl-A.
const ESCAPE: u8 = 0x01;
/// Between two looks at the guest's output.
const TICK: Duration = Duration::from_millis(10);
const STDOUT: &str = "write to standard output";

/// How a conversation ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// By Ctrl-A x.
    Asked,
    /// By the guest.
    Guest(Status),
}

/// Copies the console to standard output and standard input to the console, until either side ends it.
///
/// # Errors
/// Where standard output cannot be written.
pub fn converse(machine: &mut dyn Machine) -> Result<End, Error> {
    let _raw = Raw::new().map_err(Error::io("put the terminal into raw mode"))?;
    // Unbuffered: what a buffer held back, poll would not tell of.
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let mut stdin = File::from(stdin.map_err(Error::io("duplicate standard input"))?);
    let mut open = true;
    let mut keys = Keys::default();
    let mut at = 0;
    loop {
        let ready = if open {
            readable(&stdin).map_err(Error::io("wait for standard input"))?
        } else {
            std::thread::sleep(TICK);
            false
        };
        if ready {
            let mut typed = [0; 256];
            // A console that nobody feeds any more is one that can still be read.
            let count = stdin.read(&mut typed).unwrap_or(0);
            open = count > 0;
            let (bytes, end) = keys.take(&typed[..count]);
            if !bytes.is_empty() {
                // A guest that is gone is seen below.
                let _ = machine.console().write(&bytes);
            }
            if end {
                return Ok(End::Asked);
            }
        }
        // Before the output: what a guest that has ended said last is there by then.
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

fn readable(stdin: &File) -> io::Result<bool> {
    let mut polled = libc::pollfd {
        fd: stdin.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure of ours, for the time of the call.
    match unsafe { libc::poll(&mut polled, 1, TICK.as_millis() as libc::c_int) } {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
        ready => Ok(ready > 0),
    }
}

/// Tells what is typed to the guest from what is meant for us.
#[derive(Debug, Default)]
struct Keys {
    escaped: bool,
}

impl Keys {
    /// What goes to the guest, and whether the end was asked for.
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
pub(super) struct Raw(Option<libc::termios>);

impl Raw {
    pub(super) fn new() -> io::Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self(None));
        }
        // SAFETY: an all-zero termios is filled before it is used.
        let mut before: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open and the structure is there.
        if unsafe { libc::tcgetattr(stdin.as_raw_fd(), &mut before) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut raw = before;
        // SAFETY: the structure is whole.
        unsafe { libc::cfmakeraw(&mut raw) };
        // The guest's lines end in \r\n, our own messages do not.
        raw.c_oflag |= libc::OPOST | libc::ONLCR;
        // SAFETY: the descriptor is open and the structure is whole.
        if unsafe { libc::tcsetattr(stdin.as_raw_fd(), libc::TCSANOW, &raw) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(Some(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the structure is the one that the terminal gave.
            unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSANOW, before) };
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
