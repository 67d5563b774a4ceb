// SPDX-License-Identifier: GPL-2.0-only
//! Writes a file beside its place and renames it at the end, so that it is whole or absent.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use machine::private;
use rustix::fs::OFlags;

use crate::paths::{kind, leads_to_stdout, stdout_file};

/// Lets `write` fill a new file, and puts it at `path` in place of an old one. If writing fails, or is interrupted, the
/// old one stays. The file has the permissions of the old one, or those of the umask.
///
/// # Errors
/// As of `write`, and by `failed` where the file cannot be made or put there.
pub fn replace<E>(
    path: &Path,
    failed: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    replace_with(path, None, failed, write)
}

/// Replaces as [`replace`] does, with a file that only this user may open, whatever the umask and the old one's
/// permissions: for files with guest memory.
///
/// # Errors
/// As [`replace`].
pub fn replace_private<E>(
    path: &Path,
    failed: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    replace_with(path, Some(private::FILE), failed, write)
}

fn replace_with<E>(
    path: &Path,
    mode: Option<u32>,
    failed: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    // A link continues to lead to its file.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let before = fs::metadata(&path);
    if before.as_ref().is_ok_and(|about| !about.is_file()) {
        // A pipe or a device is no file that could be replaced.
        return write(&mut open_stream(&path).map_err(failed)?);
    }
    if leads_to_stdout(&path) {
        // Printed output would otherwise continue into the old file.
        return write(&mut stdout_file().map_err(failed)?);
    }
    if fs::symlink_metadata(&path).is_ok_and(|about| about.is_symlink()) {
        // Its target does not exist, or cannot, as for a closed descriptor (/proc/self/fd). The link stays.
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        let file = options.mode(mode.unwrap_or(0o666)).open(&path);
        return write(&mut file.map_err(failed)?);
    }
    let as_before = || before.map_or(0o666, |about| about.permissions().mode() & 0o777);
    let new = mode.unwrap_or_else(as_before);
    let beside = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut part = tempfile::Builder::new()
        .prefix(".folioscope-")
        .suffix(".part")
        .permissions(Permissions::from_mode(new))
        .tempfile_in(beside)
        .map_err(&failed)?;
    if let Some(mode) = mode {
        // A umask may have taken rights of its user's own away.
        let made = part.as_file().set_permissions(Permissions::from_mode(mode));
        made.map_err(&failed)?;
    }
    write(part.as_file_mut())?;
    part.persist(&path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Creates a file that is written from its beginning to its end, or opens the pipe or terminal that is there.
///
/// # Errors
/// If it cannot be opened, or opening would never return: a FIFO without a reader.
pub fn create(path: &Path) -> io::Result<File> {
    create_with(path, |path| File::create(path))
}

/// Creates as [`create`] does, a file that only this user may open, as [`private::create`].
///
/// # Errors
/// As [`create`].
pub fn create_private(path: &Path) -> io::Result<File> {
    create_with(path, private::create)
}

/// Opens as [`create_private`] does, if it is not known yet whether anything will be written: the contents stay until
/// [`private::empty`].
///
/// # Errors
/// As [`create`].
pub fn open_private(path: &Path) -> io::Result<File> {
    create_with(path, private::open_or_create)
}

fn create_with(path: &Path, new: impl FnOnce(&Path) -> io::Result<File>) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(about) if !about.is_file() => open_stream(path),
        Ok(_) if leads_to_stdout(path) => stdout_file(),
        _ => new(path),
    }
}

/// Opens a FIFO to write, where a process reads it.
///
/// # Errors
/// If none does: the system would wait for one without end.
pub fn open_fifo(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let options = options
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32);
    let at_once = options
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == rustix::io::Errno::NXIO.raw_os_error() => {
                io::Error::other("no process reads from this FIFO")
            }
            _ => error,
        })?;
    // It waits for its reader when it is full, as the first does not; this finds both ends there.
    let opened = File::options().write(true).open(path);
    drop(at_once);
    opened
}

fn open_stream(path: &Path) -> io::Result<File> {
    let found = fs::metadata(path)?.file_type();
    if found.is_fifo() {
        return open_fifo(path);
    }
    if !found.is_char_device() {
        let found = kind(found);
        return Err(io::Error::other(format!("expected a file, found {found}")));
    }
    File::options().write(true).open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn same(error: io::Error) -> io::Error {
        error
    }

    fn names(place: &Path) -> Vec<String> {
        let entries = fs::read_dir(place).unwrap().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("saved");
        fs::write(&path, "old").unwrap();
        let cut_short = replace(&path, same, |file| {
            file.write_all(b"ne")?;
            assert_eq!(fs::read(&path)?, b"old");
            Err(io::Error::other("the disk is full"))
        });
        assert_eq!(cut_short.unwrap_err().to_string(), "the disk is full");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replace(&path, same, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(place.path()), ["saved"]);
    }

    #[test]
    fn a_link_to_nothing_stays_a_link() {
        let place = tempfile::tempdir().unwrap();
        let (path, link) = (place.path().join("file"), place.path().join("link"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        replace(&link, same, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        // As a link to a descriptor that is closed.
        let nowhere = place.path().join("nowhere");
        std::os::unix::fs::symlink("/proc/self/fd/999999", &nowhere).unwrap();
        let refused = replace(&nowhere, same, |file| file.write_all(b"new"));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(fs::symlink_metadata(&nowhere).unwrap().is_symlink());
        assert_eq!(names(place.path()), ["file", "link", "nowhere"]);
    }

    #[test]
    fn a_link_leads_on_and_rights_stay() {
        let place = tempfile::tempdir().unwrap();
        let (path, link) = (place.path().join("file"), place.path().join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        replace(&link, same, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn what_has_a_guest_s_memory_is_its_user_s_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("core");
        for before in [None, Some(0o666)] {
            if let Some(mode) = before {
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            }
            replace_private(&path, same, |file| file.write_all(b"secret")).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600);
        }
    }

    #[test]
    fn a_fifo_is_written_to_where_it_is_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("fifo");
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            &path,
            rustix::fs::Mode::from_raw_mode(0o600),
        )
        .unwrap();
        let unread = replace(&path, same, |file| file.write_all(b"new"));
        assert_eq!(
            unread.unwrap_err().to_string(),
            "no process reads from this FIFO"
        );
        let there = path.clone();
        let reader = std::thread::spawn(move || fs::read(there).unwrap());
        while replace(&path, same, |file| file.write_all(b"new")).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(reader.join().unwrap(), b"new");
        let directory = replace(place.path(), same, |file| file.write_all(b"new"));
        assert_eq!(
            directory.unwrap_err().to_string(),
            "expected a file, found a directory"
        );
    }

    #[test]
    fn a_device_is_written_to_and_stays_one() {
        replace(Path::new("/dev/null"), same, |file| file.write_all(b"new")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
