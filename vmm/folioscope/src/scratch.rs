//! Directories of one process each, which the next process removes when that one has ended.
//!
//! A name is `PID-BOOT`: in a carrier the same file system has processes of another kernel, of which ours knows
//! nothing. Of those only what is older than a day is removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Error;

/// After this what another kernel's processes left is nobody's any more.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// A directory of our own below `parent`. Those of processes that have ended are removed: what was to be kept of
/// them is in a bundle.
///
/// # Errors
/// Where it cannot be made.
pub fn make(parent: &Path) -> Result<PathBuf, Error> {
    let boot = boot();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|about| about.modified());
        let old = modified.is_ok_and(|at| at + OLD < SystemTime::now());
        let alive = |pid: &str| Path::new("/proc").join(pid).exists();
        let name = entry.file_name();
        if name
            .to_str()
            .is_some_and(|name| !in_use(name, &boot, old, alive))
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let ours = of(parent, std::process::id());
    fs::create_dir_all(&ours).map_err(Error::io(format!(
        "make the directory {} (is the disk full, or read-only?)",
        ours.display()
    )))?;
    Ok(ours)
}

/// The directory of the process `pid` below `parent`.
#[must_use]
pub fn of(parent: &Path, pid: u32) -> PathBuf {
    parent.join(format!("{pid}-{}", boot()))
}

/// The first part of this boot's id, which is random.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let id: String = id.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    if id.is_empty() {
        "0".into()
    } else {
        id
    }
}

/// Whether the directory `name` is still somebody's.
fn in_use(name: &str, boot: &str, old: bool, alive: impl Fn(&str) -> bool) -> bool {
    match name.split_once('-') {
        Some((pid, theirs)) if theirs == boot => alive(pid),
        Some(_) => !old,
        None => alive(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_of_one_s_own_boot_go_and_the_old_of_another() {
        let alive = |pid: &str| pid == "7";
        for (name, old, expected) in [
            ("7-ab", false, true),
            ("7-ab", true, true),
            ("8-ab", false, false),
            ("8-cd", false, true),
            ("7-cd", true, false),
            ("7", true, true),
            ("8", false, false),
        ] {
            assert_eq!(
                in_use(name, "ab", old, alive),
                expected,
                "{name}, old: {old}"
            );
        }
    }

    #[test]
    fn ours_stays_and_is_the_same_again() {
        let parent =
            std::env::temp_dir().join(format!("folioscope-scratch-{}", std::process::id()));
        let dead = parent.join(format!("4194305-{}", boot()));
        fs::create_dir_all(&dead).unwrap();
        let ours = make(&parent).unwrap();
        assert!(ours.is_dir() && !dead.exists());
        assert_eq!(make(&parent).unwrap(), ours);
        fs::remove_dir_all(&parent).unwrap();
    }
}
