//! Operations on files, for mappings of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use protocol::{pattern, Expect, Failure, Operation, Outcome};
use rustix::fs::{fallocate, FallocateFlags};

use super::touch::{compared_with, Steps};
use crate::sys;

/// Size of one read or write unless the request has another.
const PIECE: u64 = 64 << 10;

/// The largest piece of a write: two contiguous blocks of any granule.
const MOST: u64 = 4 << 20;

/// The largest range that is compared at once.
const MOST_VERIFIED: u64 = 64 << 20;

pub fn operate(op: &Operation) -> Result<Outcome, Failure> {
    match op {
        Operation::FileCreate { path, length } => {
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
            resize(&File::from(sys::open(path, flags)?), path, *length)
        }
        Operation::FileTruncate { path, length } => {
            resize(&File::from(sys::open(path, libc::O_WRONLY)?), path, *length)
        }
        Operation::FileWrite {
            path,
            offset,
            length,
            salt,
            chunk,
        } => write(path, *offset, *length, *salt, chunk.unwrap_or(PIECE)),
        Operation::FileRead {
            path,
            offset,
            length,
        } => read(path, *offset, *length),
        Operation::FileVerify {
            path,
            offset,
            length,
            stride,
            expect,
        } => verify(
            path,
            *length,
            &Steps::new(*offset, *length, *stride)?,
            expect,
        ),
        Operation::FileAllocate {
            path,
            offset,
            length,
            punch,
        } => allocate(path, *offset, *length, *punch),
        Operation::FileUnlink { path } => std::fs::remove_file(path)
            .map(|()| Outcome::Done {})
            .map_err(|e| sys::io_failure(&e, format!("unlink {path}"))),
        _ => Err(Failure::bad("no operation on files")),
    }
}

fn resize(file: &File, path: &str, length: u64) -> Result<Outcome, Failure> {
    file.set_len(length)
        .map(|()| Outcome::Done {})
        .map_err(|e| sys::io_failure(&e, format!("truncate {path}")))
}

fn write(path: &str, offset: u64, length: u64, salt: u64, chunk: u64) -> Result<Outcome, Failure> {
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

fn read(path: &str, offset: u64, length: u64) -> Result<Outcome, Failure> {
    let file = File::from(sys::open(path, libc::O_RDONLY)?);
    let mut buffer = vec![0; PIECE as usize];
    let mut bytes = 0;
    while bytes < length {
        let n = PIECE.min(length - bytes) as usize;
        match file.read_at(&mut buffer[..n], offset.saturating_add(bytes)) {
            Ok(0) => break,
            Ok(n) => bytes += n as u64,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(sys::io_failure(&e, format!("pread {path}"))),
        }
    }
    Ok(Outcome::Read { bytes })
}

fn verify(path: &str, length: u64, steps: &Steps, expect: &Expect) -> Result<Outcome, Failure> {
    if length % 8 != 0 || length > MOST_VERIFIED {
        return Err(Failure::bad(format!(
            "the length must be a multiple of 8 up to {MOST_VERIFIED}"
        )));
    }
    let file = File::from(sys::open(path, libc::O_RDONLY)?);
    let mut buffer = vec![0xff; length as usize];
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], steps.start() + read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(sys::io_failure(&e, format!("pread {path}"))),
        }
    }
    let load = |offset: u64, _| {
        let at = (offset - steps.start()) as usize;
        let word = buffer[at..at + 8].try_into().expect("it has 8 bytes");
        Ok(u64::from_le_bytes(word))
    };
    compared_with(steps, |step| steps.expected(expect, step), load).map(Outcome::Verified)
}

fn allocate(path: &str, offset: u64, length: u64, punch: bool) -> Result<Outcome, Failure> {
    let file = sys::open(path, libc::O_RDWR)?;
    let mode = if punch {
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
    } else {
        FallocateFlags::empty()
    };
    let done = fallocate(&file, mode, offset, length);
    sys::done(done, format!("fallocate {path}")).map(|()| Outcome::Done {})
}
