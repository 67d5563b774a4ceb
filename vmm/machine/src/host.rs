// SPDX-License-Identifier: GPL-2.0-only
//! Checks that every machine makes on its host before a guest starts, and prints the command that starts it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use linux::image::MAGIC;

use crate::ConfigError;

/// Minimum memory of a guest in bytes. With less, kernel and initrd have no room.
pub const LEAST_MEMORY: u64 = 64 << 20;
/// Alignment of the start and end of a guest's memory, so that a PMD can map it.
pub const GRAIN: u64 = 2 << 20;

/// Returns whether the file at `path` is an arm64 Image that is not packed.
///
/// # Errors
/// If it cannot be read; or the bytes found in the place of the boot protocol's magic.
pub fn check_image(path: &Path) -> Result<(), ConfigError> {
    let head = read_at_start("kernel", path, 64)?;
    let magic = head.get(56..60).unwrap_or_default();
    if magic != MAGIC {
        return Err(ConfigError::NotAnImage {
            path: path.to_path_buf(),
            found: magic.to_vec(),
        });
    }
    Ok(())
}

/// Returns whether the file at `path` can be read.
///
/// # Errors
/// Why not.
pub fn check_initrd(path: &Path) -> Result<(), ConfigError> {
    read_at_start("initrd", path, 1).map(drop)
}

fn read_at_start(what: &'static str, path: &Path, bytes: u64) -> Result<Vec<u8>, ConfigError> {
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(bytes).read_to_end(&mut head))
        .map_err(|source| ConfigError::Unreadable {
            what,
            path: path.to_owned(),
            source,
        })?;
    Ok(head)
}

/// Returns all memory of the host in bytes.
pub fn memory_bytes() -> u64 {
    let all = rustix::system::sysinfo();
    all.totalram.saturating_mul(u64::from(all.mem_unit))
}

/// Quotes words for a shell.
pub fn quoted<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> String {
    let word = |word: &OsStr| {
        let text = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
        if !text.is_empty() && text.chars().all(plain) {
            text.into_owned()
        } else {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
    };
    words.into_iter().map(word).collect::<Vec<_>>().join(" ")
}
