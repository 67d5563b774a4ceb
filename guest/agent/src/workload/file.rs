//! Operations on files, for mappings of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use protocol::{pattern, Expect, Failure, Outcome};
use rustix::fs::{fadvise, fallocate, fsync, Advice, FallocateFlags};

use super::touch::{compared_with, Steps};
use crate::sys;

/// Size of one read or write unless the request has another.
const PIECE: u64 = 64 << 10;

/// The largest piece of a write: two contiguous blocks of any granule.
const MOST: u64 = 4 << 20;

/// Alignment of memory that a disk reads into, in bytes: the largest sector.
const ALIGNED: usize = 4096;

/// The largest range that is compared at once.
const MOST_VERIFIED: u64 = 64 << 20;

pub fn create(path: &str, length: u64) -> Result<Outcome, Failure> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
    resize(&File::from(sys::open(path, flags)?), path, length)
}

pub fn truncate(path: &str, length: u64) -> Result<Outcome, Failure> {
    resize(&File::from(sys::open(path, libc::O_WRONLY)?), path, length)
}

pub fn unlink(path: &str) -> Result<Outcome, Failure> {
    std::fs::remove_file(path)
        .map(|()| Outcome::Done {})
        .map_err(|e| sys::io_failure(&e, format!("unlink {path}")))
}

fn resize(file: &File, path: &str, length: u64) -> Result<Outcome, Failure> {
    file.set_len(length)
        .map(|()| Outcome::Done {})
        .map_err(|e| sys::io_failure(&e, format!("truncate {path}")))
}

pub fn write(
    path: &str,
    offset: u64,
    length: u64,
    salt: u64,
    chunk: Option<u64>,
) -> Result<Outcome, Failure> {
    let chunk = chunk.unwrap_or(PIECE);
    if [offset, length, chunk].iter().any(|n| n % 8 != 0) || chunk == 0 || chunk > MOST {
        return Err(Failure::bad(format!(
            "offset, length and chunk must be multiples of 8, the chunk from 8 to {MOST}"
        )));
    }
    let end = offset
        .checked_add(length)
        .ok_or_else(|| Failure::bad("the range ends beyond any file"))?;
    let file = File::from(sys::open(path, libc::O_WRONLY)?);
    let mut buffer = Vec::with_capacity(chunk as usize);
    let mut at = offset;
    while at < end {
        let n = chunk.min(end - at);
        buffer.clear();
        for word in (at..at + n).step_by(8) {
            buffer.extend_from_slice(&pattern(word, salt).to_le_bytes());
        }
        file.write_all_at(&buffer, at)
            .map_err(|e| sys::io_failure(&e, format!("pwrite {path}")))?;
        at += n;
    }
    Ok(Outcome::Done {})
}

pub fn read(path: &str, offset: u64, length: u64) -> Result<Outcome, Failure> {
    let file = File::from(sys::open(path, libc::O_RDONLY)?);
    let mut buffer = vec![0; PIECE as usize];
    let mut bytes = 0;
    while bytes < length {
        let n = PIECE.min(length - bytes) as usize;
        match pread(&file, path, &mut buffer[..n], offset.saturating_add(bytes))? {
            0 => break,
            n => bytes += n as u64,
        }
    }
    Ok(Outcome::Read { bytes })
}

/// Reads some bytes; 0 at the file's end.
fn pread(file: &File, path: &str, buffer: &mut [u8], offset: u64) -> Result<usize, Failure> {
    loop {
        match file.read_at(buffer, offset) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map_err(|e| sys::io_failure(&e, format!("pread {path}"))),
        }
    }
}

pub fn verify(
    path: &str,
    offset: u64,
    length: u64,
    stride: Option<u64>,
    expect: &Expect,
    direct: bool,
) -> Result<Outcome, Failure> {
    let steps = Steps::new(offset, length, stride)?;
    if length % 8 != 0 || length > MOST_VERIFIED {
        return Err(Failure::bad(format!(
            "the length must be a multiple of 8 up to {MOST_VERIFIED}"
        )));
    }
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let file = File::from(sys::open(path, libc::O_RDONLY | flags)?);
    let first = offset / ALIGNED as u64 * ALIGNED as u64;
    let size = ((offset - first + length) as usize).next_multiple_of(ALIGNED);
    let mut memory = vec![0xff; size + ALIGNED];
    let start = memory.as_ptr().align_offset(ALIGNED);
    let buffer = &mut memory[start..start + size];
    let mut read = 0;
    while read < buffer.len() {
        match pread(&file, path, &mut buffer[read..], first + read as u64)? {
            0 => break,
            n => read += n,
        }
    }
    let load = |byte: u64, _| {
        let at = (byte - first) as usize;
        let word = buffer[at..at + 8].try_into().expect("it has 8 bytes");
        Ok(u64::from_le_bytes(word))
    };
    compared_with(&steps, |step| steps.expected(expect, step), load).map(Outcome::Verified)
}

pub fn sync(path: &str, evict: bool) -> Result<Outcome, Failure> {
    let file = sys::open(path, libc::O_RDWR)?;
    sys::done(fsync(&file), format!("fsync {path}"))?;
    if evict {
        let done = fadvise(&file, 0, None, Advice::DontNeed);
        sys::done(done, format!("fadvise {path}"))?;
    }
    Ok(Outcome::Done {})
}

pub fn allocate(path: &str, offset: u64, length: u64, punch: bool) -> Result<Outcome, Failure> {
    let file = sys::open(path, libc::O_RDWR)?;
    let mode = if punch {
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
    } else {
        FallocateFlags::empty()
    };
    let done = fallocate(&file, mode, offset, length);
    sys::done(done, format!("fallocate {path}")).map(|()| Outcome::Done {})
}
