// SPDX-License-Identifier: GPL-2.0-only
//! Knobs of the guest that are set before anything is done in it.

use std::str::FromStr;

/// A file of the guest, and the text that is written to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// An absolute path, most often in `/sys` or `/proc`.
    pub path: String,
    /// The text, written at once.
    pub text: String,
}

impl FromStr for Knob {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        match words.split_once('=') {
            Some((path, text)) if path.starts_with('/') => Ok(Self {
                path: path.into(),
                text: text.into(),
            }),
            _ => Err(
                "expected a file of the guest and a text, as in /sys/kernel/mm/ksm/run=1".into(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_is_a_file_and_a_text() {
        let knob = |path: &str, text: &str| {
            Ok(Knob {
                path: path.into(),
                text: text.into(),
            })
        };
        assert_eq!("/sys/a=1".parse(), knob("/sys/a", "1"));
        assert_eq!("/proc/a=b=c".parse(), knob("/proc/a", "b=c"));
        assert_eq!("/a=".parse(), knob("/a", ""));
        for wrong in ["", "/sys/a", "a=1", "=1"] {
            assert!(wrong.parse::<Knob>().is_err());
        }
    }
}
