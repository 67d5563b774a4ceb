//! Reads and writes files of the guest for the host. All of this runs in helpers: a file may block.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use protocol::{Content, Failure, FileRead, Outcome, MAX_PAGEMAP_PAGES, MAX_READ};

use crate::sys;

/// Replaces `{pid}` by a process's number.
pub fn with_pid(text: &str, pid: Option<i32>) -> Result<String, Failure> {
    match pid {
        Some(pid) => Ok(text.replace("{pid}", &pid.to_string())),
        None if text.contains("{pid}") => Err(Failure::bad(format!(
            "\"{text}\" names a {{pid}}: give the process"
        ))),
        None => Ok(text.to_owned()),
    }
}

/// Reads a piece of a file.
pub fn read(path: &str, offset: u64, max: Option<u64>) -> Result<Outcome, Failure> {
    let max = max.unwrap_or(MAX_READ);
    if max > MAX_READ {
        return Err(Failure::bad(format!("at most {MAX_READ} bytes at once")));
    }
    let file = File::from(sys::open(path, libc::O_RDONLY | libc::O_NOCTTY)?);
    let mut bytes = vec![0; max as usize];
    let mut length = 0;
    let mut end = false;
    while length < bytes.len() {
        let at = offset.saturating_add(length as u64);
        // A pipe or a tty has no offsets: it is read as it comes.
        let n = match file.read_at(&mut bytes[length..], at) {
            Err(e) if e.raw_os_error() == Some(libc::ESPIPE) => (&file).read(&mut bytes[length..]),
            other => other,
        };
        match n {
            Ok(0) => {
                end = true;
                break;
            }
            Ok(n) => length += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(sys::io_failure(&e, format!("read {path}"))),
        }
    }
    bytes.truncate(length);
    Ok(Outcome::File(FileRead {
        offset,
        content: Content::new(bytes),
        end,
    }))
}

/// Reads a whole text of procfs.
pub fn text(path: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    File::from(sys::open(path, libc::O_RDONLY)?)
        .read_to_end(&mut bytes)
        .map_err(|e| sys::io_failure(&e, format!("read {path}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes a text with one system call: a knob takes it whole or not at all.
pub fn write(path: &str, text: &str, create: bool) -> Result<Outcome, Failure> {
    let more = if create {
        libc::O_CREAT | libc::O_TRUNC
    } else {
        0
    };
    let file = sys::open(path, libc::O_WRONLY | libc::O_NOCTTY | more)?;
    let call = format!("write {path}");
    use std::os::fd::AsFd;
    match sys::write(file.as_fd(), text.as_bytes()) {
        Ok(Some(n)) if n == text.len() => Ok(Outcome::Done {}),
        Ok(Some(n)) => Err(Failure::bad(format!(
            "{call}: only {n} of {} bytes were taken",
            text.len()
        ))),
        Ok(None) => Err(sys::errno(libc::EAGAIN, call)),
        Err(e) => Err(sys::io_failure(&e, call)),
    }
}

/// Returns `/proc/PID/maps`, and `smaps` if it was requested.
pub fn maps(pid: i32, smaps: bool) -> Result<(String, Option<String>), Failure> {
    let maps = text(&format!("/proc/{pid}/maps"))?;
    let smaps = smaps
        .then(|| text(&format!("/proc/{pid}/smaps")))
        .transpose()?;
    Ok((maps, smaps))
}

/// Returns the entries of `/proc/PID/pagemap`.
pub fn pagemap(pid: i32, address: u64, pages: u64) -> Result<Outcome, Failure> {
    if pages > MAX_PAGEMAP_PAGES {
        return Err(Failure::bad(format!(
            "at most {MAX_PAGEMAP_PAGES} pages at once"
        )));
    }
    let page = sys::page_size();
    let path = format!("/proc/{pid}/pagemap");
    let file = File::from(sys::open(&path, libc::O_RDONLY)?);
    let entries = words(&file, address / page, pages)
        .map_err(|e| sys::io_failure(&e, format!("read {path}")))?;
    Ok(Outcome::Pagemap {
        address: address / page * page,
        entries,
    })
}

/// Returns words of a file from the `first`th on: fewer if it ends.
pub fn words(file: &File, first: u64, count: u64) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count as usize * 8];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], first * 8 + length as u64) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let words = bytes[..length].chunks_exact(8);
    Ok(words
        .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pid_is_put_in_where_there_is_one() {
        assert_eq!(with_pid("/proc/{pid}/x", Some(7)).unwrap(), "/proc/7/x");
        assert_eq!(with_pid("/sys/x", None).unwrap(), "/sys/x");
        assert!(with_pid("/proc/{pid}/x", None).is_err());
    }

    #[test]
    fn reading_says_whether_the_end_was_seen() {
        let path = std::env::temp_dir().join(format!("folioscope-file-{}", std::process::id()));
        let path = path.to_str().unwrap();
        write(path, "0123456789", true).unwrap();
        let piece = |offset, max| match read(path, offset, max) {
            Ok(Outcome::File(file)) => (file.content.text().unwrap().to_owned(), file.end),
            other => panic!("{other:?}"),
        };
        assert_eq!(piece(0, None), ("0123456789".into(), true));
        assert_eq!(piece(8, Some(2)), ("89".into(), false));
        assert_eq!(piece(8, Some(3)), ("89".into(), true));
        std::fs::remove_file(path).unwrap();
        assert_eq!(read(path, 0, None).unwrap_err().errno(), Some("ENOENT"));
        assert_eq!(write(path, "x", false).unwrap_err().errno(), Some("ENOENT"));
    }

    #[test]
    fn own_maps_and_pagemap() {
        let pid = std::process::id() as i32;
        let (maps, smaps) = maps(pid, true).unwrap();
        assert!(maps.contains("[stack]"));
        assert!(smaps.unwrap().contains("Rss:"));
        let here = 0u64;
        match pagemap(pid, (&raw const here) as u64, 1) {
            Ok(Outcome::Pagemap { entries, .. }) => assert_eq!(entries[0] >> 63, 1),
            other => panic!("{other:?}"),
        }
    }
}
