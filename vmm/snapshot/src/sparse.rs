// SPDX-License-Identifier: GPL-2.0-only
//! A file in which pages of zeros take no room.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use crate::PAGE;

/// Writes to a file and leaves holes where whole pages would be zero.
///
/// A hole reads back as zeros, so the file's meaning is unchanged; a guest's memory is mostly zeros.
/// [`SparseFile::finish`] must be called: a hole at the end has no last byte that would set the file's length.
#[derive(Debug)]
pub struct SparseFile {
    file: File,
    /// Offset of the next byte. The file's own position may lag behind.
    position: u64,
    /// Bytes of the page being gathered.
    page: Vec<u8>,
}

impl SparseFile {
    /// Writes to `file`, which is empty and at its start.
    pub fn new(file: File) -> Self {
        Self {
            file,
            position: 0,
            page: Vec::with_capacity(PAGE as usize),
        }
    }

    /// Writes the rest, sets the length and returns the file.
    pub fn finish(mut self) -> io::Result<File> {
        self.put_page()?;
        self.file.set_len(self.position)?;
        Ok(self.file)
    }

    fn put_page(&mut self) -> io::Result<()> {
        if self.page.iter().any(|&byte| byte != 0) {
            self.file.seek(SeekFrom::Start(self.position))?;
            self.file.write_all(&self.page)?;
        }
        self.position += self.page.len() as u64;
        self.page.clear();
        Ok(())
    }
}

impl Write for SparseFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let room = PAGE as usize - self.page.len();
        let taken = data.len().min(room);
        self.page.extend_from_slice(&data[..taken]);
        if self.page.len() == PAGE as usize {
            self.put_page()?;
        }
        Ok(taken)
    }

    /// Does nothing: [`SparseFile::finish`] writes a page that is not full yet.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
