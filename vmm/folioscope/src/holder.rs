// SPDX-License-Identifier: GPL-2.0-only
//! The client's side of a guest's socket: recognises the server by its greeting, and sends one request to it.
//!
//! A control socket of `folioscope boot` and a QMP socket of QEMU both send a greeting first. The greeting
//! distinguishes them from each other and from all else, and no byte is sent to what may be a guest's serial console.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use machine::private;
use machine::stream::{Deadline, Stream};
use serde_json::{json, Value};

use crate::control::VERSION;
use crate::Error;

/// Maximum time for a socket to accept a connection, and to greet: ours and QEMU's do so at once on a host that is not
/// busy.
const GREETING: Duration = Duration::from_secs(5);

/// Beyond this the guest's holder is taken to hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest line that is taken for a greeting, in bytes.
const LONGEST_GREETING: usize = 1 << 20;

/// Maximum length of an answer's line, in bytes: the holder's own limit, and room for the rest of the line.
const LONGEST_ANSWER: usize = crate::control::LONGEST_ANSWER + (1 << 20);

/// Bytes of an unknown greeting that are shown.
const SHOWN: usize = 120;

/// Returns whether `folioscope boot` is at the other end of a socket; false where QEMU's monitor (QMP) is.
///
/// # Errors
/// If the socket cannot be connected to, has no known greeting, or belongs to a guest of another user. The error has
/// what was found, and what to do.
pub fn is_ours(socket: &Path) -> Result<bool, Error> {
    Ok(Connection::new(socket, GREETING)?.1 == Peer::Holder)
}

/// Returns one request to the holder of a guest.
///
/// # Errors
/// If there is no answer, or the answer is an error.
pub fn ask(socket: &Path, method: &str, params: &Value) -> Result<Value, Error> {
    ask_with(socket, method, params, PATIENCE, None)
}

/// Sends a request with a longer deadline, and a file of ours: a confined holder may not open it by its name.
///
/// # Errors
/// As [`ask`].
pub fn ask_with(
    socket: &Path,
    method: &str,
    params: &Value,
    patience: Duration,
    file: Option<&File>,
) -> Result<Value, Error> {
    let (mut connection, peer) = Connection::new(socket, GREETING)?;
    if peer != Peer::Holder {
        return Err(Error::Input(format!(
            "{} is a QMP socket of QEMU: expected the control socket of a guest that `folioscope boot` holds; it prints that",
            socket.display()
        )));
    }
    let attempt = || {
        format!(
            "speak with the guest at {} (is `folioscope boot` still running?)",
            socket.display()
        )
    };
    let request = json!({"id": 1, "method": method, "params": params});
    let deadline = Deadline::after(patience);
    let stream = &mut connection.stream;
    let line = format!("{request}\n");
    let written = match file {
        Some(file) => stream.write_with(line.as_bytes(), file, deadline.at),
        None => stream.write_all(line.as_bytes(), deadline.at),
    };
    let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    let answer = match written {
        Ok(()) => connection.line(deadline, LONGEST_ANSWER),
        Err(error) if gone.contains(&error.kind()) => Err(Silence::Closed(Vec::new())),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Silence::Timeout),
        Err(error) => Err(Silence::Io(error)),
    };
    let line = match answer {
        Ok(line) => line,
        Err(Silence::Timeout) => {
            return Err(Error::Input(format!(
                "the guest at {} did not answer {method} within {} s; another request may keep it busy: try again",
                socket.display(),
                patience.as_secs()
            )))
        }
        Err(Silence::Closed(_)) => {
            return Err(Error::Input(format!(
                "the guest at {} closed the connection during {method}: `folioscope boot` has ended, or its guest is lost",
                socket.display()
            )))
        }
        Err(Silence::TooLong(_)) => {
            return Err(Error::Input(format!(
                "{} did not answer as a guest's socket does: expected a line of at most {LONGEST_ANSWER} bytes",
                socket.display()
            )))
        }
        Err(Silence::Io(error)) => return Err(Error::io(attempt())(error)),
    };
    let mut answer: Value = serde_json::from_slice(&line).map_err(|error| {
        Error::Input(format!(
            "{} did not answer as a guest's socket does: {error}",
            socket.display()
        ))
    })?;
    match answer.get_mut("ok") {
        Some(value) => Ok(value.take()),
        None => Err(Error::Input(
            answer["error"]["message"]
                .as_str()
                .unwrap_or("the guest's holder said no without a reason")
                .to_owned(),
        )),
    }
}

/// Returns whether a guest is held at a socket, for a list of guests: accepting a connection suffices.
#[must_use]
pub fn listens(socket: &Path) -> bool {
    match private::connect(socket, Duration::ZERO) {
        Ok(_) => true,
        // As many wait as it takes.
        Err(error) => error.kind() == io::ErrorKind::TimedOut,
    }
}

/// The server that greets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// `folioscope boot`.
    Holder,
    /// QEMU.
    Qmp,
}

/// Lines from a socket.
struct Connection {
    stream: Stream,
    buffer: Vec<u8>,
}

/// The reason why no line came.
enum Silence {
    Timeout,
    /// The connection closed, after this part of a line.
    Closed(Vec<u8>),
    /// The line was too long; this is its start.
    TooLong(Vec<u8>),
    Io(io::Error),
}

impl Connection {
    /// Connects, and takes the greeting; each may take so long.
    fn new(path: &Path, patience: Duration) -> Result<(Self, Peer), Error> {
        let socket = private::connect(path, patience).map_err(|error| unreachable(path, error))?;
        let owner = rustix::net::sockopt::socket_peercred(&socket).map(|peer| peer.uid);
        let stream = Stream::new(socket).map_err(Error::io("set up a socket"))?;
        let mut connection = Self {
            stream,
            buffer: Vec::new(),
        };
        let peer = connection.greeting(path, patience)?;
        let own = rustix::process::geteuid();
        match (peer, owner) {
            (Peer::Holder, Ok(owner)) if owner != own && !own.is_root() => Err(Error::Input(format!(
                "{} is the control socket of a guest of user {}, and this is user {}: a guest's memory is its user's alone; run this command as that user",
                path.display(),
                owner.as_raw(),
                own.as_raw()
            ))),
            _ => Ok((connection, peer)),
        }
    }

    /// Returns the server that greets. Before QEMU's greeting there may be answers to an earlier client, and events.
    fn greeting(&mut self, path: &Path, patience: Duration) -> Result<Peer, Error> {
        let deadline = Deadline::after(patience);
        let unknown = |found: &[u8]| {
            let start = String::from_utf8_lossy(&found[..found.len().min(SHOWN)]).into_owned();
            let rest = if found.len() > SHOWN { "..." } else { "" };
            Error::Input(format!(
                "{} is no QMP socket and no control socket of `folioscope boot`: expected {{\"QMP\": ...}} or {{\"ready\": ...}}, found {start:?}{rest}; give the one of QEMU's option -qmp (not -monitor, -serial or -gdb), or the one that `folioscope boot` prints",
                path.display()
            ))
        };
        loop {
            let line = match self.line(deadline, LONGEST_GREETING) {
                Ok(line) => line,
                Err(Silence::Timeout) => return Err(silent(path, patience)),
                Err(Silence::Closed(start) | Silence::TooLong(start)) => {
                    return Err(unknown(&start))
                }
                Err(Silence::Io(error)) => {
                    return Err(Error::io(format!("read from {}", path.display()))(error))
                }
            };
            let said: Value = serde_json::from_slice(&line).map_err(|_| unknown(&line))?;
            if said["QMP"].is_object() {
                return Ok(Peer::Qmp);
            }
            if said["ready"].is_object() {
                return match said["ready"]["version"].as_u64() {
                    Some(version) if version == u64::from(VERSION) => Ok(Peer::Holder),
                    version => Err(Error::Input(format!(
                        "the guest at {} is held by a folioscope whose session has version {}, and this one has {VERSION}: use the command that boots it",
                        path.display(),
                        version.map_or("unknown".into(), |version| version.to_string())
                    ))),
                };
            }
            if let Some(why) = said["error"]["message"].as_str() {
                return Err(Error::Input(why.to_owned()));
            }
            let before = ["event", "return", "error"];
            if !before.iter().any(|key| said.get(key).is_some()) {
                return Err(unknown(&line));
            }
            // Lines that come without end are never waited for.
            if Instant::now() >= deadline.at {
                return Err(silent(path, patience));
            }
        }
    }

    /// Returns the next line, without its end.
    fn line(&mut self, deadline: Deadline, most: usize) -> Result<Vec<u8>, Silence> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.buffer[searched..]
                .iter()
                .position(|&byte| byte == b'\n')
            {
                let mut line: Vec<u8> = self.buffer.drain(..=searched + end).collect();
                line.pop();
                return Ok(line);
            }
            searched = self.buffer.len();
            if searched > most {
                return Err(Silence::TooLong(std::mem::take(&mut self.buffer)));
            }
            if Instant::now() >= deadline.at {
                return Err(Silence::Timeout);
            }
            match self.stream.fill(&mut self.buffer, deadline.at) {
                Ok(0) => return Err(Silence::Closed(std::mem::take(&mut self.buffer))),
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(Silence::Timeout)
                }
                Err(error) => return Err(Silence::Io(error)),
            }
        }
    }
}

fn silent(path: &Path, waited: Duration) -> Error {
    Error::Input(format!(
        "nobody greeted at {} within {waited:?}: QEMU serves one client of a QMP socket at a time, and another one (libvirt, a script) may hold this one; give QEMU a second one with -qmp unix:PATH,server=on,wait=off, and check that it is a QMP socket, or that of a `folioscope boot` that runs and is not stopped",
        path.display()
    ))
}

/// Returns the reason why there is no connection, and what to do.
fn unreachable(path: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        let (place, owner) = in_the_way(path);
        let own = rustix::process::geteuid().as_raw();
        return Error::Input(format!(
            "{} may not be connected to: {} belongs to user {owner}, and this is user {own}; a guest and its sockets are its user's alone: run this command as that user, or as root",
            path.display(),
            place.display()
        ));
    }
    Error::Input(format!(
        "cannot connect to {}: {error} (is the guest still running?); give the socket that `folioscope boot` prints, or that of a QEMU with -qmp unix:PATH,server=on,wait=off",
        path.display()
    ))
}

/// Returns the last part of a path that can be examined, and its owner: it denies access to others.
fn in_the_way(path: &Path) -> (PathBuf, u32) {
    let mut parts = path.ancestors();
    parts
        .find_map(|part| {
            let part = if part.as_os_str().is_empty() {
                Path::new(".")
            } else {
                part
            };
            let about = std::fs::metadata(part).ok()?;
            Some((part.to_owned(), about.uid()))
        })
        .unwrap_or_else(|| (path.to_owned(), 0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// Patience with a server whose greeting decides the test: it always arrives, however slow the machine is.
    const LONG: Duration = Duration::from_secs(600);
    /// Patience with a server whose greeting decides nothing.
    const SOON: Duration = Duration::from_millis(200);

    /// Returns the peer found at a server that greets its one client with `greeting`, without end where `again` is set.
    ///
    /// The server stays until the client leaves, so that a client without patience would never return.
    fn found(greeting: &'static [u8], again: bool, patience: Duration) -> Result<Peer, String> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let listener = private::listen(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(greeting).is_ok() && again {}
            // Silent until the client goes.
            let _ = stream.read(&mut [0]);
        });
        let peer = Connection::new(&path, patience).map(|(_, peer)| peer);
        server.join().unwrap();
        peer.map_err(|error| error.to_string())
    }

    #[test]
    fn the_greeting_says_who_it_is() {
        let qmp = b"{\"event\": \"STOP\"}\n{\"error\": {\"class\": \"x\", \"desc\": \"y\"}, \"id\": 1}\r\n{\"QMP\": {}}\r\n";
        assert_eq!(found(qmp, false, LONG), Ok(Peer::Qmp));
        assert_eq!(
            found(b"{\"ready\": {\"version\": 1}}\n", false, LONG),
            Ok(Peer::Holder)
        );
        let other = found(b"{\"ready\": {\"version\": 2}}\n", false, LONG).unwrap_err();
        assert!(
            other.contains("has version 2, and this one has 1"),
            "{other}"
        );
        let full = b"{\"error\": {\"kind\": \"busy\", \"message\": \"no room\"}}\n";
        assert_eq!(found(full, false, LONG).unwrap_err(), "no room");
    }

    #[test]
    fn what_is_neither_is_said_to_be_neither() {
        for (garbage, again) in [
            (&b"SSH-2.0-OpenSSH\n"[..], false),
            (b"\x1b[31m\xff\n", false),
            (b"7\n", false),
            (b"{\"ready\": 1}\n", false),
            (b"\n", true),
            (b"0123456789", true),
        ] {
            let said = found(garbage, again, LONG).unwrap_err();
            assert!(
                said.contains("is no QMP socket and no control socket"),
                "{said}"
            );
            assert!(!said.contains('\x1b') && said.len() < 800, "{said}");
        }
    }

    #[test]
    fn a_server_that_does_not_greet_is_waited_for_so_long() {
        for (silent, again) in [
            (&b""[..], false),
            (b"{\"QMP\": {", false),
            (b"{\"event\": \"STOP\"}\n", true),
        ] {
            let said = found(silent, again, SOON).unwrap_err();
            assert!(said.contains("nobody greeted"), "{said}");
        }
    }
}
