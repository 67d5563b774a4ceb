// SPDX-License-Identifier: GPL-2.0-only
//! Finds the target of a path.

use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Returns the kind of a file that is not a regular one.
pub(crate) fn kind(found: FileType) -> &'static str {
    match found {
        found if found.is_dir() => "a directory",
        found if found.is_fifo() => "a FIFO",
        found if found.is_socket() => "a socket",
        found if found.is_block_device() => "a block device",
        found if found.is_char_device() => "a character device",
        _ => "a file",
    }
}

/// Returns whether a file is the one that standard output goes to.
pub(crate) fn is_stdout(about: &Metadata) -> bool {
    stdout().is_some_and(|stdout| (stdout.dev(), stdout.ino()) == (about.dev(), about.ino()))
}

/// Returns the metadata of standard output, if it is a regular file.
pub(crate) fn stdout() -> Option<Metadata> {
    let fd = io::stdout().as_fd().try_clone_to_owned().ok()?;
    File::from(fd).metadata().ok().filter(Metadata::is_file)
}

/// Returns whether a path leads to where standard output goes, a regular file.
pub(crate) fn leads_to_stdout(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| is_stdout(&about))
}

/// Returns standard output as a file of its own.
pub(crate) fn stdout_file() -> io::Result<File> {
    let stdout = io::stdout();
    debug_assert!(stdout.as_raw_fd() >= 0);
    Ok(File::from(stdout.as_fd().try_clone_to_owned()?))
}
