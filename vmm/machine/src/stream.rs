// SPDX-License-Identifier: GPL-2.0-only
//! A socket to a guest or to QEMU. Every wait on it is bounded.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::ioctl::{ioctl, Getter, Opcode};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// Our end of a socket pair; every wait has a deadline.
#[derive(Debug)]
pub struct Stream {
    socket: UnixStream,
}

impl Stream {
    /// Creates a connected pair: our end, and the one that QEMU inherits. Both close on exec.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self::new(ours)?, theirs.into()))
    }

    /// Wraps one end of a connection.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// Appends available bytes to `buffer`, and waits for the first byte until `deadline`. The error is of kind
    /// `TimedOut` if none arrived. 0 is the end of the stream.
    pub fn fill(&mut self, buffer: &mut Vec<u8>, deadline: Instant) -> io::Result<usize> {
        let mut chunk = [0; 64 * 1024];
        loop {
            match self.socket.read(&mut chunk) {
                Ok(count) => {
                    buffer.extend_from_slice(&chunk[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN, deadline)?;
                }
                // QEMU died with unread bytes of ours.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(0),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes all of `data` until `deadline`.
    pub fn write_all(&mut self, mut data: &[u8], deadline: Instant) -> io::Result<()> {
        while !data.is_empty() {
            match self.socket.write(data) {
                Ok(count) => data = &data[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT, deadline)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `data`, a short text, and hands over a copy of `fd` with it (`SCM_RIGHTS`).
    pub fn write_with(&mut self, data: &[u8], fd: &impl AsFd, deadline: Instant) -> io::Result<()> {
        self.wait(PollFlags::OUT, deadline)?;
        let fds = [fd.as_fd()];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let pushed = control.push(SendAncillaryMessage::ScmRights(&fds));
        assert!(pushed, "there is room for one descriptor");
        let data_of = [IoSlice::new(data)];
        let sent = sendmsg(&self.socket, &data_of, &mut control, SendFlags::NOSIGNAL)?;
        self.write_all(&data[sent..], deadline)
    }

    /// Returns the number of sent bytes that the other end has not taken yet.
    pub fn untaken(&self) -> io::Result<usize> {
        // SAFETY: SIOCOUTQ (which is TIOCOUTQ) writes one int.
        let count = unsafe {
            ioctl(
                &self.socket,
                Getter::<{ libc::TIOCOUTQ as Opcode }, libc::c_int>::new(),
            )
        };
        Ok(count? as usize)
    }

    fn wait(&self, events: PollFlags, deadline: Instant) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.socket, events)], deadline)? {
            true => Ok(()),
            false => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until one of `fds` is ready or `deadline` has passed; returns whether one is ready.
pub fn poll(fds: &mut [PollFd<'_>], deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // A time beyond the kernel's range is unlimited.
        let left = Timespec::try_from(left).ok();
        match rustix::event::poll(fds, left.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A timeout and its start, for callers that report how long they waited.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// When.
    pub at: Instant,
    /// The whole time, from the start.
    pub timeout: Duration,
}

impl Deadline {
    /// Starts now with this timeout.
    pub fn after(timeout: Duration) -> Self {
        // A year stands for "for ever": an Instant cannot hold every Duration.
        let timeout = timeout.min(Duration::from_secs(365 * 24 * 3600));
        Self {
            at: Instant::now() + timeout,
            timeout,
        }
    }
}
