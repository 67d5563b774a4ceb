//! Bytes of a file or of a program's output, without loss.

use std::fmt;

use serde::{Deserialize, Serialize};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes: as they are where they are UTF-8, else in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Valid UTF-8.
    Text(String),
    /// Anything else, in standard base64 with padding.
    Base64(String),
}

/// Base64 that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentError {
    /// The offset of the first character that is wrong.
    pub at: usize,
}

impl fmt::Display for ContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no base64 at character {}", self.at)
    }
}

impl std::error::Error for ContentError {}

impl Content {
    /// Wraps bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64(to_base64(error.as_bytes())),
        }
    }

    /// The bytes that were wrapped.
    pub fn bytes(&self) -> Result<Vec<u8>, ContentError> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64(text) => from_base64(text.as_bytes()),
        }
    }

    /// The text, where it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Base64(_) => None,
        }
    }
}

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group
            .iter()
            .enumerate()
            .fold(0u32, |word, (i, &b)| word | u32::from(b) << (16 - 8 * i));
        for i in 0..4 {
            if i <= group.len() {
                text.push(char::from(ALPHABET[(word >> (18 - 6 * i)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

fn from_base64(text: &[u8]) -> Result<Vec<u8>, ContentError> {
    if text.len() % 4 != 0 {
        return Err(ContentError { at: text.len() });
    }
    let padding = text
        .iter()
        .rev()
        .take(2)
        .take_while(|&&c| c == b'=')
        .count();
    let digits = text.len() - padding;
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut bits) = (0u32, 0u32);
    for (at, &c) in text[..digits].iter().enumerate() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(ContentError { at }),
        };
        word = word << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_rfc_4648() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(to_base64(bytes), text);
            assert_eq!(from_base64(text.as_bytes()).as_deref(), Ok(bytes));
        }
    }

    #[test]
    fn text_stays_text_and_binary_survives() {
        assert_eq!(
            Content::new(b"always [madvise] never\n".to_vec()).text(),
            Some("always [madvise] never\n")
        );
        let all: Vec<u8> = (0..=255).collect();
        let content = Content::new(all.clone());
        assert_eq!(content.text(), None);
        assert_eq!(content.bytes(), Ok(all));
    }

    #[test]
    fn bad_base64_says_where() {
        assert_eq!(
            Content::Base64("Zm9*".into()).bytes(),
            Err(ContentError { at: 3 })
        );
        assert!(Content::Base64("Zm9".into()).bytes().is_err());
        assert!(Content::Base64("====".into()).bytes().is_err());
    }
}
