// SPDX-License-Identifier: GPL-2.0-only
//! Explains why a program of the host could not be started, and returns its output before it ended.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use untrusted::escaped;

/// Maximum length of the first line of a script that Linux reads (`BINPRM_BUF_SIZE`).
const FIRST_LINE: u64 = 256;

/// The reason why a program could not be started.
#[derive(Debug)]
pub enum Unstartable {
    /// There is no file of that name.
    Missing,
    /// The file is not a program for this user on this host: a noun phrase for it.
    Unfit(String),
    /// Another error of the system.
    System(io::Error),
}

impl Unstartable {
    /// Finds the cause of an error of exec: `ENOENT` is that of a missing interpreter too, and `EACCES` that of a directory.
    #[must_use]
    pub fn new(program: &Path, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::EACCES | libc::ENOEXEC | libc::ELOOP | libc::ENOTDIR) => {}
            _ => return Self::System(error),
        }
        let Some(path) = located(program) else {
            return match error.kind() {
                io::ErrorKind::NotFound => Self::Missing,
                _ => Self::System(error),
            };
        };
        match found(&path) {
            Ok(Some(found)) => Self::Unfit(found),
            Ok(None) => Self::System(error),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            Err(error) => Self::System(error),
        }
    }
}

/// Returns the file of that name: as exec finds it, by `PATH` where the name has no slash.
fn located(program: &Path) -> Option<PathBuf> {
    if program.as_os_str().as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|path| path.exists())
}

/// Returns the reason why a file is not a program for this user on this host, if one is found.
fn found(path: &Path) -> io::Result<Option<String>> {
    let about = fs::metadata(path)?;
    let kind = about.file_type();
    let special = match kind {
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a FIFO"),
        kind if kind.is_socket() => Some("a socket"),
        kind if kind.is_file() => None,
        _ => Some("a device"),
    };
    if let Some(special) = special {
        return Ok(Some(special.into()));
    }
    if rustix::fs::access(path, Access::EXEC_OK).is_err() {
        let mode = about.permissions().mode() & 0o7777;
        return Ok(Some(format!(
            "a file that this user may not execute (mode {mode:04o})"
        )));
    }
    let mut start = Vec::new();
    File::open(path)?.take(FIRST_LINE).read_to_end(&mut start)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let interpreter = line
            .split(|byte| byte.is_ascii_whitespace())
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        let usable = Path::new(OsStr::from_bytes(interpreter)).is_file();
        return Ok((!usable).then(|| {
            format!(
                "a script whose interpreter {} is not there",
                escaped(&String::from_utf8_lossy(interpreter))
            )
        }));
    }
    Ok(Some(if start.starts_with(b"\x7fELF") {
        "a program of another system: this one does not have its loader or its architecture".into()
    } else {
        "a file that is no program".into()
    }))
}

/// Joins a program's output to one line: its lines with `; ` between them.
#[must_use]
pub fn printed(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.map(|line| escaped(line).to_string()).collect();
    match lines.is_empty() {
        true => "nothing".into(),
        false => lines.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8], mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let why = |path: &Path, errno: i32| match Unstartable::new(
            path,
            io::Error::from_raw_os_error(errno),
        ) {
            Unstartable::Missing => "missing".to_string(),
            Unstartable::Unfit(found) => found,
            Unstartable::System(error) => format!("system: {error}"),
        };
        assert_eq!(why(&folder.path().join("none"), libc::ENOENT), "missing");
        assert_eq!(why(Path::new("none-of-this-name"), libc::ENOENT), "missing");
        assert_eq!(why(folder.path(), libc::EACCES), "a directory");
        assert_eq!(why(Path::new("/dev/null"), libc::EACCES), "a device");
        let plain = file("plain", b"text", 0o644);
        assert_eq!(
            why(&plain, libc::EACCES),
            "a file that this user may not execute (mode 0644)"
        );
        let script = file("script", b"#! /no/such\x1bshell -x\n", 0o755);
        assert_eq!(
            why(&script, libc::ENOENT),
            r"a script whose interpreter /no/such\u001bshell is not there"
        );
        let elf = file("elf", b"\x7fELF\x02\x01\x01", 0o755);
        assert!(why(&elf, libc::ENOENT).starts_with("a program of another system"));
        assert!(why(&elf, libc::ENOEXEC).starts_with("a program of another system"));
        assert!(why(&plain, libc::EAGAIN).starts_with("system: "));
        // If no fault is found, the system's own error is kept.
        let fine = file("fine", b"#!/bin/sh\n", 0o755);
        assert!(why(&fine, libc::EACCES).starts_with("system: "));
    }

    #[test]
    fn what_was_printed_is_one_line() {
        assert_eq!(printed(" \n\n"), "nothing");
        assert_eq!(printed("a\\b\n\n \x1b[31mc\n"), r"a\\b; \u001b[31mc");
    }
}
