//! Makes and mounts a file system on a block device, with one file in it, to test read-ahead and programs that run from
//! a disk; files of tmpfs and ramfs are in memory from the start. It is EROFS, whose image is a superblock, two inodes
//! and a directory (fs/erofs/erofs_fs.h). All of this runs in helpers, as it takes as long as the device does.

use std::fs::File;
use std::os::unix::fs::FileExt;

use protocol::{pattern, Failure, Outcome, EROFS_FILE};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::sys;

/// log2 of the bytes of a block: no page is smaller.
const BLOCK_BITS: u8 = 12;
const BLOCK: usize = 1 << BLOCK_BITS;
/// Offset of the superblock (`EROFS_SUPER_OFFSET`), and its first word.
const SUPER: usize = 1024;
const MAGIC: u32 = 0xe0f5_e1e2;
/// Size of a compact inode. Inode `n` is the `n`th place of that size in the blocks of metadata, which begin at the
/// device's start here.
const INODE: usize = 32;
/// Behind the superblock.
const ROOT: usize = 64;
const FILE: usize = 65;
/// Bytes of a directory entry.
const ENTRY: usize = 12;
/// The block of the root directory, and the file's first: a block for each, whatever a page's size.
const DIRECTORY: usize = 1;
const DATA: usize = 2;
/// The longest file: its bytes are held in memory for once.
const MOST: u64 = 32 << 20;

/// Makes the file system, with `length` bytes of the pattern in its file, and mounts it read-only at `directory`, which
/// is created if it does not exist.
pub fn mount(device: &str, directory: &str, length: u64) -> Result<Outcome, Failure> {
    let image = image(length)?;
    let file = File::from(sys::open(device, libc::O_RDWR)?);
    file.write_all_at(&image, 0)
        .and_then(|()| file.sync_all())
        .map_err(|e| sys::io_failure(&e, format!("write {device}")))?;
    // The last close drops the device's own cache, which the file system bypasses.
    drop(file);
    std::fs::create_dir_all(directory)
        .map_err(|e| sys::io_failure(&e, format!("mkdir {directory}")))?;
    let mounted = rustix::mount::mount(device, directory, "erofs", MountFlags::RDONLY, None);
    sys::done(mounted, format!("mount {device}")).map(|()| Outcome::Done {})
}

/// Calls `umount2(2)`.
pub fn unmount(directory: &str) -> Result<Outcome, Failure> {
    let unmounted = rustix::mount::unmount(directory, UnmountFlags::empty());
    sys::done(unmounted, format!("umount {directory}")).map(|()| Outcome::Done {})
}

fn image(length: u64) -> Result<Vec<u8>, Failure> {
    if length == 0 || length % BLOCK as u64 != 0 || length > MOST {
        return Err(Failure::bad(format!(
            "expected a length of 1 to {} whole blocks of {BLOCK} bytes and found {length} bytes",
            MOST / BLOCK as u64
        )));
    }
    let mut bytes = vec![0; DATA * BLOCK];
    let blocks = (DATA as u64 + length / BLOCK as u64) as u32;
    put(&mut bytes, SUPER, &MAGIC.to_le_bytes());
    put(&mut bytes, SUPER + 12, &[BLOCK_BITS, 0]);
    put(&mut bytes, SUPER + 14, &(ROOT as u16).to_le_bytes());
    put(&mut bytes, SUPER + 16, &2u64.to_le_bytes());
    put(&mut bytes, SUPER + 36, &blocks.to_le_bytes());

    let names = [(ROOT, "."), (ROOT, ".."), (FILE, EROFS_FILE)];
    let mut name_at = names.len() * ENTRY;
    for (index, (nid, name)) in names.into_iter().enumerate() {
        let at = DIRECTORY * BLOCK + index * ENTRY;
        // EROFS_FT_REG_FILE and EROFS_FT_DIR, which are as in dirent.h's FT_*.
        let kind = if nid == FILE { 1 } else { 2 };
        put(&mut bytes, at, &(nid as u64).to_le_bytes());
        put(&mut bytes, at + 8, &(name_at as u16).to_le_bytes());
        put(&mut bytes, at + 10, &[kind, 0]);
        put(&mut bytes, DIRECTORY * BLOCK + name_at, name.as_bytes());
        name_at += name.len();
    }
    let directory = (libc::S_IFDIR | 0o555, 2, name_at as u32, DIRECTORY);
    let file = (libc::S_IFREG | 0o555, 1, length as u32, DATA);
    for (nid, (mode, links, size, start)) in [(ROOT, directory), (FILE, file)] {
        // i_format is 0: a compact inode whose data is in one piece (EROFS_INODE_FLAT_PLAIN).
        let at = nid * INODE;
        put(&mut bytes, at + 4, &(mode as u16).to_le_bytes());
        put(&mut bytes, at + 6, &u16::to_le_bytes(links));
        put(&mut bytes, at + 8, &size.to_le_bytes());
        put(&mut bytes, at + 16, &(start as u32).to_le_bytes());
        put(&mut bytes, at + 20, &(nid as u32).to_le_bytes());
    }
    for word in (0..length).step_by(8) {
        bytes.extend_from_slice(&pattern(word, 0).to_le_bytes());
    }
    Ok(bytes)
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_as_the_kernel_reads_it() {
        let bytes = image(3 * BLOCK as u64).unwrap();
        assert_eq!(bytes.len(), 5 * BLOCK);
        let number = |at: usize, n: usize| {
            let mut word = [0; 8];
            word[..n].copy_from_slice(&bytes[at..at + n]);
            u64::from_le_bytes(word)
        };
        assert_eq!(&bytes[1024..1028], [0xe2, 0xe1, 0xf5, 0xe0]);
        // blkszbits, root_nid, blocks_lo
        assert_eq!((bytes[1036], number(1038, 2), number(1060, 4)), (12, 64, 5));
        // The directory: the first name's offset gives their number.
        assert_eq!((number(4096 + 8, 2), number(4096 + 24, 8)), (36, 65));
        assert_eq!(&bytes[4096 + 36..4096 + 43], b"...file");
        let size = number(64 * 32 + 8, 4);
        assert_eq!((size, number(64 * 32 + 4, 2)), (43, 0o040_555));
        assert_eq!(
            (number(65 * 32 + 8, 4), number(65 * 32 + 16, 4)),
            (12288, 2)
        );
        assert_eq!(number(2 * 4096 + 8, 8), pattern(8, 0));
        for bad in [0, 4095, MOST + 4096] {
            assert!(image(bad).is_err());
        }
    }
}
