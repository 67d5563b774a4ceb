// SPDX-License-Identifier: GPL-2.0-only
//! Lines of text with a limit: a client that sends bytes without end must not fill our memory.

use std::io::{self, BufRead, Read as _};

/// The most bytes of a request's line: some ten thousand addresses or words.
pub const MOST: u64 = 1 << 20;

/// A line that a client has sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Text, without its end and not empty.
    Text(String),
    /// Bytes that are no text, and the error in them; the next line may be good.
    NoText(String),
    /// More bytes than a line may have, and the error; no more can be read.
    TooLong(String),
}

/// Returns the next line that is not empty; `None` where the input ends.
///
/// # Errors
/// If the input fails.
pub fn next(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    loop {
        let mut line = Vec::new();
        let read = input.by_ref().take(MOST).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if read as u64 == MOST && !line.ends_with(b"\n") {
            return Ok(Some(Line::TooLong(format!(
                "expected a request's line to end within {MOST} bytes and found more; ask for less at a time"
            ))));
        }
        match std::str::from_utf8(&line) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => return Ok(Some(Line::Text(text.trim().to_owned()))),
            Err(error) => {
                return Ok(Some(Line::NoText(format!(
                    "expected a request as one JSON object and found a line that is not UTF-8 from byte {} on",
                    error.valid_up_to()
                ))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_by_themselves_or_with_the_input() {
        let mut input = &b"one\n\n  \n\xff\xfe\ntwo"[..];
        let text = |text: &str| Some(Line::Text(text.into()));
        assert_eq!(next(&mut input).unwrap(), text("one"));
        let garbage = next(&mut input).unwrap();
        assert!(matches!(&garbage, Some(Line::NoText(why)) if why.contains("from byte 0 on")));
        assert_eq!(next(&mut input).unwrap(), text("two"));
        assert_eq!(next(&mut input).unwrap(), None);
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let mut input = io::BufReader::new(io::repeat(b'x'));
        assert!(matches!(next(&mut input).unwrap(), Some(Line::TooLong(_))));
        let longest = "x".repeat(MOST as usize - 1) + "\n";
        assert!(matches!(
            next(&mut longest.as_bytes()).unwrap(),
            Some(Line::Text(_))
        ));
    }
}
