// SPDX-License-Identifier: GPL-2.0-only
//! Text of a guest, a file or another program, and how it is shown.
//!
//! A terminal executes control characters, and Unicode has others that hide or reorder their neighbours. Such text is
//! therefore a [`Text`], which is escaped wherever it is formatted: in a sentence, in KTAP, in HTML. The escapes are
//! those of a JSON string (`\n`, `\\`, `\u202e`), so that any JSON reader restores the text; JSON itself has the text
//! unchanged.
//!
//! Text that passes a [`Filter`] on its way to a terminal or a file is harmless too, whatever type it had.

mod filter;

use std::borrow::{Borrow, Cow};
use std::fmt::{self, Write as _};
use std::ops::Deref;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use filter::{filtered, Filter};

/// Text of a guest, a file or another program. `Display` escapes it, serde does not.
#[derive(
    Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// Returns the text as it was given, for comparisons and for JSON.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escaped(&self.0).fmt(f)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<Cow<'_, str>> for Text {
    fn from(text: Cow<'_, str>) -> Self {
        Self(text.into_owned())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl PartialEq<String> for Text {
    fn eq(&self, other: &String) -> bool {
        self.0 == *other
    }
}

/// Untrusted text in its shown form, which `Display` of [`Text`] writes.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(&'a str);

/// Shows untrusted text that is no [`Text`].
#[must_use]
pub fn escaped(text: &str) -> Escaped<'_> {
    Escaped(text)
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self
            .0
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\')
        {
            return f.pad(self.0);
        }
        let mut shown = String::with_capacity(self.0.len() + 8);
        for (at, character) in self.0.chars().enumerate() {
            // A mark at the start would combine with the text before.
            let combines = at == 0
                && character.escape_debug().len() > 1
                && character != '"'
                && character != '\'';
            if character == '\\' || combines || !is_shown(character) {
                push_escape(&mut shown, character);
            } else {
                shown.push(character);
            }
        }
        f.pad(&shown)
    }
}

/// Returns whether a character is shown unchanged: neither control (Cc), format (Cf), separator (Zl, Zp, Zs except for
/// the space), private use (Co), unassigned (Cn), nor another invisible one (`Default_Ignorable_Code_Point`).
#[must_use]
pub fn is_shown(character: char) -> bool {
    if character.is_ascii() {
        return matches!(character, ' '..='~');
    }
    // Letters and marks by their category, and invisible all the same (DerivedCoreProperties.txt).
    let invisible = matches!(
        character,
        '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}'
    );
    if invisible {
        return false;
    }
    // The standard library's table of printable characters, applied to a text in which marks are no reason to escape.
    let mut behind = [0; 5];
    behind[0] = b'a';
    let length = 1 + character.encode_utf8(&mut behind[1..]).len();
    let text = std::str::from_utf8(&behind[..length]).unwrap_or_default();
    text.escape_debug().count() == 2
}

/// Adds a character as a JSON string has it.
fn push_escape(shown: &mut String, character: char) {
    match character {
        '\\' => shown.push_str("\\\\"),
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        other => {
            for unit in other.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_shown() {
        for (text, shown) in [
            ("kworker/u8:1-ünïx 内核", "kworker/u8:1-ünïx 内核"),
            ("\u{1b}[31m\n\r\t\u{7}", "\\u001b[31m\\n\\r\\t\\u0007"),
            ("\u{7f}\u{9b}31m", "\\u007f\\u009b31m"),
            ("a\u{202e}b\u{2066}c", "a\\u202eb\\u2066c"),
            (
                "a\u{200b}\u{200d}\u{feff}\u{ad}",
                "a\\u200b\\u200d\\ufeff\\u00ad",
            ),
            ("\u{2028}\u{2029}\u{a0}", "\\u2028\\u2029\\u00a0"),
            ("\u{e000}\u{f8ff}\u{10ffff}", "\\ue000\\uf8ff\\udbff\\udfff"),
            ("\u{e0041}\u{3164}\u{378}", "\\udb40\\udc41\\u3164\\u0378"),
            ("\\u202e", "\\\\u202e"),
            ("e\u{301}", "e\u{301}"),
            ("\u{301}e", "\\u0301e"),
            ("\"'", "\"'"),
        ] {
            assert_eq!(Text::from(text).to_string(), shown);
        }
    }

    #[test]
    fn widths_are_those_of_what_is_shown() {
        assert_eq!(format!("{:<8}|", Text::from("a\n")), "a\\n     |");
        assert_eq!(format!("{:>4}|", Text::from("ab")), "  ab|");
    }

    #[test]
    fn json_has_the_text_itself() {
        let text = Text::from("a\\\u{1b}\u{202e}");
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), text);
    }

    proptest! {
        #[test]
        fn escapes_are_read_back(text in any::<String>()) {
            let shown = escaped(&text).to_string();
            prop_assert!(shown.chars().all(is_shown), "{shown:?}");
            let json = format!("\"{}\"", shown.replace('"', "\\\""));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
