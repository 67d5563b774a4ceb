// SPDX-License-Identifier: GPL-2.0-only
//! The gdb stub of an external QEMU: the only access to the system registers.
//!
//! QEMU has one stub. If it has none yet, we create one for the time of our reads, on a socket pair whose other end is
//! handed over by the monitor. It has no name, and closes with us however we end. A stub of the user's own (`-s`) is
//! used in place, if no debugger is connected to it.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{json, Value};

use super::AttachError;
use crate::private;
use crate::qemu::COMMAND;
use crate::qmp::Qmp;
use crate::registers::{RegisterReader, FIRST};
use crate::rsp::Rsp;
use crate::stream::Stream;
use crate::{GdbError, QmpError};

/// Maximum time for a socket to accept a connection.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// The names of our socket in QEMU: of the descriptor, and of the character device.
const OURS: &str = "folioscope-stub";
/// The name that QEMU gives to the device that `-s`, `-gdb` or `gdbserver` makes.
const THEIRS: &str = "gdb";

/// The stub, connected to.
#[derive(Debug)]
pub(super) struct Borrowed {
    pub(super) reader: RegisterReader,
    /// True if QEMU had none before.
    ours: bool,
    /// Its address, for people.
    pub(super) place: String,
}

impl Borrowed {
    /// Connects to the stub of a machine with `cpus` CPUs. That stops the guest, if it is not stopped already.
    pub(super) fn new(qmp: &mut Qmp, pid: i32, cpus: usize) -> Result<Self, AttachError> {
        let theirs = theirs(qmp, pid)?;
        let ours = !matches!(theirs, Theirs::At(_));
        let (stream, place) = match theirs {
            Theirs::At(place) => (connect(&place)?, place),
            Theirs::None => (make(qmp)?, "none of its own".into()),
            Theirs::LeftByUs => (
                make(qmp)?,
                "none of its own, but one of ours that was killed: if the guest stands still since then, \
                 QEMU's command `cont` lets it go on"
                    .into(),
            ),
        };
        match RegisterReader::attach(Rsp::new(stream), cpus, COMMAND) {
            Ok(reader) => Ok(Self {
                reader,
                ours,
                place,
            }),
            Err(error) => {
                if ours {
                    // The first error is the one to report.
                    let _ = remove(qmp);
                }
                Err(match error {
                    GdbError::Timeout { request, .. } if !ours && request == FIRST => {
                        AttachError::Debugger(place)
                    }
                    error => AttachError::Registers(error),
                })
            }
        }
    }

    /// Leaves QEMU as it was.
    pub(super) fn give_back(self, qmp: &mut Qmp) -> Result<(), AttachError> {
        let ours = self.ours;
        // The connection closes first, so that QEMU has nothing to send on it.
        drop(self.reader);
        if ours {
            remove(qmp)?;
        }
        Ok(())
    }
}

/// The stub that QEMU has already.
enum Theirs {
    /// No stub.
    None,
    /// A stub of ours without a client, which has been removed.
    LeftByUs,
    /// The user's own, which listens here.
    At(String),
}

/// Returns the stub that QEMU has.
fn theirs(qmp: &mut Qmp, pid: i32) -> Result<Theirs, AttachError> {
    let devices = qmp.execute("query-chardev", json!({}), COMMAND)?;
    let devices: Vec<&Value> = devices.as_array().into_iter().flatten().collect();
    let place = |label: &str| {
        let device = devices.iter().find(|device| device["label"] == label)?;
        device["filename"].as_str()
    };
    if place(OURS).is_some() {
        // Of one of us that was killed: its end of the socket is closed. Or another one is at it.
        let connected = place(OURS).is_some_and(|place| !place.starts_with("disconnected:"));
        if connected {
            return Err(AttachError::Debugger("another folioscope attach".into()));
        }
        remove(qmp)?;
        return Ok(Theirs::LeftByUs);
    }
    // -gdb chardev:NAME gives no hint but the command line.
    let named = named(pid);
    let Some(place) = place(named.as_deref().unwrap_or(THEIRS)) else {
        return Ok(Theirs::None);
    };
    match place.strip_prefix("disconnected:") {
        Some(free) => Ok(Theirs::At(free.split(',').next().unwrap_or(free).into())),
        None => Err(AttachError::Debugger(place.into())),
    }
}

/// Returns the device that QEMU's command line gives to the stub by name.
fn named(pid: i32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line);
    let mut words = line.split('\0');
    words.find(|word| matches!(*word, "-gdb" | "--gdb"))?;
    words.next()?.strip_prefix("chardev:").map(String::from)
}

/// Connects to `tcp:0.0.0.0:1234` or `unix:/a/path`.
fn connect(place: &str) -> Result<Stream, AttachError> {
    let stream = match (place.strip_prefix("tcp:"), place.strip_prefix("unix:")) {
        (Some(address), _) => tcp(address).map(UnixStream::from),
        (_, Some(path)) => private::connect(Path::new(path), CONNECT),
        _ => Err(std::io::ErrorKind::Unsupported.into()),
    };
    stream
        .and_then(Stream::new)
        .map_err(|source| AttachError::Stub {
            place: place.into(),
            why: source.to_string(),
        })
}

/// Connects to a TCP address. A connected socket of either kind can be a [`Stream`].
fn tcp(address: &str) -> std::io::Result<OwnedFd> {
    let (host, port) = address
        .rsplit_once(':')
        .ok_or(std::io::ErrorKind::InvalidInput)?;
    let port: u16 = port.parse().map_err(std::io::Error::other)?;
    let host = match host.trim_matches(['[', ']']) {
        "" | "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        host => host,
    };
    let mut last = std::io::ErrorKind::InvalidInput.into();
    let stream = (host, port).to_socket_addrs()?.find_map(|address| {
        let tried = TcpStream::connect_timeout(&address, CONNECT);
        tried.map_err(|error| last = error).ok()
    });
    let stream = stream.ok_or(last)?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

/// Creates a stub, and returns our end of its connection.
fn make(qmp: &mut Qmp) -> Result<Stream, AttachError> {
    let (stream, other) = Stream::pair().map_err(|source| AttachError::System {
        what: "make a socket pair",
        source,
    })?;
    qmp.hand_over(OURS, other.as_fd(), COMMAND)?;
    drop(other);
    let address = json!({"type": "fd", "data": {"str": OURS}});
    let backend = json!({"type": "socket", "data": {"addr": address, "server": false}});
    let device = json!({"id": OURS, "backend": backend});
    if let Err(error) = qmp.execute("chardev-add", device, COMMAND) {
        let _ = qmp.execute("closefd", json!({"fdname": OURS}), COMMAND);
        return Err(error.into());
    }
    let line = format!("gdbserver chardev:{OURS}");
    let answer = qmp.human(&line, None, COMMAND)?;
    if !answer.contains("Waiting for gdb connection") {
        let _ = qmp.execute("chardev-remove", json!({"id": OURS}), COMMAND);
        let reason = answer.trim().into();
        let command = line;
        return Err(QmpError::Refused { command, reason }.into());
    }
    Ok(stream)
}

/// Removes our stub, and its device with it.
fn remove(qmp: &mut Qmp) -> Result<(), QmpError> {
    qmp.human("gdbserver none", None, COMMAND)?;
    // The stub takes its device along; where it did not, it would be in the way of the next one.
    let _ = qmp.execute("chardev-remove", json!({"id": OURS}), COMMAND);
    Ok(())
}
