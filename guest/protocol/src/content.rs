//! Bytes of a file or of a program's output, without loss.

use std::fmt;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine};
use serde::{Deserialize, Serialize};

/// Bytes: unchanged if they are UTF-8, else in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Valid UTF-8.
    Text(String),
    /// Any other bytes, in standard base64 with padding.
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
            Err(error) => Self::Base64(STANDARD.encode(error.as_bytes())),
        }
    }

    /// Returns the bytes that were wrapped.
    pub fn bytes(&self) -> Result<Vec<u8>, ContentError> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64(text) => STANDARD.decode(text).map_err(|error| ContentError {
                at: match error {
                    DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                    DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len(),
                },
            }),
        }
    }

    /// Returns the text, where it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Base64(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
