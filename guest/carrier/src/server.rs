//! The loop: frames from the port to programs, and back.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;

use protocol::carrier::{encode, read_credit, Decoder, Ended, Frame, Kind, Start, VERSION};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::program::{self, tell_end, Program};
use crate::sys::{self, Moved};
use crate::{facts, log};

/// Programs' output is left in their pipes while this many bytes wait for the port.
const OUTBOX: usize = 1 << 20;

/// Maximum time between two checks.
const LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Serves until the host is gone.
pub fn serve(port: File) -> Result<(), String> {
    let signals = sys::child_signals()?;
    let mut server = Server::default();
    let hello = serde_json::to_vec(&facts::hello()).expect("plain data");
    encode(&mut server.out, Kind::Hello, 0, &hello);
    let mut decoder = Decoder::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let writing = if server.out.is_empty() {
            PollFlags::empty()
        } else {
            PollFlags::OUT
        };
        let mut waits = vec![
            PollFd::new(&port, PollFlags::IN | writing),
            PollFd::new(&signals, PollFlags::IN),
        ];
        let room = server.out.len() < OUTBOX;
        waits.extend(
            server
                .programs
                .values()
                .flat_map(|program| program.waits(room)),
        );
        // What is ready is tried, so the result does not matter.
        let _ = poll(&mut waits, Some(&LOOK));

        match sys::read(port.as_fd(), &mut chunk) {
            Moved::Bytes(0) | Moved::Broken => return Err("the host has closed the port".into()),
            Moved::Bytes(count) => decoder.push(&chunk[..count]),
            Moved::Later => {}
        }
        while let Some(frame) = decoder.next_frame().map_err(|error| error.to_string())? {
            server.take(frame);
        }
        // The details of the signals are not of interest, only that there was one.
        while matches!(sys::read(signals.as_fd(), &mut chunk), Moved::Bytes(1..)) {}
        let any = server.reap();
        server.pump();
        if any {
            program::remove_groups(|stream| server.programs.contains_key(&stream));
        }
        if !server.out.is_empty() {
            match sys::write(port.as_fd(), &server.out) {
                Moved::Bytes(count) => drop(server.out.drain(..count)),
                Moved::Later => {}
                Moved::Broken => return Err("the host has closed the port".into()),
            }
        }
    }
}

#[derive(Debug, Default)]
struct Server {
    programs: BTreeMap<u32, Program>,
    /// Bytes to write to the port.
    out: Vec<u8>,
}

impl Server {
    fn take(&mut self, frame: Frame) {
        let stream = frame.stream;
        if frame.kind == Kind::Start {
            return self.start(stream, &frame.payload);
        }
        // A program that has just ended may still get frames.
        let Some(program) = self.programs.get_mut(&stream) else {
            return;
        };
        let number = read_credit(&frame.payload).unwrap_or(0);
        match frame.kind {
            Kind::Stdin => {
                if !program.input(&frame.payload, &mut self.out) {
                    log(&format!(
                        "stream {stream} sent more input than it had credit for, and is ended"
                    ));
                    self.programs.remove(&stream);
                    let why = "it was sent more input than there was credit for".into();
                    tell_end(&mut self.out, stream, &Ended::NotStarted(why));
                }
            }
            Kind::StdinEnd => program.end_input(&mut self.out),
            Kind::Signal => program.signal(number as i32),
            Kind::StdoutCredit => program.stdout.add_credit(number),
            Kind::StderrCredit => program.stderr.add_credit(number),
            Kind::StdoutShut => program.stdout.shut(),
            Kind::StderrShut => program.stderr.shut(),
            Kind::Close => drop(self.programs.remove(&stream)),
            Kind::Start
            | Kind::Hello
            | Kind::StdinCredit
            | Kind::Stdout
            | Kind::Stderr
            | Kind::Exit => {}
        }
    }

    fn start(&mut self, stream: u32, payload: &[u8]) {
        let started = serde_json::from_slice::<Start>(payload)
            .map_err(|error| format!("the carrier cannot read what to start ({error}); build both sides from the same source"))
            .and_then(|start| match start.version {
                VERSION => Program::start(stream, &start),
                other => Err(format!(
                    "expected a client of version {VERSION} of the carrier's protocol and found version {other}; start the carrier again, from the same build"
                )),
            });
        match started {
            Ok(program) => drop(self.programs.insert(stream, program)),
            Err(why) => tell_end(&mut self.out, stream, &Ended::NotStarted(why)),
        }
    }

    /// Records the end of programs; orphans that init inherited are reaped as well. Returns whether any has ended.
    fn reap(&mut self) -> bool {
        let mut any = false;
        while let Some(pid) = sys::ended_child() {
            any = true;
            if let Some(program) = self
                .programs
                .values_mut()
                .find(|program| program.pid() == pid)
            {
                // Before it is reaped, so that the number is still its own.
                program.signal(libc::SIGKILL);
                program.ended(sys::reap(pid));
            } else {
                sys::reap(pid);
            }
        }
        any
    }

    /// Moves all bytes that can be moved, and ends the streams that are complete.
    fn pump(&mut self) {
        let out = &mut self.out;
        self.programs.retain(|_, program| {
            program.feed(out);
            if out.len() < OUTBOX {
                program.drain(out);
            }
            !program.finished(out)
        });
    }
}
