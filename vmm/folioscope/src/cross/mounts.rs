// SPDX-License-Identifier: GPL-2.0-only
//! The file systems that areas of the crossing are files of.

use protocol::Command;

use super::states::Map;

/// Where the files of the guest's own tmpfs are.
const TMPFS: &str = "/tmp";
/// A ramfs.
const RAMFS: &str = "/tmp/cross-ramfs";
/// A tmpfs whose files get folios of a PMD's size.
const HUGE: &str = "/tmp/cross-huge";

/// Returns the directory for files of this backing; `None` if it is none.
pub fn directory(map: Map) -> Option<&'static str> {
    match map {
        Map::Tmpfs | Map::TmpfsPrivate | Map::TmpfsShort => Some(TMPFS),
        Map::TmpfsHuge | Map::TmpfsHugePrivate => Some(HUGE),
        Map::Ramfs | Map::RamfsPrivate => Some(RAMFS),
        Map::Hinted | Map::HintedHalfIn | Map::Small | Map::Pmd | Map::Shared => None,
    }
}

/// Mounts the file systems for the areas that are files of them; a kernel without THP has no `huge=`.
pub fn mount() -> Command {
    let words = format!(
        "mkdir -p {RAMFS} {HUGE} && mount -t ramfs ramfs {RAMFS} && \
         {{ mount -t tmpfs -o huge=always tmpfs {HUGE} || mount -t tmpfs tmpfs {HUGE}; }}"
    );
    Command::Run {
        argv: ["sh", "-c", &words].map(str::to_owned).to_vec(),
        input: None,
        process: None,
    }
}

/// Unmounts them.
pub fn unmount() -> [Command; 2] {
    [RAMFS, HUGE].map(|directory| Command::Unmount {
        directory: directory.into(),
    })
}
