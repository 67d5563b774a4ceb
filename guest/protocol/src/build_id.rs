//! The name of one build of a kernel, which its linker gave it.

use std::fmt;

/// A GNU build id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildId(pub Vec<u8>);

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl BuildId {
    /// Reads hexadecimal digits, as the guest reports them.
    pub fn parse(text: &str) -> Option<BuildId> {
        let text = text.trim();
        if text.is_empty() || text.len() % 2 != 0 || !text.is_ascii() {
            return None;
        }
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
            .collect::<Option<_>>()
            .map(BuildId)
    }

    /// Finds the build id in ELF notes, the bytes of the guest's `/sys/kernel/notes`.
    pub fn from_notes(notes: &[u8]) -> Option<BuildId> {
        let word = |at: usize| {
            let bytes = notes.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let mut at = 0;
        loop {
            let (name_size, size, kind) = (word(at)?, word(at + 4)?, word(at + 8)?);
            let name = notes.get(at + 12..)?.get(..name_size)?;
            let start = (at + 12 + name_size).next_multiple_of(4);
            let description = notes.get(start..)?.get(..size)?;
            if name == b"GNU\0" && kind == 3 {
                return Some(BuildId(description.to_vec()));
            }
            at = (start + size).next_multiple_of(4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BuildId;

    #[test]
    fn it_is_found_behind_other_notes() {
        let mut notes = Vec::new();
        let mut note = |name: &[u8], kind: u32, content: &[u8]| {
            for word in [name.len() as u32, content.len() as u32, kind] {
                notes.extend_from_slice(&word.to_le_bytes());
            }
            for part in [name, content] {
                notes.extend_from_slice(part);
                notes.resize(notes.len().next_multiple_of(4), 0);
            }
        };
        note(b"Linux\0", 257, &[1]);
        note(b"GNU\0", 3, &[0xab, 0x01, 0xff]);
        let found = BuildId::from_notes(&notes).unwrap();
        assert_eq!(found.to_string(), "ab01ff");
        assert_eq!(BuildId::parse("ab01ff\n"), Some(found));
        for cut in 0..notes.len() - 1 {
            assert_eq!(BuildId::from_notes(&notes[..cut]), None, "{cut}");
        }
        assert_eq!(BuildId::from_notes(&[0xff; 64]), None);
        assert_eq!(BuildId::parse("abc"), None);
    }
}
