// SPDX-License-Identifier: GPL-2.0-only
//! The file systems that areas of the crossing are files of.

use protocol::{Command, Outcome, EROFS_FILE};

use super::maps::Map;
use super::states::STATES;
use crate::guest::{unexpected, Guest};
use crate::stage::Stage;
use crate::Error;

/// Where the files of the guest's own tmpfs are.
const TMPFS: &str = "/tmp";
/// A ramfs.
const RAMFS: &str = "/tmp/cross-ramfs";
/// A tmpfs whose files get folios of a PMD's size.
const HUGE: &str = "/tmp/cross-huge";

/// A file system of zones on a disk: it writes back, has large folios, and is small. A file has the size of its zone.
const ZONEFS: &str = "/tmp/cross-zonefs";
/// Its disk, as configfs makes it: of memory, with zones of 4 MiB.
const NULLB: &str = "/sys/kernel/config/nullb/cross";
/// The first 8 bytes of its superblock, the others are zero: the magic number and the checksum (`struct zonefs_super`).
const SUPER: &str = r"\123\106\117\132\005\253\277\131";

/// A link to a disk to swap to.
const SWAP: &str = "/tmp/cross-swap";
/// The disk, as configfs makes it: of memory. Unlike zram it is not `SWP_SYNCHRONOUS_IO`, so what is read from it stays in
/// the swap cache, and keeps its slot.
const SWAP_NULLB: &str = "/sys/kernel/config/nullb/cross-swap";

/// A read-only file system with one file.
const EROFS: &str = "/tmp/cross-erofs";
/// A RAM disk for it.
const DISK: &str = "ram1";

/// Returns the path of the file that is read ahead.
pub fn read_ahead() -> String {
    format!("{EROFS}/{EROFS_FILE}")
}

/// Returns the path of the file of the disk for the area of this number.
pub fn stored(area: usize) -> String {
    format!("{ZONEFS}/cnv/{area}")
}

/// Returns the directory for files of this backing; `None` if it is none, or one that no state may change.
pub fn directory(map: Map) -> Option<&'static str> {
    match map {
        Map::Tmpfs | Map::TmpfsPrivate | Map::TmpfsShort | Map::TmpfsSpan => Some(TMPFS),
        Map::TmpfsHuge
        | Map::TmpfsHugeAcross
        | Map::TmpfsHugeShort
        | Map::TmpfsHugePrivate
        | Map::TmpfsPmd
        | Map::TmpfsPmdPrivate => Some(HUGE),
        Map::Ramfs | Map::RamfsPrivate => Some(RAMFS),
        Map::Disk | Map::DiskPrivate => Some(ZONEFS),
        Map::Hinted
        | Map::HintedHalfIn
        | Map::Small
        | Map::Pmd
        | Map::PmdToo
        | Map::PmdAndBlocks
        | Map::Far
        | Map::Shared
        | Map::ReadAhead
        | Map::Hugetlb
        | Map::HugetlbShared
        | Map::HugetlbBlock
        | Map::HugetlbBlockShared
        | Map::HugetlbBlockFar
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
    let knows = |name| known.split_whitespace().any(|known| known == name);
    if knows("configfs") {
        make_disks(guest, knows("zonefs"), length)?;
    }
    let disk = guest.read_file(&format!("/sys/block/{DISK}/size"))?;
    if disk.is_none() || !knows("erofs") {
        return Ok(());
    }
    let mount = Command::MountErofs {
        device: format!("/dev/{DISK}"),
        directory: EROFS.into(),
        length,
    };
    guest.command(mount, guest.deadline()).map(drop)
}

/// Makes the disks of memory that the kernel can: one to swap to, and one for zonefs.
fn make_disks(guest: &mut Guest, zonefs: bool, length: u64) -> Result<(), Error> {
    run(guest, "mount -t configfs configfs /sys/kernel/config")?;
    let features = guest.read_file("/sys/kernel/config/nullb/features")?;
    let Some(features) = features else {
        return run(guest, "umount /sys/kernel/config");
    };
    let can = |feature: &str| features.trim().split(',').any(|it| it == feature);
    if can("memory_backed") && guest.read_file("/proc/swaps")?.is_some() {
        make_swap(guest, length)?;
    }
    match zonefs && can("zoned") {
        true => mount_zonefs(guest),
        false => Ok(()),
    }
}

/// Makes a disk of memory with these settings; `$disk` is its device then.
fn make_disk(directory: &str, settings: &[(&str, usize)]) -> String {
    let set = settings
        .iter()
        .map(|(name, value)| format!("echo {value} > {directory}/{name}"));
    let set: Vec<String> = set.collect();
    let name = directory.rsplit('/').next().unwrap_or_default();
    // Its device has the name of its directory; before 6.12 or so that of its number.
    format!(
        "mkdir {directory} && {} && disk=/dev/{name} && {{ test -b $disk || disk=/dev/nullb$(cat {directory}/index); }}",
        set.join(" && ")
    )
}

/// Makes the disk to swap to, with room for the areas of `length` bytes that are swapped to it and no more.
fn make_swap(guest: &mut Guest, length: u64) -> Result<(), Error> {
    let areas = STATES.iter().filter(|state| state.on_disk).count() as u64;
    // Its first page is the header's.
    let kib = (areas * length + guest.hello().page_size) / 1024;
    let settings = [
        ("size", kib as usize / 1024 + 1),
        ("blocksize", 4096),
        ("memory_backed", 1),
        ("power", 1),
    ];
    let disk = make_disk(SWAP_NULLB, &settings);
    run(
        guest,
        &format!("{disk} && busybox mkswap $disk {kib} && ln -s $disk {SWAP}"),
    )
}

/// Returns the path of the disk to swap to, if the guest has one.
pub fn swap(stage: &mut Stage<'_>) -> Result<Option<&'static str>, Error> {
    Ok(stage.exists(SWAP)?.then_some(SWAP))
}

/// Makes a disk with a zone for each state, and one for the superblock, and mounts its files.
fn mount_zonefs(guest: &mut Guest) -> Result<(), Error> {
    let zones = STATES.len() + 1;
    let settings = [
        ("size", 4 * (zones + 1)),
        ("zone_size", 4),
        ("zone_nr_conv", zones),
        ("zoned", 1),
        ("memory_backed", 1),
        ("power", 1),
    ];
    let disk = make_disk(NULLB, &settings);
    let words = format!(
        "{disk} && printf '{SUPER}' | dd of=$disk conv=notrunc,fsync && mkdir -p {ZONEFS} && mount -t zonefs $disk {ZONEFS}"
    );
    run(guest, &words)
}

/// Returns whether the files of the disk are there.
pub fn has_stored(stage: &mut Stage<'_>) -> Result<bool, Error> {
    stage.exists(&stored(0))
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
    for directory in [RAMFS, HUGE, EROFS, ZONEFS].into_iter().filter(mounted) {
        let directory = directory.into();
        guest.command(Command::Unmount { directory }, guest.deadline())?;
    }
    if mounted(&"/sys/kernel/config") {
        run(
            guest,
            &format!(
                "for disk in {NULLB} {SWAP_NULLB}; do test ! -d $disk || rmdir $disk || exit 1; done; \
                 rm -f {SWAP} && umount /sys/kernel/config"
            ),
        )?;
    }
    Ok(())
}
