//! A socket to a guest, or to QEMU, on which nothing waits for ever.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Our end of a socket pair; every wait has a deadline.
#[derive(Debug)]
pub struct Stream {
    socket: UnixStream,
}

impl Stream {
    /// A connected pair: our end, and the one that QEMU inherits. Both close on exec.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self::new(ours)?, theirs.into()))
    }

    /// One end of a connection, whoever has the other.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// Appends what can be read to `buffer`, waiting for the first byte until `deadline`; an
    /// error of kind `TimedOut` where none came. 0 is the end of the stream.
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
                    self.wait(libc::POLLIN, deadline)?;
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
                    self.wait(libc::POLLOUT, deadline)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `data`, a short text, and hands over a copy of `fd` with it (`SCM_RIGHTS`).
    pub fn write_with(&mut self, data: &[u8], fd: &impl AsFd, deadline: Instant) -> io::Result<()> {
        self.wait(libc::POLLOUT, deadline)?;
        let number = fd.as_fd().as_raw_fd();
        let mut piece = libc::iovec {
            iov_base: data.as_ptr().cast_mut().cast(),
            iov_len: data.len(),
        };
        // Room for one header and one descriptor, aligned as a header has to be.
        let mut control = [0u64; 8];
        // SAFETY: all zero is a header of nothing. What it is made to point to outlives the call,
        // `control` has room for CMSG_SPACE of one descriptor, and `sendmsg` writes to none of it.
        let sent = unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = &mut piece;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(first)
                .cast::<RawFd>()
                .write_unaligned(number);
            libc::sendmsg(self.socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL)
        };
        match usize::try_from(sent) {
            Ok(sent) => self.write_all(&data[sent..], deadline),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// How many bytes of ours the other end has not taken yet.
    pub fn untaken(&self) -> io::Result<usize> {
        let mut count: libc::c_int = 0;
        // SAFETY: SIOCOUTQ (which is TIOCOUTQ) writes one int, and `count` is one.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &mut count) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(count as usize)
    }

    fn wait(&self, events: i16, deadline: Instant) -> io::Result<()> {
        let mut one = [libc::pollfd {
            fd: self.socket.as_raw_fd(),
            events,
            revents: 0,
        }];
        match poll(&mut one, deadline)? {
            true => Ok(()),
            false => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Waits until one of `fds` is ready or `deadline` has passed; says which of the two.
pub fn poll(fds: &mut [libc::pollfd], deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up: a wait of 0 ms that comes too early would spin.
        let left = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        // SAFETY: the pointer and the count are those of one slice of pollfd.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, left) };
        if ready >= 0 {
            return Ok(ready > 0);
        }
        let error = io::Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Now and a timeout, for those who report how long they waited.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// When.
    pub at: Instant,
    /// How long it was from the start.
    pub timeout: Duration,
}

impl Deadline {
    /// That long from now.
    pub fn after(timeout: Duration) -> Self {
        // A year stands for "for ever": an Instant cannot hold everything a Duration can.
        let timeout = timeout.min(Duration::from_secs(365 * 24 * 3600));
        Self {
            at: Instant::now() + timeout,
            timeout,
        }
    }
}
