//! Lines of text with a limit: who sends bytes without an end must not fill our memory.

use std::io::{self, BufRead, Read as _};

/// The most bytes of a request's line: some ten thousand addresses or words.
pub const MOST: u64 = 1 << 20;

/// The next line that is not empty, without its end; `None` where the input ends.
///
/// # Errors
/// Where the input fails, is no UTF-8 or has a line longer than [`MOST`].
pub fn next(input: &mut impl BufRead) -> io::Result<Option<String>> {
    loop {
        let mut line = String::new();
        let read = input.by_ref().take(MOST).read_line(&mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if read as u64 == MOST && !line.ends_with('\n') {
            let why = format!("expected a request's line to end within {MOST} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let line = line.trim();
        if !line.is_empty() {
            return Ok(Some(line.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_by_themselves_or_with_the_input() {
        let mut input = "one\n\n  \ntwo".as_bytes();
        assert_eq!(next(&mut input).unwrap().as_deref(), Some("one"));
        assert_eq!(next(&mut input).unwrap().as_deref(), Some("two"));
        assert_eq!(next(&mut input).unwrap(), None);
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let mut input = io::BufReader::new(io::repeat(b'x'));
        assert_eq!(
            next(&mut input).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        let longest = "x".repeat(MOST as usize - 1) + "\n";
        assert!(next(&mut longest.as_bytes()).unwrap().is_some());
    }
}
