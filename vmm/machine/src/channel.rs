// SPDX-License-Identifier: GPL-2.0-only
//! The channel to the agent in the guest: lines of bytes, whose meaning is the caller's.
//!
//! Not every kernel has virtio-console, so the agent finds two ports, one of virtio-serial and a
//! second UART. The port on which the first whole line comes is the channel; the other is closed.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::error::{excerpt, ChannelError};
use crate::log::Log;
use crate::stream::{poll, Deadline, Stream};

/// The longest line that is taken for one, in bytes.
const MOST_LINE: usize = 16 << 20;

/// The host's end of the channel.
#[derive(Debug)]
pub struct Channel {
    ports: Vec<Port>,
    /// True if the one port that is left has been chosen.
    chosen: bool,
    /// All lines, each with its direction.
    transcript: Log,
}

#[derive(Debug)]
struct Port {
    stream: Stream,
    buffer: Vec<u8>,
    /// Number of bytes of the buffer that are known to hold no line end.
    searched: usize,
    closed: bool,
}

/// Result of a wait on the channel.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A line, without its end.
    Line(Vec<u8>),
    /// The other watched descriptor is readable.
    Other,
    /// The deadline passed.
    Nothing,
}

impl Channel {
    /// Creates a channel on the first of `streams` to send bytes.
    pub fn new(streams: Vec<Stream>, transcript: File) -> Self {
        let ports = streams
            .into_iter()
            .map(|stream| Port {
                stream,
                buffer: Vec::new(),
                searched: 0,
                closed: false,
            })
            .collect();
        Self {
            ports,
            chosen: false,
            transcript: Log::new(transcript),
        }
    }

    /// Sends `bytes`.
    pub fn send(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), ChannelError> {
        if !self.chosen {
            return Err(ChannelError::NotOpen);
        }
        self.log(b"> ", bytes);
        let deadline = Deadline::after(timeout).at;
        match self.ports[0].stream.write_all(bytes, deadline) {
            Ok(()) => Ok(()),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::TimedOut => ChannelError::NotTaken(timeout),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ChannelError::Closed,
                _ => ChannelError::Io(error),
            }),
        }
    }

    /// Waits for a line until `deadline`, or until `other` can be read.
    pub fn hear(
        &mut self,
        other: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<Heard, ChannelError> {
        loop {
            for index in 0..self.ports.len() {
                if let Some(line) = self.ports[index].line()? {
                    if !self.chosen {
                        let port = self.ports.swap_remove(index);
                        self.ports = vec![port];
                        self.chosen = true;
                    }
                    self.log(b"< ", &line);
                    return Ok(Heard::Line(line));
                }
            }
            if self.ports.iter().all(|port| port.closed) {
                return Err(ChannelError::Closed);
            }
            // A closed port would be ready for ever.
            let mut fds: Vec<PollFd> = self
                .ports
                .iter()
                .filter(|port| !port.closed)
                .map(|port| PollFd::new(&port.stream, PollFlags::IN))
                .chain(other.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN)))
                .collect();
            if !poll(&mut fds, deadline).map_err(ChannelError::Io)? {
                return Ok(Heard::Nothing);
            }
            let ready: Vec<bool> = fds
                .iter()
                .map(|polled| !polled.revents().is_empty())
                .collect();
            let open = self.ports.iter_mut().filter(|port| !port.closed);
            let mut any = false;
            for (port, _) in open.zip(&ready).filter(|(_, ready)| **ready) {
                port.fill()?;
                any = true;
            }
            if !any {
                return Ok(Heard::Other);
            }
        }
    }

    /// Returns the part of a line that has not ended yet.
    pub fn partial(&self) -> String {
        self.ports
            .iter()
            .map(|port| excerpt(&port.buffer))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }

    /// Waits a moment until QEMU has taken the sent bytes, so that it writes none of them into the guest's memory while
    /// that is being read. A guest that takes no bytes gives QEMU no place to write to, so bytes may be left.
    pub fn settle(&self) {
        let deadline = Instant::now() + Duration::from_millis(5);
        let settled = |port: &Port| port.stream.untaken().map_or(true, |bytes| bytes == 0);
        while !self.ports.iter().all(settled) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// A transcript that cannot be written (no space) does not stop the work.
    fn log(&mut self, direction: &[u8], bytes: &[u8]) {
        let end: &[u8] = if bytes.ends_with(b"\n") { b"" } else { b"\n" };
        self.transcript.write(&[direction, bytes, end].concat());
    }

    /// Returns the reason why the transcript is not whole, if it is not (no space, for example).
    pub fn log_error(&self) -> Option<&str> {
        self.transcript.error()
    }
}

impl Port {
    /// Takes the first whole line out of the buffer.
    fn line(&mut self) -> Result<Option<Vec<u8>>, ChannelError> {
        let rest = &self.buffer[self.searched..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            self.searched = self.buffer.len();
            if self.buffer.len() > MOST_LINE {
                let start = excerpt(&self.buffer[..80]);
                return Err(ChannelError::TooLong(self.buffer.len(), start));
            }
            return Ok(None);
        };
        let mut line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
        self.searched = 0;
        line.pop();
        // A terminal that is not raw yet turns
        // into \r\n.
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }

    fn fill(&mut self) -> Result<(), ChannelError> {
        match self.stream.fill(&mut self.buffer, Instant::now()) {
            Ok(0) => self.closed = true,
            Ok(_) => (),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => (),
            Err(error) => return Err(ChannelError::Io(error)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn channel() -> (Channel, UnixStream, UnixStream) {
        let (virtio, a) = UnixStream::pair().unwrap();
        let (uart, b) = UnixStream::pair().unwrap();
        let streams = vec![Stream::new(virtio).unwrap(), Stream::new(uart).unwrap()];
        let null = File::options().write(true).open("/dev/null").unwrap();
        (Channel::new(streams, null), a, b)
    }

    fn hear(channel: &mut Channel) -> Result<Heard, ChannelError> {
        channel.hear(None, Instant::now() + LONG)
    }

    fn line(text: &str) -> Heard {
        Heard::Line(text.into())
    }

    #[test]
    fn the_stream_that_speaks_first_is_the_channel() {
        for second in [false, true] {
            let (mut channel, mut a, mut b) = channel();
            assert!(matches!(
                channel.send(b"x\n", LONG),
                Err(ChannelError::NotOpen)
            ));
            let (speaker, other) = if second {
                (&mut b, &mut a)
            } else {
                (&mut a, &mut b)
            };
            speaker.write_all(b"hel").unwrap();
            let soon = Instant::now() + Duration::from_millis(20);
            assert_eq!(channel.hear(None, soon).unwrap(), Heard::Nothing);
            assert_eq!(channel.partial(), "hel");
            speaker.write_all(b"lo\r\nand more\n").unwrap();
            assert_eq!(hear(&mut channel).unwrap(), line("hello"));
            assert_eq!(hear(&mut channel).unwrap(), line("and more"));
            channel.send(b"answer\n", LONG).unwrap();
            let mut answer = [0; 7];
            speaker.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"answer\n");
            assert_eq!(
                other.read(&mut answer).unwrap(),
                0,
                "the other port is closed"
            );
        }
    }

    #[test]
    fn another_descriptor_wakes_the_wait() {
        let (mut channel, _a, _b) = channel();
        let (reader, mut writer) = UnixStream::pair().unwrap();
        writer.write_all(b"!").unwrap();
        let deadline = Instant::now() + LONG;
        assert_eq!(
            channel.hear(Some(reader.as_fd()), deadline).unwrap(),
            Heard::Other
        );
    }

    #[test]
    fn one_closed_stream_is_not_the_end() {
        let (mut channel, a, mut b) = channel();
        drop(a);
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(channel.hear(None, soon).unwrap(), Heard::Nothing);
        b.write_all(b"late\n").unwrap();
        drop(b);
        assert_eq!(hear(&mut channel).unwrap(), line("late"));
        assert!(matches!(hear(&mut channel), Err(ChannelError::Closed)));
    }

    #[test]
    fn garbage_without_end_is_refused() {
        let (mut channel, mut a, _b) = channel();
        let writer = std::thread::spawn(move || {
            // Fails once the channel is gone.
            while a.write_all(&[0xff; 1 << 16]).is_ok() {}
        });
        assert!(matches!(
            hear(&mut channel),
            Err(ChannelError::TooLong(_, _))
        ));
        drop(channel);
        writer.join().unwrap();
    }

    #[test]
    fn a_guest_that_takes_nothing_is_noticed() {
        let (mut channel, mut a, _b) = channel();
        a.write_all(b"hello\n").unwrap();
        hear(&mut channel).unwrap();
        let error = channel.send(&vec![b'x'; 4 << 20], Duration::from_millis(20));
        assert!(matches!(error, Err(ChannelError::NotTaken(_))));
    }

    #[test]
    fn a_transcript_that_has_no_room_stops_nothing_and_is_known() {
        let (ours, mut guest) = UnixStream::pair().unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut channel = Channel::new(vec![Stream::new(ours).unwrap()], full);
        assert_eq!(channel.log_error(), None);
        guest.write_all(b"hello\n").unwrap();
        assert_eq!(hear(&mut channel).unwrap(), line("hello"));
        assert!(channel.log_error().unwrap().contains("No space left"));
    }
}
