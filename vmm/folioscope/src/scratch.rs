// SPDX-License-Identifier: GPL-2.0-only
//! Directories of our own below one of the user's. They are removed by a mark in them and a lock on it, never by their
//! name alone.
//!
//! The mark is a file, [`MARK`]. The user of a directory holds a lock on it, which is visible in every PID namespace of
//! this kernel and ends with the process however that ends. Another kernel's locks are not visible (in a carrier the
//! same file system has processes of its own). The mark therefore names the boot, and a directory of another one is
//! removed when it is a day old.
//!
//! The pytest plugin does the same for its logs (`tests/plugin/folioscope/scratch.py`), with the same mark.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use machine::private;
use rustix::fs::{flock, FlockOperation};

use crate::machines::carried;
use crate::Error;

/// The file that makes a directory ours.
pub const MARK: &str = ".folioscope";

/// First words of the mark of a directory that is removed when its process has ended.
const WORDS: &str = "folioscope scratch";

/// The mark of a directory that stays until `make clean`.
const KEPT: &str = "folioscope bundle\n";

/// Age at which directories of another kernel's processes count as unused.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// The directories of this process, and their locks, which it holds to its end.
static OURS: Mutex<Vec<(PathBuf, PathBuf, File)>> = Mutex::new(Vec::new());

/// Returns this process's own directory below `parent`, the same at each call. Those of processes that have ended are
/// removed: everything worth keeping is in a bundle.
///
/// # Errors
/// If it cannot be made.
pub fn make(parent: &Path) -> Result<PathBuf, Error> {
    let mut all = OURS.lock().unwrap_or_else(|poison| poison.into_inner());
    if let Some((_, ours, _)) = all
        .iter()
        .find(|(of, ours, _)| of == parent && ours.is_dir())
    {
        return Ok(ours.clone());
    }
    let boot = boot();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        // A directory that cannot be removed stays; it does no harm.
        let _ = clear(&entry.path(), &boot);
    }
    let made = new(parent, &format!("{}-{boot}", std::process::id()));
    let made = made.and_then(|ours| hold(&ours, &boot).map(|lock| (ours, lock)));
    let (ours, lock) = made.map_err(Error::io(format!(
        "make a directory in {} (is the disk full, or read-only?)",
        parent.display()
    )))?;
    all.push((parent.to_owned(), ours.clone(), lock));
    Ok(ours)
}

/// Creates a directory below `parent` that stays, and that `make clean` recognises by its mark.
///
/// # Errors
/// If it cannot be made.
pub fn kept(parent: &Path, name: &str) -> io::Result<PathBuf> {
    let place = new(parent, name)?;
    fs::write(place.join(MARK), KEPT)?;
    Ok(place)
}

/// Creates a directory that only this user may open: by that name, or with a number if it exists already, such as one
/// of a namesake in another PID namespace.
fn new(parent: &Path, name: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(parent)?;
    let mut place = parent.join(name);
    for number in 2.. {
        match private::directory(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                place = parent.join(format!("{name}+{number}"));
            }
            other => return other.map(|()| place),
        }
    }
    unreachable!("the numbers do not end")
}

/// Marks a directory as ours as long as the file is open.
fn hold(directory: &Path, boot: &str) -> io::Result<File> {
    let mark = directory.join(MARK);
    let mut file = OpenOptions::new().write(true).create_new(true).open(mark)?;
    // On a file system without locks no other process could remove it by a lock either.
    let _ = flock(&file, FlockOperation::LockExclusive);
    // Without these words it counts as unmarked, so also in the moment before the lock.
    writeln!(file, "{WORDS}\nboot {boot}")?;
    Ok(file)
}

/// Removes a directory that carries our mark and is not in use; returns whether it did.
fn clear(directory: &Path, boot: &str) -> io::Result<bool> {
    if !fs::symlink_metadata(directory)?.is_dir() {
        return Ok(false);
    }
    let mark = directory.join(MARK);
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut options = OpenOptions::new();
    let file = match options
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(&mark)
    {
        Err(_) => return Ok(false),
        Ok(file) => file,
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let mut text = String::new();
    (&file).take(4096).read_to_string(&mut text)?;
    let mut lines = text.lines();
    if lines.next() != Some(WORDS) {
        return Ok(false);
    }
    let of_this_boot = lines.any(|line| line.strip_prefix("boot ") == Some(boot));
    if !of_this_boot && (carried() || !old(directory)?) {
        return Ok(false);
    }
    // The mark last: if this is interrupted, the rest is still ours.
    for entry in fs::read_dir(directory)?.flatten() {
        match entry.file_type()? {
            _ if entry.file_name() == MARK => {}
            kind if kind.is_dir() => fs::remove_dir_all(entry.path())?,
            _ => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_file(mark)?;
    fs::remove_dir(directory)?;
    Ok(true)
}

/// Returns whether nothing in a directory has changed for long.
fn old(directory: &Path) -> io::Result<bool> {
    let mut newest = fs::metadata(directory)?.modified()?;
    for entry in fs::read_dir(directory)?.flatten() {
        newest = newest.max(entry.metadata()?.modified()?);
    }
    Ok(newest + OLD < SystemTime::now())
}

/// Returns the first part of this boot's id, which is random.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let id: String = id.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    if id.is_empty() {
        "0".into()
    } else {
        id
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("folioscope-scratch-{name}-{}", std::process::id());
            let place = std::env::temp_dir().join(name);
            fs::create_dir_all(&place).unwrap();
            Self(place)
        }

        /// Creates a directory in use, with that mark.
        fn with(&self, name: &str, mark: Option<&str>) -> PathBuf {
            let made = self.0.join(name);
            fs::create_dir_all(made.join("more")).unwrap();
            fs::write(made.join("console.log"), "said").unwrap();
            if let Some(mark) = mark {
                fs::write(made.join(MARK), mark).unwrap();
            }
            made
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_mark_says_what_is_ours_and_not_the_name() {
        let place = Place::new("mark");
        let boot = boot();
        let ended = format!("{WORDS}\nboot {boot}\n");
        let theirs = [
            // As the name of a process that has ended.
            place.with(&format!("4194305-{boot}"), None),
            place.with("4194305", None),
            place.with("4194306", Some("my notes\n")),
            place.with("4194307", Some("")),
            place.with("4194308", Some(KEPT)),
            // Of another kernel, and not a day old.
            place.with(
                "4194309-0123abcd",
                Some(&format!("{WORDS}\nboot 0123abcd\n")),
            ),
        ];
        let ours = [
            place.with("anything", Some(&ended)),
            place.with("4194310", Some(&ended)),
        ];
        let linked = place.with("linked", Some(&ended));
        let outside = Place::new("outside");
        let target = outside.with("target", Some(&ended));
        std::os::unix::fs::symlink(&target, place.0.join("link")).unwrap();
        std::os::unix::fs::symlink(&target, linked.join("link")).unwrap();
        make(&place.0).unwrap();
        for path in theirs {
            assert!(
                path.join("console.log").is_file(),
                "{} was not ours",
                path.display()
            );
        }
        for path in ours.iter().chain([&linked]) {
            assert!(!path.exists(), "{} was ours", path.display());
        }
        assert!(target.join("console.log").is_file(), "a link was followed");
    }

    #[test]
    fn what_somebody_uses_stays_whatever_its_pid() {
        let place = Place::new("used");
        // A namesake of a PID that no process has here, as a process of another PID namespace makes it.
        let theirs = new(&place.0, &format!("4194305-{}", boot())).unwrap();
        let lock = hold(&theirs, &boot()).unwrap();
        assert!(clear(&theirs, &boot()).is_err() && theirs.is_dir());
        drop(lock);
        assert!(clear(&theirs, &boot()).unwrap() && !theirs.exists());
    }

    #[test]
    fn ours_is_the_same_again_and_no_namesake_s() {
        let place = Place::new("ours");
        let namesake = place.with(&format!("{}-{}", std::process::id(), boot()), None);
        let ours = make(&place.0).unwrap();
        let mode = fs::metadata(&ours).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700);
        assert!(ours.is_dir() && ours != namesake && namesake.join("console.log").is_file());
        assert_eq!(make(&place.0).unwrap(), ours);
    }
}
