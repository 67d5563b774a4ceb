// SPDX-License-Identifier: GPL-2.0-only
//! Running one program in a carrier, through a connection to it.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{mpsc, Arc, Condvar, Mutex, MutexGuard, PoisonError};

use protocol::carrier::{
    credit, encode, read_credit, Decoder, Ended, Frame, Kind, Start, CHUNK, WINDOW,
};

use crate::CarrierError;

/// The standard streams of the program.
pub struct Streams {
    /// Its standard input.
    pub stdin: Box<dyn Read + Send>,
    /// Its standard output.
    pub stdout: Box<dyn Write + Send>,
    /// Its standard error.
    pub stderr: Box<dyn Write + Send>,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Streams")
    }
}

/// A program in the carrier, to which signals can be sent.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Mutex<UnixStream>>);

impl Handle {
    /// Sends the program a signal. Where it is gone nothing happens.
    pub fn signal(&self, number: i32) {
        self.send(Kind::Signal, &credit(number as u32));
    }

    /// Returns false if the carrier has ended, which the connection's reader notices too.
    fn send(&self, kind: Kind, payload: &[u8]) -> bool {
        let mut bytes = Vec::new();
        encode(&mut bytes, kind, 1, payload);
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        socket.write_all(&bytes).is_ok()
    }
}

/// Runs a program until it has ended and all that it wrote was passed on. `started` gets a handle to it.
///
/// The thread that reads the standard input may outlive this call, waiting for a byte that is no longer needed.
///
/// # Errors
/// If the program could not be started, or the carrier was lost.
pub fn run(
    connection: UnixStream,
    start: &Start,
    streams: Streams,
    started: impl FnOnce(Handle),
) -> Result<Ended, CarrierError> {
    let payload = serde_json::to_vec(start).expect("plain data");
    if payload.len() > Kind::Start.limit() {
        return Err(CarrierError::TooLong {
            most: Kind::Start.limit(),
            found: payload.len(),
        });
    }
    let mut reader = connection
        .try_clone()
        .map_err(CarrierError::system("copy a connection"))?;
    let handle = Handle(Arc::new(Mutex::new(connection)));
    handle.send(Kind::Start, &payload);
    started(handle.clone());
    let room = Arc::new(Room::default());
    std::thread::spawn({
        let (handle, room, mut stdin) = (handle.clone(), Arc::clone(&room), streams.stdin);
        move || feed(&mut stdin, &handle, &room)
    });
    let ended = std::thread::scope(|scope| {
        let writer = |mut out: Box<dyn Write + Send>, credits, shut| {
            let (send, receive) = mpsc::channel::<Vec<u8>>();
            let handle = &handle;
            scope.spawn(move || pass_on(&mut out, &receive, handle, credits, shut));
            send
        };
        // Dropped at the end of this closure, which ends the writers when they have written everything.
        let stdout = writer(streams.stdout, Kind::StdoutCredit, Kind::StdoutShut);
        let stderr = writer(streams.stderr, Kind::StderrCredit, Kind::StderrShut);
        listen(&mut reader, |frame| {
            match frame.kind {
                Kind::Stdout => drop(stdout.send(frame.payload)),
                Kind::Stderr => drop(stderr.send(frame.payload)),
                Kind::StdinCredit => room.add(read_credit(&frame.payload).unwrap_or(0)),
                _ => {}
            };
        })
    });
    room.close();
    let _ = reader.shutdown(Shutdown::Both);
    match ended? {
        Ended::NotStarted(why) => Err(CarrierError::NotStarted(why)),
        Ended::Lost(why) => Err(CarrierError::Lost(why)),
        ended => Ok(ended),
    }
}

/// Reads frames until the last.
fn listen(connection: &mut UnixStream, mut take: impl FnMut(Frame)) -> Result<Ended, CarrierError> {
    let mut decoder = Decoder::new();
    let mut chunk = vec![0; 64 << 10];
    let lost = |why: &dyn std::fmt::Display| CarrierError::Lost(why.to_string());
    loop {
        while let Some(frame) = decoder.next_frame().map_err(|error| lost(&error))? {
            if frame.kind == Kind::Exit {
                return serde_json::from_slice(&frame.payload).map_err(|error| lost(&error));
            }
            take(frame);
        }
        match connection.read(&mut chunk) {
            Ok(0) => return Err(lost(&"whoever served it has ended")),
            Ok(count) => decoder.push(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(lost(&error)),
        }
    }
}

/// Writes the program's output, and grants credit for more.
fn pass_on(
    out: &mut dyn Write,
    pieces: &mpsc::Receiver<Vec<u8>>,
    handle: &Handle,
    credits: Kind,
    shut: Kind,
) {
    let mut open = true;
    for piece in pieces {
        if open && out.write_all(&piece).and_then(|()| out.flush()).is_err() {
            // The program must get the same error that it would get here.
            open = false;
            handle.send(shut, &[]);
        }
        handle.send(credits, &credit(piece.len() as u32));
    }
}

/// Sends input as far as there is room for it.
fn feed(stdin: &mut dyn Read, handle: &Handle, room: &Room) {
    let mut chunk = vec![0; CHUNK];
    while let Some(most) = room.wait() {
        match stdin.read(&mut chunk[..most.min(CHUNK)]) {
            Ok(0) => break,
            Ok(count) => {
                room.take(count);
                if !handle.send(Kind::Stdin, &chunk[..count]) {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    handle.send(Kind::StdinEnd, &[]);
}

/// The room for input on the program's side, in bytes; `None` when it accepts no more.
#[derive(Debug)]
struct Room {
    bytes: Mutex<Option<u32>>,
    changed: Condvar,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            bytes: Mutex::new(Some(WINDOW)),
            changed: Condvar::new(),
        }
    }
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Option<u32>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Option<usize> {
        let full = |bytes: &mut Option<u32>| *bytes == Some(0);
        let waited = self.changed.wait_while(self.lock(), full);
        let bytes = *waited.unwrap_or_else(PoisonError::into_inner);
        bytes.map(|bytes| bytes as usize)
    }

    fn take(&self, count: usize) {
        let mut bytes = self.lock();
        *bytes = bytes.map(|bytes| bytes.saturating_sub(count as u32));
    }

    fn add(&self, count: u32) {
        let mut bytes = self.lock();
        *bytes = bytes.map(|bytes| bytes.saturating_add(count));
        self.changed.notify_all();
    }

    fn close(&self) {
        *self.lock() = None;
        self.changed.notify_all();
    }
}
