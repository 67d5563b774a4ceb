//! Frames on a byte channel: a header of fixed length, then the payload.

use std::fmt;

/// The bytes before a frame's payload: a mark, the kind, two zeroes, the stream and the payload's length, the
/// last two as 32 bits, little endian.
pub const HEADER: usize = 12;

/// First byte of every frame, so that anything else on the channel is noticed at once.
const MARK: u8 = 0xf0;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// From the carrier, on stream 0, once: it is ready ([`super::Hello`]).
    Hello = 1,
    /// To the carrier: a new stream, and the program to run ([`super::Start`]).
    Start = 2,
    /// To the carrier: bytes for the program's standard input.
    Stdin = 3,
    /// To the carrier: there is no more input.
    StdinEnd = 4,
    /// To the carrier: a signal for the program (its number, 32 bits); those of a terminal are for its process group.
    Signal = 5,
    /// To the carrier: room for more standard output (bytes, 32 bits).
    StdoutCredit = 6,
    /// To the carrier: room for more standard error (bytes, 32 bits).
    StderrCredit = 7,
    /// To the carrier: the standard output is no longer read.
    StdoutShut = 8,
    /// To the carrier: the standard error is no longer read.
    StderrShut = 9,
    /// To the carrier: the client has closed; kill what is left and drop the stream. There is no answer.
    Close = 10,
    /// From the carrier: room for more standard input (bytes, 32 bits).
    StdinCredit = 11,
    /// From the carrier: bytes of the program's standard output.
    Stdout = 12,
    /// From the carrier: bytes of the program's standard error.
    Stderr = 13,
    /// From the carrier: the stream's last frame ([`super::Ended`]).
    Exit = 14,
}

impl Kind {
    const ALL: [Self; 14] = [
        Self::Hello,
        Self::Start,
        Self::Stdin,
        Self::StdinEnd,
        Self::Signal,
        Self::StdoutCredit,
        Self::StderrCredit,
        Self::StdoutShut,
        Self::StderrShut,
        Self::Close,
        Self::StdinCredit,
        Self::Stdout,
        Self::Stderr,
        Self::Exit,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Returns the longest payload, in bytes.
    #[must_use]
    pub const fn limit(self) -> usize {
        match self {
            // As much as Linux takes for arguments and environment by default, and the JSON around it.
            Self::Start => 4 << 20,
            Self::Hello | Self::Exit => 16 << 10,
            Self::Stdin | Self::Stdout | Self::Stderr => super::CHUNK,
            Self::Signal | Self::StdinCredit | Self::StdoutCredit | Self::StderrCredit => 4,
            Self::StdinEnd | Self::StdoutShut | Self::StderrShut | Self::Close => 0,
        }
    }

    /// Returns whether it goes to the carrier; the others come from it.
    #[must_use]
    pub const fn to_carrier(self) -> bool {
        (self as u8) > (Self::Hello as u8) && (self as u8) < (Self::StdinCredit as u8)
    }
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: Kind,
    /// The stream that it belongs to; 0 is the carrier's own.
    pub stream: u32,
    /// Its content, of at most [`Kind::limit`] bytes.
    pub payload: Vec<u8>,
}

/// Appends a frame to `out`.
///
/// # Panics
/// If the payload is longer than its kind allows: the caller cuts data into pieces, and checks a start.
pub fn encode(out: &mut Vec<u8>, kind: Kind, stream: u32, payload: &[u8]) {
    assert!(
        payload.len() <= kind.limit(),
        "a {kind:?} frame has at most {} bytes, not {}",
        kind.limit(),
        payload.len()
    );
    out.extend_from_slice(&[MARK, kind as u8, 0, 0]);
    out.extend_from_slice(&stream.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
}

/// Bytes that are no frame. All bytes behind them are unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A header that does not begin as one.
    Mark {
        /// Its first four bytes.
        found: [u8; 4],
    },
    /// An unknown kind.
    Kind(u8),
    /// A payload that its kind cannot have.
    TooLong {
        /// The kind.
        kind: Kind,
        /// The length in the header.
        bytes: u32,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark { found } => write!(
                f,
                "expected a frame on the carrier's channel and found the bytes {found:02x?}; something else writes to it"
            ),
            Self::Kind(kind) => write!(
                f,
                "expected a frame of kind 1 to {} on the carrier's channel and found kind {kind}; build both sides from the same source",
                Kind::ALL.len()
            ),
            Self::TooLong { kind, bytes } => write!(
                f,
                "expected at most {} bytes in a {kind:?} frame on the carrier's channel and found {bytes}; build both sides from the same source",
                kind.limit()
            ),
        }
    }
}

impl std::error::Error for FrameError {}

/// A decoder that takes bytes in pieces of any size and returns frames, however they were cut.
///
/// It holds less than one frame, plus the last piece.
#[derive(Debug, Default)]
pub struct Decoder {
    held: Vec<u8>,
    /// Bytes at the front of `held` that were given out already.
    taken: usize,
}

impl Decoder {
    /// Creates an empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes from the channel.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.taken);
        self.taken = 0;
        self.held.extend_from_slice(bytes);
    }

    /// Returns the next whole frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the bytes are no frame. The channel cannot be used any more then.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.held[self.taken..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [mark, kind, zero0, zero1, header @ ..] = *header;
        if (mark, zero0, zero1) != (MARK, 0, 0) {
            return Err(FrameError::Mark {
                found: [mark, kind, zero0, zero1],
            });
        }
        let [s0, s1, s2, s3, l0, l1, l2, l3] = header;
        let kind = Kind::from_byte(kind).ok_or(FrameError::Kind(kind))?;
        let bytes = u32::from_le_bytes([l0, l1, l2, l3]);
        if bytes as usize > kind.limit() {
            return Err(FrameError::TooLong { kind, bytes });
        }
        let Some(payload) = rest.get(..bytes as usize) else {
            return Ok(None);
        };
        let frame = Frame {
            kind,
            stream: u32::from_le_bytes([s0, s1, s2, s3]),
            payload: payload.to_vec(),
        };
        self.taken += HEADER + payload.len();
        Ok(Some(frame))
    }
}
