// SPDX-License-Identifier: GPL-2.0-only
//! The guest's memory, as the file behind it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use recorder::ReadTable;

/// One region of guest memory.
pub struct Ram {
    file: File,
    base: u64,
    size: u64,
}

impl Ram {
    pub fn open(path: &str, base: u64, size: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self { file, base, size })
    }

    /// Returns the word at a physical address.
    pub fn word(&mut self, address: u64) -> Option<u64> {
        self.read(address, 1).map(|words| words[0])
    }
}

impl ReadTable for Ram {
    fn read(&mut self, address: u64, count: usize) -> Option<Vec<u64>> {
        let offset = address.checked_sub(self.base)?;
        let end = offset.checked_add(count as u64 * 8)?;
        if end > self.size {
            return None;
        }
        let mut bytes = vec![0; count * 8];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        Some(bytes.chunks(8).map(word).collect())
    }
}
