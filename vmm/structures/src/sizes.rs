// SPDX-License-Identifier: GPL-2.0-only
//! Pages that a file's VMA maps, and how many there are.

use linux::folio::MappedFile;
use stage1::PhysMemory;

use crate::kernel::View;
use crate::lock::{Lock, RwSemaphore};
use crate::types::{Member, Types};
use crate::StructureError;

/// `S_IFMT` and `S_IFREG` (include/uapi/linux/stat.h).
const FORMAT: u64 = 0o170_000;
const REGULAR: u64 = 0o100_000;
/// File systems that are in this memory alone, so that no other machine changes a size: `TMPFS_MAGIC`, `RAMFS_MAGIC` and
/// `HUGETLBFS_MAGIC` (include/uapi/linux/magic.h).
const OF_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Layout that leads from a file to its size.
#[derive(Debug)]
pub(crate) struct Sizes {
    mapping: Member,
    host: Member,
    mode: Member,
    size: Member,
    lock: RwSemaphore,
    super_block: Member,
    magic: Member,
}

impl Sizes {
    pub(crate) fn new(types: &Types) -> Result<Sizes, StructureError> {
        Ok(Sizes {
            mapping: types.member("file", "f_mapping")?,
            host: types.member("address_space", "host")?,
            mode: types.member("inode", "i_mode")?,
            size: types.member("inode", "i_size")?,
            lock: RwSemaphore::new(types, "inode", "i_rwsem")?,
            super_block: types.member("inode", "i_sb")?,
            magic: types.member("super_block", "s_magic")?,
        })
    }

    /// Reads the size of the `struct file` at `file`, if it is a regular one: a driver maps what it likes.
    pub(crate) fn of<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        file: u64,
    ) -> Result<Option<MappedFile>, StructureError> {
        let mapping = view.number("a file", file, self.mapping)?;
        let inode = view.number("a file's pages", mapping, self.host)?;
        let of_inode = |member| view.number("an inode", inode, member);
        if of_inode(self.mode)? & FORMAT != REGULAR {
            return Ok(None);
        }
        let magic = view.number("a super block", of_inode(self.super_block)?, self.magic)?;
        let changing = self.lock.read(view, inode)? == Lock::Written;
        let known = OF_MEMORY.contains(&magic) && !changing;
        let pages = of_inode(self.size)?.div_ceil(view.upper.granule.bytes());
        Ok(Some(MappedFile {
            mapping,
            pages: known.then_some(pages),
        }))
    }
}
