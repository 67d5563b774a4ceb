//! What a carrier host and those who run programs in it say to each other.
//!
//! A carrier is an emulated arm64 machine that runs programs as if they were local. All programs share one
//! byte channel, the virtio serial port [`PORT_NAME`]: each is a *stream* of [`Frame`]s with a number of its
//! own. A client speaks the same frames on a Unix socket, with one stream.
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
//! Credit is what keeps one stream that does not read from stalling the others: nobody sends what the other
//! end has no room for, so nobody has to stop reading the shared channel.

mod frame;
mod message;

pub use frame::{encode, Decoder, Frame, FrameError, Kind, HEADER};
pub use message::{credit, read_credit, Ended, Hello, Mode, Start};

/// The version of everything in this module. Both sides must have the same.
pub const VERSION: u32 = 1;

/// The name of the virtio serial port that the carrier's init listens on.
pub const PORT_NAME: &str = "org.folioscope.carrier.0";

/// How many bytes of one of its streams of bytes (standard input, output, error) a program may have on the way.
pub const WINDOW: u32 = 256 << 10;

/// How many bytes of data a frame carries at most.
pub const CHUNK: usize = 32 << 10;

/// The tag of the outside's whole file system, read-only.
pub const ROOT_TAG: &str = "root";

/// What a word of the carrier's command line begins with that mounts another 9p tag at a path of the outside:
/// `carrier.mount=TAG:PATH`, the path as [`escape`] writes it.
pub const MOUNT_WORD: &str = "carrier.mount=";

/// A path as it can stand in a kernel's command line: what is not plain is `%` and two hexadecimal digits.
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

/// The path that [`escape`] made this word of.
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
