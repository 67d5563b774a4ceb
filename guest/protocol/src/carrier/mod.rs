//! The protocol between a carrier host and the clients that run programs in it.
//!
//! A carrier is an emulated arm64 machine that runs programs as if they were local. All programs share one byte
//! channel, the virtio serial port [`PORT_NAME`]: each is a *stream* of [`Frame`]s with a number of its own. A client
//! uses the same frames on a Unix socket, with one stream.
//!
//! ```text
//!   client                           carrier
//!   Start  ------------------------>              forks, executes
//!   Stdin, StdinEnd  -------------->              at most WINDOW bytes ahead of its StdinCredit
//!          <------------------------  Stdout, Stderr      at most WINDOW bytes ahead of the client's credit
//!   Signal, StdoutShut, StderrShut >
//!          <------------------------  Exit        the last frame of a stream
//! ```
//!
//! Credit prevents one stream that does not read from stalling the others. A sender sends no more than the other end
//! has room for, so no receiver has to stop reading the shared channel.

mod frame;
mod message;

pub use frame::{encode, Decoder, Frame, FrameError, Kind, HEADER};
pub use message::{credit, read_credit, Ended, Hello, Mode, Start};

/// The version of everything in this module. Both sides must have the same.
pub const VERSION: u32 = 1;

/// The name of the virtio serial port that the carrier's init listens on.
pub const PORT_NAME: &str = "org.folioscope.carrier.0";

/// Maximum number of bytes that may be on the way on one of a program's byte streams (standard input, output, error).
pub const WINDOW: u32 = 256 << 10;

/// Maximum number of data bytes in a frame.
pub const CHUNK: usize = 32 << 10;

/// The tag of the outside's whole file system, read-only.
pub const ROOT_TAG: &str = "root";

/// Prefix of the carrier's command line words that mount another 9p tag at a path of the outside:
/// `carrier.mount=TAG:PATH`, the path as [`escape`] writes it.
pub const MOUNT_WORD: &str = "carrier.mount=";

/// Escapes a path for a kernel's command line: a character that is not plain becomes `%` and two hexadecimal digits.
#[must_use]
pub fn escape(path: &str) -> String {
    use std::fmt::Write as _;
    let mut word = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            word.push(char::from(byte));
        } else {
            let _ = write!(word, "%{byte:02x}");
        }
    }
    word
}

/// Returns the path that [`escape`] made this word of.
#[must_use]
pub fn unescape(word: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        rest = after;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}
