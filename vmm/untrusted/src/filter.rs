// SPDX-License-Identifier: GPL-2.0-only
//! The last thing before a terminal or a file: no character that would be obeyed gets through.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::{is_shown, push_escape};

/// The longest colour that is passed on, in bytes: `ESC [`, numbers, `m`.
const LONGEST_COLOUR: usize = 32;

/// Escapes all characters that [`is_shown`] rejects, except for ends of lines and tabs. A backslash is unchanged, as
/// untrusted parts of the text have been escaped before.
#[must_use]
pub fn filtered(text: &str) -> Cow<'_, str> {
    if text.bytes().all(is_common) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    text.chars()
        .for_each(|character| push(&mut shown, character));
    Cow::Owned(shown)
}

fn push(shown: &mut String, character: char) {
    if matches!(character, '\n' | '\t') || is_shown(character) {
        shown.push(character);
    } else {
        push_escape(shown, character);
    }
}

fn is_common(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\n' | b'\t')
}

/// A writer that writes UTF-8 text as [`filtered`] returns it. Our own colours may pass.
///
/// JSON stays JSON with the same values: its strings have such characters unchanged or as the same escapes.
#[derive(Debug)]
pub struct Filter<W> {
    out: W,
    colours: bool,
    /// The beginning of a character or of a colour whose end has not come.
    begun: Vec<u8>,
}

impl<W: Write> Filter<W> {
    /// Creates a filter before `out` that lets colours (SGR sequences) pass or not.
    pub fn new(out: W, colours: bool) -> Self {
        Self {
            out,
            colours,
            begun: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut shown = String::new();
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let common = rest
                .iter()
                .position(|&byte| !is_common(byte))
                .unwrap_or(rest.len());
            if common > 0 {
                self.out.write_all(&rest[..common])?;
                at += common;
                continue;
            }
            let length = match rest[0] {
                0x1b if self.colours => match colour(rest) {
                    Some(0) => 0,
                    Some(length) => {
                        self.out.write_all(&rest[..length])?;
                        at += length;
                        continue;
                    }
                    None => 1,
                },
                0..=0x7f => 1,
                first => match character(first, rest) {
                    Some(length) => length,
                    // No UTF-8.
                    None => {
                        self.out.write_all("\u{fffd}".as_bytes())?;
                        at += 1;
                        continue;
                    }
                },
            };
            if length == 0 {
                self.begun = rest.to_vec();
                break;
            }
            shown.clear();
            let text = String::from_utf8_lossy(&rest[..length]);
            text.chars()
                .for_each(|character| push(&mut shown, character));
            self.out.write_all(shown.as_bytes())?;
            at += length;
        }
        Ok(())
    }
}

/// Returns the length of the colour that `bytes` begin with: 0 if its end has not come, `None` if it is not a colour.
fn colour(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [0x1b] => Some(0),
        [0x1b, b'[', rest @ ..] => {
            let numbers = rest
                .iter()
                .take_while(|byte| matches!(byte, b'0'..=b'9' | b';'))
                .count();
            match rest.get(numbers) {
                _ if numbers > LONGEST_COLOUR => None,
                Some(b'm') => Some(numbers + 3),
                Some(_) => None,
                None => Some(0),
            }
        }
        _ => None,
    }
}

/// Returns the length of the character that `bytes` begin with: 0 where its end has not come, `None` where it is none.
fn character(first: u8, bytes: &[u8]) -> Option<usize> {
    let length = match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    match std::str::from_utf8(&bytes[..length.min(bytes.len())]) {
        Ok(_) => Some(length),
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => Some(0),
        Err(_) => None,
    }
}

impl<W: Write> Write for Filter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.begun.is_empty() {
            self.take(bytes)?;
        } else {
            let mut all = std::mem::take(&mut self.begun);
            all.extend_from_slice(bytes);
            self.take(&all)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn through(text: &str, colours: bool, piece: usize) -> String {
        let mut out = Vec::new();
        let mut filter = Filter::new(&mut out, colours);
        for bytes in text.as_bytes().chunks(piece) {
            filter.write_all(bytes).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn colours_pass_where_they_may_and_nothing_else_does() {
        for piece in 1..20 {
            let text =
                "\u{1b}[1m\u{1b}[38;5;1mERROR\u{1b}[0m …\n\u{1b}]0;title\u{7}\u{1b}[2J\u{202e}\\";
            assert_eq!(
                through(text, true, piece),
                "\u{1b}[1m\u{1b}[38;5;1mERROR\u{1b}[0m …\n\\u001b]0;title\\u0007\\u001b[2J\\u202e\\"
            );
            assert_eq!(
                through("\u{1b}[1mERROR\u{1b}[0m", false, piece),
                "\\u001b[1mERROR\\u001b[0m"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let mut out = Vec::new();
        Filter::new(&mut out, true)
            .write_all(b"a\xff\xc0\x1b[;m\xed\xa0\x80b")
            .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "a\u{fffd}\u{fffd}\u{1b}[;m\u{fffd}\u{fffd}\u{fffd}b"
        );
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference_and_json_keeps_its_values(text in any::<String>(), piece in 1_usize..9) {
            let json = serde_json::to_string(&text).unwrap();
            let shown = through(&json, false, piece);
            prop_assert_eq!(&shown, &*filtered(&json));
            prop_assert!(shown.chars().all(is_shown), "{shown:?}");
            prop_assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
    }
}
