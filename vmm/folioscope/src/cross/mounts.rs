// SPDX-License-Identifier: GPL-2.0-only
//! The file systems that areas of the crossing are files of.

use protocol::{Command, Outcome};

use super::states::Map;
use crate::guest::{unexpected, Guest};
use crate::Error;

/// Where the files of the guest's own tmpfs are.
const TMPFS: &str = "/tmp";
/// A ramfs.
const RAMFS: &str = "/tmp/cross-ramfs";
/// A tmpfs whose files get folios of a PMD's size.
const HUGE: &str = "/tmp/cross-huge";

/// Returns the directory for files of this backing; `None` if it is none.
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
        | Map::Hugetlb
        | Map::HugetlbShared => None,
    }
}

/// Mounts the file systems for the areas that are files of them; a kernel without THP has no `huge=`.
///
/// # Errors
/// Where the guest is lost, or cannot mount them.
pub fn mount(guest: &mut Guest) -> Result<(), Error> {
    let words = format!(
        "mkdir -p {RAMFS} {HUGE} && mount -t ramfs ramfs {RAMFS} && \
         {{ mount -t tmpfs -o huge=always tmpfs {HUGE} || mount -t tmpfs tmpfs {HUGE}; }}"
    );
    run(guest, &words)
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

/// Unmounts them.
pub fn unmount() -> [Command; 2] {
    [RAMFS, HUGE].map(|directory| Command::Unmount {
        directory: directory.into(),
    })
}
