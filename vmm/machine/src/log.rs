// SPDX-License-Identifier: GPL-2.0-only
//! A log of bounded size. It keeps the first and the last bytes, with a line between them that states how many are left
//! out.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};

/// Number of bytes that are kept of the beginning. A boot with all output of a debug kernel is a tenth of it.
pub const FIRST: u64 = 8 << 20;
/// Minimum number of bytes that are kept of the end. The maximum is twice as much.
pub const LAST: usize = 1 << 20;
/// Maximum length of a log that keeps all its bytes.
pub const WHOLE: u64 = FIRST + 2 * LAST as u64;

/// The bounded log of a guest.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    first: u64,
    last: usize,
    /// All bytes so far.
    total: u64,
    /// The bytes of the file behind the first part and the line that states what is left out.
    end: Vec<u8>,
    /// The reason why the file is not whole, if it is not.
    error: Option<String>,
}

impl Log {
    /// Creates a log in an empty file.
    pub(crate) fn new(file: File) -> Self {
        Self::with(file, FIRST, LAST)
    }

    fn with(file: File, first: u64, last: usize) -> Self {
        Self {
            file,
            first,
            last,
            total: 0,
            end: Vec::new(),
            error: None,
        }
    }

    /// Appends bytes. A file that cannot be written does not stop the work: [`Log::error`] has the reason.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if let Err(error) = self.add(bytes) {
            self.error.get_or_insert(error.to_string());
        }
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = self.first.saturating_sub(self.total);
        let (begun, rest) =
            bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        self.total += bytes.len() as u64;
        // The end is kept even if the file fails, so that it can be written once the disk has room again.
        self.end.extend_from_slice(rest);
        self.file.write_all(begun)?;
        if self.end.len() <= 2 * self.last {
            return self.file.write_all(rest);
        }
        self.end.drain(..self.end.len() - self.last);
        let left_out = self.total - self.first - self.end.len() as u64;
        self.file.set_len(self.first)?;
        self.file.seek(SeekFrom::Start(self.first))?;
        writeln!(
            self.file,
            "\n[folioscope: {left_out} bytes are left out here: of a log, the first {} bytes and the last {} or more are kept]",
            self.first, self.last
        )?;
        self.file.write_all(&self.end)
    }

    /// Returns the reason why the file is not whole (no space, for example), if it is not.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(first: u64, last: usize) -> (Log, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        (Log::with(file.reopen().unwrap(), first, last), file)
    }

    fn content(file: &tempfile::NamedTempFile) -> String {
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn the_first_and_the_last_are_kept() {
        for piece in [1, 3, 7, 64, 1000] {
            let (mut log, file) = log(100, 50);
            let said: String = (0..1000).map(|line| format!("line {line}\n")).collect();
            for bytes in said.as_bytes().chunks(piece) {
                log.write(bytes);
            }
            let kept = content(&file);
            let (first, rest) = kept.split_at(100);
            assert_eq!(first, &said[..100]);
            let (line, last) = rest[1..].split_once('\n').unwrap();
            assert!((50..=100).contains(&last.len()), "{}", last.len());
            assert!(said.ends_with(last));
            let left_out = said.len() - 100 - last.len();
            assert!(
                line.starts_with(&format!("[folioscope: {left_out} bytes are left out")),
                "{line}"
            );
            assert_eq!(log.error(), None);
        }
    }

    #[test]
    fn what_has_room_is_kept_as_it_came() {
        let (mut log, file) = log(100, 50);
        for _ in 0..20 {
            log.write(b"0123456789");
        }
        assert_eq!(content(&file), "0123456789".repeat(20));
    }

    #[test]
    fn a_full_disk_is_remembered() {
        let mut log = Log::new(File::options().write(true).open("/dev/full").unwrap());
        assert_eq!(log.error(), None);
        log.write(b"text");
        assert!(log.error().unwrap().contains("No space left"));
    }
}
