//! Lines on a byte channel: encodes one, and finds them again in a stream with arbitrary contents.

use std::fmt;

use serde::Serialize;

/// Maximum length of a line, in bytes without its newline. It bounds the memory that either side uses for it.
pub const MAX_LINE: usize = 8 << 20;

/// Number of bytes of a bad line that an error shows.
const SHOWN: usize = 80;

/// A message that would not fit in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLong {
    /// The bytes that it would take.
    pub bytes: usize,
    /// The bytes that a line may have.
    pub limit: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the message takes {} bytes, a line may have {}: ask for less at once",
            self.bytes, self.limit
        )
    }
}

impl std::error::Error for TooLong {}

/// Writes a message as one line, newline included.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, TooLong> {
    let mut line = serde_json::to_vec(message).expect("the protocol's types are plain data");
    if line.len() > MAX_LINE {
        return Err(TooLong {
            bytes: line.len(),
            limit: MAX_LINE,
        });
    }
    line.push(b'\n');
    Ok(line)
}

/// Bytes on the channel that are not a line of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineError {
    /// No newline within the limit. The rest of the line is skipped.
    TooLong {
        /// The bytes that a line may have.
        limit: usize,
        /// The line's first bytes, escaped.
        start: String,
    },
    /// The line is not UTF-8.
    NotUtf8 {
        /// The offset of the first bad byte.
        at: usize,
        /// The line's first bytes, escaped.
        start: String,
    },
    /// The channel ended within a line.
    Cut {
        /// Number of bytes of the line that had arrived.
        bytes: usize,
        /// The line's first bytes, escaped.
        start: String,
    },
    /// The line is text, but none of the messages that are expected here.
    NotAMessage {
        /// The JSON reader's error.
        why: String,
        /// The line's first bytes, escaped.
        start: String,
    },
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { limit, start } => write!(
                f,
                "a line on the channel is longer than {limit} bytes; it begins with \"{start}\""
            ),
            Self::NotUtf8 { at, start } => write!(
                f,
                "a line on the channel is not UTF-8 at byte {at}; it begins with \"{start}\""
            ),
            Self::Cut { bytes, start } => write!(
                f,
                "the channel ended {bytes} bytes into a line, which begins with \"{start}\""
            ),
            Self::NotAMessage { why, start } => write!(
                f,
                "a line on the channel is no message: {why}; it begins with \"{start}\""
            ),
        }
    }
}

impl std::error::Error for LineError {}

impl LineError {
    pub(crate) fn not_a_message(line: &str, why: &serde_json::Error) -> Self {
        Self::NotAMessage {
            why: why.to_string(),
            start: shown(line.as_bytes()),
        }
    }
}

/// Returns the first bytes of a line, escaped so that they can be printed anywhere.
fn shown(line: &[u8]) -> String {
    let mut text = line[..line.len().min(SHOWN)].escape_ascii().to_string();
    if line.len() > SHOWN {
        text.push_str("...");
    }
    text
}

/// A decoder that takes bytes in pieces of any size and returns lines, however they were cut.
///
/// It holds at most [`MAX_LINE`] bytes plus the last piece, whatever arrives. Empty lines are skipped, and a carriage
/// return before the newline is dropped: a serial line may add both.
#[derive(Debug)]
pub struct LineDecoder {
    held: Vec<u8>,
    /// Bytes at the front of `held` that were given out already.
    taken: usize,
    /// Bytes of `held` that are known to hold no newline.
    scanned: usize,
    /// True in the rest of an over-long line, whose error was returned already.
    skipping: bool,
    limit: usize,
}

impl Default for LineDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl LineDecoder {
    /// Creates a decoder for lines of up to [`MAX_LINE`] bytes.
    pub fn new() -> Self {
        Self::with_limit(MAX_LINE)
    }

    /// Creates a decoder for lines of up to `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            held: Vec::new(),
            taken: 0,
            scanned: 0,
            skipping: false,
            limit,
        }
    }

    /// Adds bytes from the channel.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.held.drain(..self.taken);
            self.scanned -= self.taken;
            self.taken = 0;
        }
        self.held.extend_from_slice(bytes);
    }

    /// Returns the next whole line without its newline, or its error; `None` if more bytes are needed.
    pub fn next_line(&mut self) -> Option<Result<String, LineError>> {
        loop {
            let from = self.scanned.max(self.taken);
            let newline = self.held[from..].iter().position(|&b| b == b'\n');
            let Some(newline) = newline.map(|at| from + at) else {
                self.scanned = self.held.len();
                return self.over_long_start();
            };
            let mut line = &self.held[self.taken..newline];
            self.taken = newline + 1;
            self.scanned = self.taken;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if let Some(without) = line.strip_suffix(b"\r") {
                line = without;
            }
            if line.is_empty() {
                continue;
            }
            return Some(check(line, self.limit));
        }
    }

    /// Handles a buffer without a newline: drops bytes that already exceed the limit.
    fn over_long_start(&mut self) -> Option<Result<String, LineError>> {
        let rest = &self.held[self.taken..];
        if !self.skipping && rest.len() <= self.limit {
            return None;
        }
        let error = (!self.skipping).then(|| LineError::TooLong {
            limit: self.limit,
            start: shown(rest),
        });
        self.skipping = true;
        self.held = Vec::new();
        self.taken = 0;
        self.scanned = 0;
        error.map(Err)
    }

    /// Resets the decoder, for a channel whose other end was replaced.
    pub fn reset(&mut self) {
        *self = Self::with_limit(self.limit);
    }

    /// Returns an error if the channel ended in the middle of a line. It is called when the channel has ended and
    /// [`next_line`](Self::next_line) returned `None`.
    pub fn cut(&self) -> Option<LineError> {
        let rest = &self.held[self.taken..];
        (!rest.is_empty() && !self.skipping).then(|| LineError::Cut {
            bytes: rest.len(),
            start: shown(rest),
        })
    }
}

fn check(line: &[u8], limit: usize) -> Result<String, LineError> {
    if line.len() > limit {
        return Err(LineError::TooLong {
            limit,
            start: shown(line),
        });
    }
    match std::str::from_utf8(line) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(LineError::NotUtf8 {
            at: error.valid_up_to(),
            start: shown(line),
        }),
    }
}
