// SPDX-License-Identifier: GPL-2.0-only
//! The file systems that areas of the crossing are files of.

use protocol::{Command, Outcome, EROFS_FILE};

use super::states::Map;
use crate::guest::{unexpected, Guest};
use crate::Error;

/// Where the files of the guest's own tmpfs are.
const TMPFS: &str = "/tmp";
/// A ramfs.
const RAMFS: &str = "/tmp/cross-ramfs";
/// A tmpfs whose files get folios of a PMD's size.
const HUGE: &str = "/tmp/cross-huge";

/// A read-only file system with one file.
const EROFS: &str = "/tmp/cross-erofs";
/// A RAM disk for it.
const DISK: &str = "ram1";

/// Returns the path of the file that is read ahead.
pub fn read_ahead() -> String {
    format!("{EROFS}/{EROFS_FILE}")
}

/// Returns the directory for files of this backing; `None` if it is none, or one that no state may change.
pub fn directory(map: Map) -> Option<&'static str> {
    match map {
        Map::Tmpfs | Map::TmpfsPrivate | Map::TmpfsShort | Map::TmpfsSpan => Some(TMPFS),
        Map::TmpfsHuge | Map::TmpfsHugePrivate | Map::TmpfsPmd | Map::TmpfsPmdPrivate => Some(HUGE),
        Map::Ramfs | Map::RamfsPrivate => Some(RAMFS),
        Map::Hinted
        | Map::HintedHalfIn
        | Map::Small
        | Map::Pmd
        | Map::Shared
        | Map::ReadAhead
        | Map::Hugetlb
        | Map::HugetlbShared
        | Map::HugetlbBlock
        | Map::HugetlbBlockShared
        | Map::HugetlbSpan => None,
    }
}

/// Mounts the file systems for the areas that are files of them, one with a file of `length` bytes; a kernel without THP
/// has no `huge=`, and one without EROFS or RAM disks no such file.
///
/// # Errors
/// Where the guest is lost, or cannot mount them.
pub fn mount(guest: &mut Guest, length: u64) -> Result<(), Error> {
    let words = format!(
        "mkdir -p {RAMFS} {HUGE} && mount -t ramfs ramfs {RAMFS} && \
         {{ mount -t tmpfs -o huge=always tmpfs {HUGE} || mount -t tmpfs tmpfs {HUGE}; }}"
    );
    run(guest, &words)?;
    let known = guest.read_file("/proc/filesystems")?.unwrap_or_default();
    let disk = guest.read_file(&format!("/sys/block/{DISK}/size"))?;
    if disk.is_none() || !known.split_whitespace().any(|name| name == "erofs") {
        return Ok(());
    }
    let mount = Command::MountErofs {
        device: format!("/dev/{DISK}"),
        directory: EROFS.into(),
        length,
    };
    guest.command(mount, guest.deadline()).map(drop)
}

/// Runs words of a shell, which must succeed.
pub(super) fn run(guest: &mut Guest, words: &str) -> Result<(), Error> {
    let command = Command::Run {
        argv: ["sh", "-c", words].map(str::to_owned).to_vec(),
        input: None,
        process: None,
    };
    match guest.command(command, guest.deadline())? {
        Outcome::Program(end) if matches!(end.how, protocol::Ended::Exit { status: 0 }) => Ok(()),
        other => Err(unexpected(words, &other)),
    }
}

/// Unmounts those of them that are mounted.
///
/// # Errors
/// Where the guest is lost, or cannot unmount one.
pub fn unmount(guest: &mut Guest) -> Result<(), Error> {
    let mounts = guest.read_file("/proc/mounts")?.unwrap_or_default();
    let mounted = |directory: &&str| mounts.split_whitespace().any(|word| word == *directory);
    for directory in [RAMFS, HUGE, EROFS].into_iter().filter(mounted) {
        let directory = directory.into();
        guest.command(Command::Unmount { directory }, guest.deadline())?;
    }
    Ok(())
}
