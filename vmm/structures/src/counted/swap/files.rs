// SPDX-License-Identifier: GPL-2.0-only
//! The slots of files in memory: shmem's trees have an entry for each, and no page table does.

use stage1::PhysMemory;

use super::area::MOST_SLOTS;
use crate::cache;
use crate::kernel::View;
use crate::pages::Pages;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Bits of a slot's number in a `swp_entry_t` (`SWP_TYPE_SHIFT`).
const SLOT_BITS: u32 = 63 - 5;
/// More files in memory than anybody has.
const MOST_FILES: usize = 1 << 20;
const WHAT: &str = "the list of files in memory with pages in swap";

/// Where they are.
#[derive(Debug)]
pub(super) struct Files {
    caches: cache::Layout,
    list: u64,
    in_list: Member,
    next: Member,
    inode: Member,
    mapping: Member,
    users: Member,
}

impl Files {
    pub(super) fn new(kernel: &Kernel) -> Result<Files, StructureError> {
        let member = |structure, path| kernel.types.member(structure, path);
        let caches = cache::Layout::new(kernel)?;
        caches.knows_shmem()?;
        Ok(Files {
            caches,
            list: kernel.variable("shmem_swaplist")?,
            in_list: member("shmem_inode_info", "swaplist")?,
            next: member("list_head", "next")?,
            inode: member("shmem_inode_info", "vfs_inode")?,
            mapping: member("inode", "i_mapping")?,
            users: member("inode", "i_count.counter")?,
        })
    }

    /// The slots that files have, whatever process maps them: the number of the area, the first slot, and their number.
    ///
    /// # Errors
    /// Also while a task may have taken an entry out of a tree and not given its slot back: it cuts or writes the file, has a
    /// folio of it locked, or frees the inode.
    pub(super) fn slots<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pages: &Pages<'_, M>,
    ) -> Result<Vec<(u8, u64, u64)>, StructureError> {
        let (mut slots, mut left) = (Vec::new(), MOST_SLOTS);
        for node in view.list(WHAT, (self.list, self.next), MOST_FILES)? {
            let inode = node
                .wrapping_sub(self.in_list.offset)
                .wrapping_add(self.inode.offset);
            let mapping = view.number("an inode", inode, self.mapping)?;
            let read = self.caches.read(view, pages, mapping, &mut left)?;
            let (tree, values) = read.unwrap_or_default();
            let busy = tree.shmem.is_none_or(|counts| counts.busy);
            if busy || view.number("an inode", inode, self.users)? == 0 {
                return Err(StructureError::Inconsistent {
                    what: WHAT,
                    va: inode,
                    why: "a task was changing or freeing a file".into(),
                });
            }
            let slot = |value: u64| value & ((1 << SLOT_BITS) - 1);
            slots.extend(
                values
                    .into_iter()
                    .map(|(value, count)| ((value >> SLOT_BITS) as u8, slot(value), count)),
            );
        }
        slots.sort_unstable();
        Ok(slots)
    }
}
