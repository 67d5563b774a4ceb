// SPDX-License-Identifier: GPL-2.0-only
//! The host's end of a device's byte stream, which never makes the guest wait.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// A stream to the host, with the bytes that the host has not taken yet.
#[derive(Debug)]
pub(super) struct Host {
    stream: UnixStream,
    /// Bytes that the host has not taken; at most `limit`.
    waiting: VecDeque<u8>,
    limit: usize,
    /// True if the host took none of it at the last attempt.
    full: bool,
    /// True if the host takes no more bytes at all.
    deaf: bool,
}

/// Result of reading the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadResult {
    /// Number of bytes read.
    Bytes(usize),
    /// No bytes now.
    Nothing,
    /// The host has closed its end: no more bytes will come.
    End,
}

impl Host {
    /// Creates a stream for which at most `limit` bytes are kept.
    pub(super) fn new(stream: UnixStream, limit: usize) -> Self {
        stream
            .set_nonblocking(true)
            .expect("an open socket can be made non-blocking");
        Self {
            stream,
            waiting: VecDeque::new(),
            limit,
            full: false,
            deaf: false,
        }
    }

    /// Returns whether bytes wait for the host.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns how many do.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether bytes wait because the host did not take them.
    pub(super) fn is_full(&self) -> bool {
        self.full && self.is_waiting()
    }

    /// Returns how many more bytes can be kept.
    pub(super) fn room(&self) -> usize {
        self.limit - self.waiting.len()
    }

    /// Keeps as many of `bytes` as fit, and returns their number. If the host takes no more bytes at all, they are
    /// dropped, and all count as kept.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> usize {
        if self.deaf {
            return bytes.len();
        }
        let kept = bytes.len().min(self.room());
        self.waiting.extend(&bytes[..kept]);
        kept
    }

    /// Gives the host as much as it takes now.
    pub(super) fn flush(&mut self) {
        self.full = false;
        while !self.waiting.is_empty() {
            match self.stream.write(self.waiting.as_slices().0) {
                Ok(0) => return,
                Ok(taken) => drop(self.waiting.drain(..taken)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.full = true;
                    return;
                }
                Err(_) => {
                    self.deaf = true;
                    self.waiting.clear();
                }
            }
        }
    }

    /// Reads bytes that the host has sent.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> ReadResult {
        loop {
            return match self.stream.read(buffer) {
                Ok(0) => ReadResult::End,
                Ok(count) => ReadResult::Bytes(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => ReadResult::Nothing,
                Err(_) => ReadResult::End,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(limit: usize) -> (Host, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Host::new(ours, limit), theirs)
    }

    #[test]
    fn what_has_no_room_is_not_kept() {
        let (mut host, mut theirs) = pair(1000);
        // First the socket takes some, then we keep some, and then there is an end.
        let mut kept = 0;
        loop {
            let count = host.keep(&[b'x'; 300]);
            host.flush();
            kept += count;
            if count < 300 {
                break;
            }
        }
        assert_eq!(host.room(), 0);
        assert_eq!(host.keep(b"y"), 0);
        assert!(host.is_waiting());
        let mut taken = 0;
        let mut buffer = [0; 4096];
        while taken < kept {
            taken += theirs.read(&mut buffer).unwrap();
            host.flush();
        }
        assert_eq!((taken, host.room(), host.is_waiting()), (kept, 1000, false));
    }

    #[test]
    fn a_host_that_is_gone_takes_everything_and_says_nothing() {
        let (mut host, theirs) = pair(10);
        let mut buffer = [0; 4];
        assert_eq!(host.receive(&mut buffer), ReadResult::Nothing);
        (&theirs).write_all(b"abcdef").unwrap();
        drop(theirs);
        assert_eq!(host.receive(&mut buffer), ReadResult::Bytes(4));
        assert_eq!(host.receive(&mut buffer), ReadResult::Bytes(2));
        assert_eq!(host.receive(&mut buffer), ReadResult::End);
        for _ in 0..3 {
            assert_eq!(host.keep(b"0123456789"), 10);
            host.flush();
        }
        assert!(!host.is_waiting());
    }
}
